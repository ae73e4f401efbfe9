"""LangSmith: the cases as a dataset, their runs as an experiment, annotated runs as new cases.

Imported only when LangSmith is asked for. Every error of its service that a user can do something
about is a ConfigurationError of one sentence, which never holds any part of a key.
"""

import asyncio
import hashlib
import io
import json
import os
import re
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, NamedTuple

import requests
from langchain_core.messages import convert_to_messages
from langsmith import Client, Langsmith, LangsmithError, NotFoundError, aevaluate, tracing_context
from langsmith.evaluation import EvaluationResult, EvaluationResults
from langsmith.run_helpers import get_current_run_tree
from langsmith.schemas import (
    Dataset,
    Example,
    Feedback,
    FeedbackSourceType,
    LangSmithInfo,
    TracerSession,
)
from langsmith.utils import (
    LangSmithAuthError,
    LangSmithConnectionError,
    LangSmithError,
    LangSmithNotFoundError,
)
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from followup_agent.evals.cases import Case, tags_of
from followup_agent.evals.running import CONCURRENCY, run_cases
from followup_agent.evals.scorers import SCORERS, Score, score
from followup_agent.evals.subject import Episode, Subject, crash_of
from followup_agent.evals.worlds import Customer, FaultKind, Order, Ticket, World
from followup_agent.goals.text import language_of
from followup_agent.judgement.judge import SOURCES
from followup_agent.service.errors import ConfigurationError
from followup_agent.state import Priority, ToolCallRecord
from followup_agent.tools.definition import explain
from followup_agent.tools.outcome import FailureKind

HOSTED = "https://api.smith.langchain.com"
VERDICT = "verdict"
"""Key of the feedback that says what the verdict should have been."""
AT_ONCE = 50
"""Ids in one address: servers take no longer ones."""


# --- the way there ---


class _Client(Client):
    """One that knows what it could not send."""

    lost: list[Exception]


def open_client() -> Client:
    """A client of LANGSMITH_ENDPOINT with LANGSMITH_API_KEY, to be given to `close`."""
    key, url = _variable("API_KEY"), _variable("ENDPOINT") or HOSTED
    if not key:
        raise ConfigurationError("LangSmith needs an API key: set LANGSMITH_API_KEY")
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError("LANGSMITH_ENDPOINT must begin with http:// or https://")
    lost: list[Exception] = []
    client = _Client(
        api_url=url,
        api_key=key,
        info=_info(url, key),
        tracing_mode="langsmith",
        tracing_sampling_rate=1.0,
        tracing_error_callback=lost.append,
        disable_prompt_cache=True,
    )
    client.lost = lost
    return client


def close(client: Client) -> None:
    """Send what is queued, and end; ConfigurationError when some of it could not be sent."""
    client.close()
    lost = client.lost if isinstance(client, _Client) else []
    if lost:
        raise ConfigurationError(
            f"LangSmith at {client.api_url} did not take everything: {len(lost)} uploads failed, "
            "so that the experiment there is not complete"
        )


def _variable(name: str) -> str:
    """As LangSmith's own client reads its settings."""
    found = (
        os.environ.get(f"{prefix}_{name}", "").strip() for prefix in ("LANGSMITH", "LANGCHAIN")
    )
    return next((value for value in found if value), "")


def _info(url: str, key: str) -> LangSmithInfo:
    """What the server can do. Asked here: later, the client would only log that it is away."""
    client = Client(api_url=url, api_key=key, auto_batch_tracing=False, disable_prompt_cache=True)
    try:
        with langsmith_errors(client):
            return LangSmithInfo(**client.request_with_retries("GET", "/info").json())
    finally:
        client.close()


