"""Annotated runs of a LangSmith project as cases; each gets a company in which its facts hold again."""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, NamedTuple

from langchain_core.messages import convert_to_messages
from langsmith import Client, Langsmith, NotFoundError
from langsmith.schemas import Feedback
from langsmith.utils import LangSmithNotFoundError
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from followup_agent.evals.cases import Case
from followup_agent.evals.langsmith_sync import AT_ONCE, langsmith_errors
from followup_agent.evals.worlds import Customer, FaultKind, Order, Ticket, World
from followup_agent.goals.text import language_of
from followup_agent.judgement.judge import SOURCES
from followup_agent.service.errors import ConfigurationError
from followup_agent.state import Priority, ToolCallRecord
from followup_agent.tools.definition import explain
from followup_agent.tools.outcome import FailureKind

VERDICT = "verdict"
"""Key of the feedback that says what the verdict should have been."""


class Pulled(NamedTuple):
    """What the annotated runs came to."""

    rows: list[dict[str, Any]]
    """Cases, as a YAML file of cases holds them."""
    left_out: dict[str, str]
    """Run id to why it can be no case."""


class Annotation(BaseModel):
    """What the verdict of a run should have been."""

    model_config = ConfigDict(extra="ignore")

    needs_followup: bool | Literal["undetermined"] | None = None
    priority: Priority | None = None


class _Unfit(Exception):
    """The run can be no case; the message says why."""


def pull(client: Client, project: str, *, limit: int = 100) -> Pulled:
    """Cases from the newest runs of a tracing project that bear a feedback `verdict`.

    Its correction or value says what the verdict should have been (`needs_followup`, `priority`);
    a score of 1 alone says that the run's own was right. Of several, the newest counts. Each case
    has a company with the facts that its run has found.
    """
    with langsmith_errors(client):
        try:
            found = client.read_project(project_name=project)
        except LangSmithNotFoundError:
            raise ConfigurationError(
                f"LangSmith has no such dataset or project: {project!r}"
            ) from None
        runs = _runs(client, str(found.id), limit)
        notes = _annotations(client, [str(run.id) for run in runs])
    pulled = Pulled([], {})
    for run in runs:
        key = str(run.id)
        if key not in notes:
            continue
        try:
            pulled.rows.append(_row(key, run.inputs or {}, run.outputs or {}, notes[key]))
        except _Unfit as error:
            pulled.left_out[key] = str(error)
    return pulled


def _runs(client: Client, project_id: str, limit: int) -> list[Any]:
    """The newest annotated root runs."""
    annotated = f'eq(feedback_key, "{VERDICT}")'
    try:
        with Langsmith(
            api_key=client.api_key,
            tenant_id=None if client.workspace_id is None else str(client.workspace_id),
            base_url=re.sub(r"/api(/v1)?/?$", "", client.api_url),
        ) as api:
            query = api.runs.query(
                project_ids=[project_id],
                is_root=True,
                filter=annotated,
                min_start_time=datetime(2000, 1, 1, tzinfo=UTC),
                page_size=min(limit, AT_ONCE),
                selects=["ID", "INPUTS", "OUTPUTS"],
            )
            return list(islice(query, limit))
    except NotFoundError:  # a server before 0.16 is asked in the former way
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = client.list_runs(
                project_id=project_id,
                is_root=True,
                filter=annotated,
                select=["id", "inputs", "outputs", "name", "start_time", "run_type", "trace_id"],
            )
        return list(islice(found, limit))


def _annotations(client: Client, run_ids: Sequence[str]) -> dict[str, Feedback]:
    """Run id to its newest annotation."""
    newest: dict[str, Feedback] = {}
    for start in range(0, len(run_ids), AT_ONCE):
        ids = run_ids[start : start + AT_ONCE]
        for note in client.list_feedback(run_ids=ids, feedback_key=[VERDICT]):
            before = newest.get(str(note.run_id))
            if before is None or note.modified_at > before.modified_at:
                newest[str(note.run_id)] = note
    return newest


def _row(
    run_id: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    note: Feedback,
) -> dict[str, Any]:
    """One run as a case; _Unfit when it can be none."""
    goal = goal_of(inputs)
    if goal is None:
        raise _Unfit("its input holds no goal: it went on from an answer or an approval")
    if outputs.get("status") not in ("completed", "failed"):
        raise _Unfit(f"it has not come to its end: {outputs.get('status', 'no outputs')}")
    wanted = _wanted(note, outputs.get("verdict"))
    history: list[ToolCallRecord] = outputs["tool_history"]
    row = {
        # The beginning of a run's id is the time it began at, and shared by its neighbours.
        "name": f"pulled-{run_id[-12:]}",
        "input": goal,
        "language": language_of(goal),
        "tags": ["pulled"],
        "tier": "frontier",
        "why": note.comment or "",
        "world": _world(outputs, history),
        "expected_tools": [call["tool_name"] for call in history],
        "tools_match": "any_order",
        **{
            f"expected_{name}": value
            for name, value in wanted.model_dump(mode="json", exclude_none=True).items()
        },
    }
    if "undetermined" in (wanted.needs_followup, wanted.priority):
        row["expected_status"] = "failed"  # as a judgement ends that has too little to go by
    try:
        Case.model_validate(row)
    except ValidationError as error:
        raise _Unfit(explain(error)) from error
    return {name: value for name, value in row.items() if value != ""}


