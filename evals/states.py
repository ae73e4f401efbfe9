"""The planner alone: recorded states in, decisions out, no tool run.

A planner touches nothing, so what it decides can be judged from a state alone, in well under a
millisecond for rules. The states of `states.jsonl.gz` were recorded by `followup eval record`, from
episodes that passed everything they were asked.
"""

import gzip
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from importlib import resources
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from followup_agent.evals.cases import Case
from followup_agent.evals.report import Gates, Rate
from followup_agent.evals.scorers import score, without_defaults
from followup_agent.evals.subject import Episode, PlannerBroke, Subject, crash_of
from followup_agent.goals.ids import learn_pattern
from followup_agent.judgement.judge import WRITE_TOOL
from followup_agent.planners import Planned
from followup_agent.service.errors import InvalidOption
from followup_agent.state import AgentState, Decision
from followup_agent.tools.definition import explain


class Recorded(BaseModel):
    """One state, and what may be decided in it."""

    case: str
    step: int
    state: dict[str, Any]
    wanted: str
    """'tool', 'ask_user' or 'finish'."""
    tools: list[str] = []
    """Tools that may be called now: one where the case demands an order."""
    args: dict[str, dict[str, JsonValue]] = {}
    """Tool to its arguments; of a write, only whom it is about."""
    example_id: str


class PlannerReport(BaseModel):
    """How a planner decides in recorded states."""

    states: int
    right: Rate
    by_decision: dict[str, Rate]
    failures: list[dict[str, str]]
    seconds: float
    per_second: float
    ok: bool


_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)


def record(cases: Sequence[Case], episodes: Iterable[Episode]) -> list[Recorded]:
    """The states of the episodes that passed; they must have been run with `keep_states`."""
    known = {case.name: case for case in cases}
    recorded = []
    for episode in episodes:
        case = known[episode.case]
        if not all(given.passed for given in score(case, episode)):
            continue
        example_id = next(iter(case.company().customers))
        calls = [(d.tool_name or "", d.args) for d in episode.decisions if d.type == "tool"]
        taken = 0
        for number, (state, decided) in enumerate(
            zip(episode.states, episode.decisions, strict=True), start=1
        ):
            free_order = case.tools_match != "exact_order"
            left = calls[taken:]
            args = {
                name: {"user_id": given["user_id"]} if name == WRITE_TOOL else given
                for name, given in (left if free_order else left[:1])
            }
            is_tool = decided.type == "tool"
            taken += is_tool
            recorded.append(
                Recorded(
                    case=case.name,
                    step=number,
                    state=state,
                    wanted=decided.type,
                    tools=list(args) if is_tool else [],
                    args=args if is_tool else {},
                    example_id=example_id,
                )
            )
    return recorded


async def planner_only(states: Sequence[Recorded], subject: Subject, gates: Gates) -> PlannerReport:
    """Ask the planner once for each state. Never raises for what it does."""
    failures: list[dict[str, str]] = []
    wrong: Counter[str] = Counter()
    planners = {
        one.example_id: subject.planner_for(learn_pattern([one.example_id]), UTC) for one in states
    }
    started = time.perf_counter()
    for one in states:
        try:
            planned = await planners[one.example_id].decide(cast(AgentState, one.state))
            if isinstance(planned, Planned):
                if planned.failure is not None:
                    raise planned.failure.cause or PlannerBroke(planned.failure.message)
                planned = planned.decision or {}
            decision = _DECISION.validate_python(planned)
            problem = _problem(one, decision)
        except ValidationError as error:
            problem = f"no usable decision: {explain(error)}"
        except Exception as error:
            crash = crash_of(error)
            busy = crash.kind == "infrastructure"
            what = "a busy server, no decision" if busy else "the planner failed"
            problem = f"{what}: {crash.message}"
        if problem:
            wrong[one.wanted] += 1
            failures.append({"case": one.case, "step": str(one.step), "reason": problem})
    seconds = time.perf_counter() - started
    await subject.aclose()
    totals = Counter(one.wanted for one in states)
    right = Rate.of(len(states) - len(failures), len(states))
    return PlannerReport(
        states=len(states),
        right=right,
        by_decision={kind: Rate.of(n - wrong[kind], n) for kind, n in sorted(totals.items())},
        failures=failures,
        seconds=seconds,
        per_second=len(states) / seconds if seconds else 0.0,
        ok=right.score >= gates.planner_only,
    )


def _problem(one: Recorded, decision: Decision) -> str:
    """What is wrong with the decision; empty when nothing is."""
    if decision["type"] != one.wanted:
        return f"decided {decision['type']}, expected {one.wanted}"
    if decision["type"] != "tool":
        return ""
    name, args = decision["tool_name"], decision["args"]
    if name not in one.tools:
        return f"called {name}, expected {' or '.join(one.tools)}"
    wanted: Mapping[str, JsonValue] = one.args[name]
    given = {key: args.get(key) for key in wanted} if name == WRITE_TOOL else args
    same = without_defaults(given) == without_defaults(wanted)
    return "" if same else f"{name} with {given}, expected {wanted}"


def write_states(states: Iterable[Recorded], path: Path) -> None:
    """As gzipped JSON lines; the same states are the same bytes."""
    lines = "".join(f"{one.model_dump_json()}\n" for one in states)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def read_states(path: Path | None = None) -> list[Recorded]:
    """The states of a file, or those that come with the package; InvalidOption when it is none."""
    where = path or Path(str(resources.files(__package__).joinpath("states.jsonl.gz")))
    try:
        lines = gzip.decompress(where.read_bytes()).decode().splitlines()
        return [Recorded.model_validate(json.loads(line)) for line in lines]
    except (OSError, EOFError, ValueError) as error:
        raise InvalidOption(f"{where.name} holds no recorded states: {error}") from error