@contextmanager
def langsmith_errors(client: Client) -> Iterator[None]:
    """LangSmith's errors in one sentence; their own texts hold parts of the key."""
    url = client.api_url
    try:
        yield
    except (LangSmithConnectionError, requests.RequestException):
        raise ConfigurationError(
            f"LangSmith cannot be reached at {url}: is LANGSMITH_ENDPOINT right?"
        ) from None
    except LangSmithNotFoundError:
        raise ConfigurationError(f"LangSmith at {url} has no such dataset or project") from None
    except (LangSmithError, LangsmithError) as error:
        status = re.search(r"\b([45][0-9]{2}) (?:Client|Server) Error", str(error))
        if isinstance(error, LangSmithAuthError) or (status and status[1] == "403"):
            problem = "does not accept the key in LANGSMITH_API_KEY"
        else:
            problem = f"declined: {f'HTTP {status[1]}' if status else type(error).__name__}"
        raise ConfigurationError(f"LangSmith at {url} {problem}") from None


# --- the cases as a dataset ---


class PushPlan(NamedTuple):
    """What a push does, by the names of the cases."""

    create: list[str]
    update: list[str]
    remove: list[str]
    """Pushed once, and no case any more: deleted only when that is asked for."""
    unchanged: list[str]


class _Stored(NamedTuple):
    """An example that a push has made."""

    name: str
    content_hash: str