def goal_of(inputs: Mapping[str, Any]) -> str | None:
    """The goal, from `user_goal` or the last human message; None when there is none."""
    goal = inputs.get("user_goal")
    if isinstance(goal, str):
        return goal
    try:
        messages = convert_to_messages(inputs.get("messages") or [])
    except (ValueError, NotImplementedError):
        return None
    return next((str(one.text) for one in reversed(messages) if one.type == "human"), None)


def _wanted(note: Feedback, verdict: Mapping[str, Any] | None) -> Annotation:
    """What the annotation asks for."""
    given = note.correction if note.correction is not None else note.value
    try:
        said: object = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        raise _Unfit(f"its annotation is no verdict: {str(given)[:80]!r}") from None
    if said is None and note.score == 1 and verdict:
        needs = verdict["needs_followup"]
        said = {
            "needs_followup": "undetermined" if needs is None else needs,
            "priority": verdict["priority"],
        }
    try:
        wanted = Annotation.model_validate(said)
    except ValidationError as error:
        if said is None:
            raise _Unfit("its annotation does not say what is right") from None
        raise _Unfit(f"its annotation is no verdict: {explain(error)}") from None
    if wanted == Annotation():
        raise _Unfit("its annotation names neither needs_followup nor priority")
    return wanted


# --- the company that a run was asked about, as far as its facts tell ---

FAULTS: Mapping[FailureKind | None, FaultKind] = {
    "unavailable": "unavailable",
    "timeout": "timeout",
    "refused": "refused",
    "internal": "broken",
}
"""Failures that can be replayed."""


def _world(outputs: Mapping[str, Any], history: Sequence[ToolCallRecord]) -> dict[str, JsonValue]:
    """A company in which the same facts are found about the customer in question."""
    subjects = outputs["parsed_goal"]["subjects"]
    if len(subjects) != 1:
        raise _Unfit("it is not about one customer")
    subject: str = subjects[0]
    strange = sorted({call["tool_name"] for call in history} - {*SOURCES})
    if strange:
        raise _Unfit(f"a call of {strange[0]} cannot be replayed")
    faults: dict[str, FaultKind] = {}
    for source in SOURCES:
        fault = _fault(source, [call for call in history if call["tool_name"] == source], subject)
        if fault is not None:
            faults[source] = fault
    facts = {key: fact["value"] for key, fact in outputs["facts"].get(subject, {}).items()}
    try:
        world = World(
            as_of=datetime.fromisoformat(outputs["as_of"]),
            customers={subject: _customer(facts, faults)},
            faults=faults,
        )
    except KeyError as error:
        raise _Unfit(f"it does not tell {error.args[0]}") from None
    except ValidationError as error:
        raise _Unfit(f"its facts make no company: {explain(error)}") from None
    document: dict[str, JsonValue] = world.model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    return document


def _fault(source: str, calls: Sequence[ToolCallRecord], subject: str) -> FaultKind | None:
    """What the tool must do instead of answering; None when it answered."""
    if any(call["args"].get("user_id") != subject for call in calls):
        raise _Unfit(f"{source} was asked about another customer")
    failed = [call for call in calls if not call["success"]]
    if not failed:
        return None
    if len(failed) < len(calls):
        raise _Unfit(f"{source} failed and answered later, which cannot be replayed")
    kind = failed[0]["failure_kind"]
    if kind not in FAULTS:
        raise _Unfit(f"{source} failed ({kind}), which cannot be replayed")
    return FAULTS[kind]


def _customer(facts: Mapping[str, Any], faults: Mapping[str, FaultKind]) -> Customer:
    """A customer of whom the tools find these facts; KeyError for one that is missing."""
    active: list[float | datetime] = []
    paid: list[Order] = []
    tickets: list[Ticket] = []
    if "get_user_activity" not in faults:
        last = facts["days_since_last_active"]
        active = [] if last is None else [float(last)]
    if "get_user_orders" not in faults:
        last = facts["days_since_last_paid"]
        paid = [] if last is None else [Order(placed=float(last))]
    if "get_open_tickets" not in faults:
        urgent, opened = facts["urgent_ticket_count"], facts["oldest_open_ticket_days"]
        tickets = [
            Ticket(opened=float(opened), priority="urgent" if number < urgent else "normal")
            for number in range(facts["open_ticket_count"])
        ]
    return Customer(
        segment=facts["segment"],
        signed_up=float(facts["days_since_signup"]),
        active=active,
        orders=paid,
        tickets=tickets,
    )