def example_of(case: Case) -> dict[str, Any]:
    """The case as an example: inputs, outputs (what must be true), metadata and split.

    `content_hash` covers the whole case, its company included.
    """
    stated = case.model_dump(mode="json", by_alias=True, exclude_unset=True)
    expected = {
        name: value
        for name, value in stated.items()
        if name.startswith("expected_") or name in ("must_not_contain", "tools_match")
    }
    asked = ("turns", "world", "faults", "as_of", "max_steps")
    inputs = {"user_goal": case.input, "case": case.name}
    inputs |= {name: stated[name] for name in asked if name in stated}
    whole = [
        case.model_dump(mode="json", exclude_defaults=True),
        case.company().model_dump(mode="json", exclude_defaults=True),
    ]
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False)
    return {
        "inputs": inputs,
        "outputs": expected,
        "metadata": {
            "name": case.name,
            "tags": case.tags,
            "tier": case.tier,
            "language": case.language,
            "content_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        },
        "split": tags_of(case),
    }


def example_id(dataset: str, case_name: str) -> uuid.UUID:
    """The same for ever: pushing a case again can never make a second example of it."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"followup-agent:{dataset}:{case_name}")


def plan_push(client: Client, cases: Iterable[Case], dataset: str) -> PushPlan:
    """What `push` would do; nothing is written."""
    with langsmith_errors(client):
        return _plan(cases, dataset, _stored(client, _find(client, dataset)))


def push(client: Client, cases: Sequence[Case], dataset: str, *, remove: bool = False) -> PushPlan:
    """Bring the dataset in step with the cases; it is made when there is none.

    Examples that were not pushed from here are left alone. `remove`: delete what the plan lists.
    """
    with langsmith_errors(client):
        found = _find(client, dataset)
        plan = _plan(cases, dataset, _stored(client, found))
        if found is None:
            found = client.create_dataset(dataset, description="The eval cases of followup-agent.")
        examples = {case.name: example_of(case) for case in cases}
        if plan.create:
            made = [{"id": example_id(dataset, n), **examples[n]} for n in plan.create]
            for one in made:
                one["reference_outputs"] = one.pop("outputs")  # its name there, when it is new
            client.create_examples(dataset_id=found.id, examples=made)
        if plan.update:
            updates = [{"id": example_id(dataset, n), **examples[n]} for n in plan.update]
            client.update_examples(dataset_id=found.id, updates=updates)
        gone = [example_id(dataset, name) for name in plan.remove] if remove else []
        for start in range(0, len(gone), AT_ONCE):
            client.delete_examples(gone[start : start + AT_ONCE])
    return plan


def _plan(cases: Iterable[Case], dataset: str, stored: Mapping[uuid.UUID, _Stored]) -> PushPlan:
    plan = PushPlan([], [], [], [])
    seen = set()
    for case in cases:
        key = example_id(dataset, case.name)
        seen.add(key)
        before = stored.get(key)
        if before is None:
            plan.create.append(case.name)
        elif before.content_hash == example_of(case)["metadata"]["content_hash"]:
            plan.unchanged.append(case.name)
        else:
            plan.update.append(case.name)
    plan.remove.extend(sorted(one.name for key, one in stored.items() if key not in seen))
    return plan


def _find(client: Client, dataset: str) -> Dataset | None:
    return next(client.list_datasets(dataset_name=dataset, limit=1), None)


def _stored(client: Client, dataset: Dataset | None) -> dict[uuid.UUID, _Stored]:
    """The examples that a push has made: their id follows from the name they bear."""
    if dataset is None:
        return {}
    stored = {}
    for example in client.list_examples(dataset_id=dataset.id):
        metadata = example.metadata or {}
        name = str(metadata.get("name"))
        if example.id == example_id(dataset.name, name):
            stored[example.id] = _Stored(name, str(metadata.get("content_hash")))
    return stored


# --- an experiment ---


class Experiment(NamedTuple):
    """What an experiment is called in LangSmith, and what came of the cases, in their order."""

    name: str
    episodes: list[Episode]


async def run_experiment(
    client: Client,
    dataset: str,
    cases: Sequence[Case],
    subject: Subject,
    *,
    concurrency: int = CONCURRENCY,
    metadata: Mapping[str, Any] | None = None,
    repeat: int = 1,
) -> Experiment:
    """Run the cases as an experiment on the dataset, which must hold them as they are now.

    Each episode is a run of its own, with the graph's trace below it and a feedback of each
    evaluator. All of it has been sent when this returns.
    """
    with langsmith_errors(client):
        found = await asyncio.to_thread(_in_step, client, cases, dataset)
        ids = {example_id(dataset, case.name) for case in cases}
        examples = [
            example
            for example in await asyncio.to_thread(
                lambda: list(client.list_examples(dataset_id=found.id))
            )
            if example.id in ids
        ]
        project = await asyncio.to_thread(
            client.create_project,
            f"{subject.name}-{uuid.uuid4().hex[:8]}",
            reference_dataset_id=found.id,
            metadata=dict(metadata or {}),
            num_examples=len(examples),
            num_repetitions=repeat,
            evaluator_keys=list(SCORERS),
        )
        trial = _Trial(cases, subject, client, project)
        episodes = await trial.run(
            examples, concurrency=concurrency, repeat=repeat, metadata=metadata or {}
        )
        await asyncio.to_thread(client.flush)
    return Experiment(str(project.name), episodes)


def _in_step(client: Client, cases: Sequence[Case], dataset: str) -> Dataset:
    """The dataset; ConfigurationError when there is none, or when it is behind the cases."""
    found = _find(client, dataset)
    if found is None:
        raise ConfigurationError(
            f"LangSmith has no such dataset or project: {dataset!r}; `followup eval push` makes it"
        )
    plan = _plan(cases, dataset, _stored(client, found))
    if plan.create or plan.update:
        raise ConfigurationError(
            f"the dataset {dataset!r} is not in step with {len(plan.create) + len(plan.update)} "
            "cases: run `followup eval push` first"
        )
    return found


async def run_offline(
    cases: Sequence[Case],
    subject: Subject,
    *,
    concurrency: int = CONCURRENCY,
    repeat: int = 1,
) -> list[Episode]:
    """The same experiment without LangSmith's service: no key, no network, nothing sent."""
    client = Client(
        api_url="http://127.0.0.1:9",  # where nobody listens: and nobody is asked
        api_key="none",
        info=LangSmithInfo(),
        auto_batch_tracing=False,
        tracing_mode="langsmith",
        disable_prompt_cache=True,
    )
    dataset = example_id("", "")
    examples = []
    for case in cases:
        one = example_of(case)
        one["metadata"]["dataset_split"] = one.pop("split")
        key = example_id("", case.name)
        examples.append(Example(id=key, dataset_id=dataset, created_at=datetime.now(UTC), **one))
    try:
        trial = _Trial(cases, subject, client, None)
        return await trial.run(examples, concurrency=concurrency, repeat=repeat, metadata={})
    finally:
        client.close()


class _Trial:
    """Target and evaluators of one experiment."""

    def __init__(
        self,
        cases: Sequence[Case],
        subject: Subject,
        client: Client,
        project: TracerSession | None,
    ) -> None:
        """`project` None: nothing is sent."""
        self._cases = {case.name: case for case in cases}
        self._subject = subject
        self._client = client
        self._project = project
        self._attempts: Counter[str] = Counter()
        self._episodes: dict[uuid.UUID, Episode] = {}
        self._scored: dict[tuple[str, int], Episode] = {}
        self._unsent: list[LangSmithError] = []

    async def run(
        self,
        examples: list[Example],
        *,
        concurrency: int,
        repeat: int,
        metadata: Mapping[str, Any],
    ) -> list[Episode]:
        """Run it all."""
        quiet = io.StringIO()  # it prints, and stdout is for what was asked for
        with warnings.catch_warnings(), redirect_stdout(quiet):
            warnings.filterwarnings("ignore", message="'upload_runs' parameter is in beta")
            running = await aevaluate(
                self._target,
                data=examples,
                evaluators=[self._evaluate],
                metadata=dict(metadata),
                max_concurrency=concurrency,
                num_repetitions=repeat,
                client=self._client,
                experiment=self._project,
                upload_runs=self._project is not None,
                disable_evaluator_tracing=True,
                blocking=False,
            )
        await running.wait()
        if self._unsent:
            raise self._unsent[0]
        return [self._scored[name, n] for name in self._cases for n in range(1, repeat + 1)]

    async def _target(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run the case of this name; the episode as JSON."""
        case = self._cases[inputs["case"]]
        self._attempts[case.name] += 1
        attempt = self._attempts[case.name]
        tree = get_current_run_tree()
        assert tree is not None  # noqa: S101 - LangSmith has begun one
        try:
            with tracing_context(enabled=self._project is not None):
                (episode,) = await run_cases([case], self._subject)
            episode.attempt = attempt
        except Exception as error:
            crash = crash_of(error)
            self._episodes[tree.id] = Episode(case=case.name, attempt=attempt, crash=crash)
            raise
        self._episodes[tree.id] = episode
        return episode.model_dump(mode="json")

    async def _evaluate(self, run: Any, example: Any) -> EvaluationResults:
        """Score the episode.

        The feedback is sent from here: LangSmith's own threads may still be at it when the
        experiment ends, and it leaves the score of an evaluator that broke empty.
        """
        episode = self._episodes[run.id]
        scores = score(self._cases[episode.case], episode)
        self._scored[episode.case, episode.attempt] = episode
        if self._project is None:
            return {"results": [EvaluationResult(**_feedback(one)) for one in scores]}
        for one in scores:
            try:
                await asyncio.to_thread(
                    self._client.create_feedback,
                    run.id,
                    **_feedback(one),
                    trace_id=run.trace_id,
                    session_id=self._project.id,
                    start_time=run.start_time,
                    feedback_source_type=FeedbackSourceType.MODEL,
                    stop_after_attempt=3,
                )
            except LangSmithError as error:
                self._unsent.append(error)
        return {"results": []}


def _feedback(one: Score) -> dict[str, Any]:
    """A score as LangSmith has it; one that broke is a 0 that says so."""
    comment = f"error: {one.reason}" if one.errored else one.reason
    return {"key": one.eval, "score": 1.0 if one.passed else 0.0, "comment": comment}


# --- annotated runs as cases ---


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
