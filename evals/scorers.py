"""The evaluators: each takes a case and what came of it, and returns a value with a reason.

`README.md` holds the exact definitions. A case that crashed, or did not come to its end, is right
in nothing it was asked: an error is never the same as "no follow-up needed".
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from openevals.trajectory.match import create_trajectory_match_evaluator
from pydantic import BaseModel, JsonValue

from followup_agent.evals.cases import Case, Match
from followup_agent.evals.subject import Episode
from followup_agent.goals.limits import DEFAULT_DAYS
from followup_agent.goals.text import language_of, normal_form
from followup_agent.service.run import Run
from followup_agent.state import ToolCallRecord

ArgumentIs = Literal["right", "defaulted", "wrong", "missing"]
DEFAULTS: Mapping[str, JsonValue] = {"days": DEFAULT_DAYS, "until": None}
"""What an argument is when nobody has thought about it."""


class Score(BaseModel):
    """What one evaluator says of one episode."""

    eval: str
    passed: bool
    value: float
    """0 to 1; what counts for the gate is `passed`."""
    reason: str
    errored: bool = False
    """The episode, or the evaluator, broke: not passed, and counted as an error."""
    details: dict[str, float] = {}


Scorer = Callable[[Case, Episode], Score | None]
"""None: the case does not ask it."""


def score(case: Case, episode: Episode, scorers: Mapping[str, Scorer] | None = None) -> list[Score]:
    """Every evaluator's score; one that raises gives an errored score, and none vanishes."""
    scores = []
    for name, scorer in (SCORERS if scorers is None else scorers).items():
        try:
            given = scorer(case, episode)
            if given is None:
                continue
            broken = ""
        except Exception as error:
            given = None
            broken = f"the evaluator failed: {type(error).__name__}: {error}"
        if episode.crash is not None:
            broken = f"{episode.crash.kind}: {episode.crash.message}"
        if given is None or broken:
            given = Score(eval=name, passed=False, value=0.0, reason=broken, errored=True)
        scores.append(given.model_copy(update={"eval": name}))
    return scores


def _score(
    name: str, problems: Sequence[str], value: float | None = None, **details: float
) -> Score:
    """Passed when there is no problem."""
    passed = not problems
    worth = (1.0 if passed else 0.0) if value is None else value
    return Score(
        eval=name, passed=passed, value=worth, reason="; ".join(problems) or "as expected",
        details=details,
    )  # fmt: skip


def _run(episode: Episode) -> Run:
    if episode.run is None:
        raise ValueError("the case came to no result")
    return episode.run


# --- tool selection ---

_MODES = {
    "exact_order": "strict",
    "any_order": "unordered",
    "subset": "subset",
    "superset": "superset",
}
_MATCHERS = {
    mode: create_trajectory_match_evaluator(
        trajectory_match_mode=theirs,  # type: ignore[arg-type] # one of their four words
        tool_args_match_mode="ignore",
    )
    for mode, theirs in _MODES.items()
}


def messages(names: Iterable[str]) -> list[dict[str, Any]]:
    """Tool calls as OpenAI messages, one call each: what openevals' matchers read."""
    return [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": f"c{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": "{}"},
                }
            ],
        }
        for number, name in enumerate(names, start=1)
    ]


def matches(called: Sequence[str], expected: Sequence[str], mode: Match) -> bool:
    """Whether the calls are the expected ones, in this mode."""
    result = _MATCHERS[mode](outputs=messages(called), reference_outputs=messages(expected))
    return bool(result["score"])  # type: ignore[call-overload] # one result, of one key


def calls_of(episode: Episode) -> list[ToolCallRecord]:
    """The calls of the last run, those included that were blocked or turned down."""
    return _run(episode).tool_history


def tool_selection(case: Case, episode: Episode) -> Score | None:
    """Were the right tools chosen: precision, recall, order, needless calls."""
    if case.expected_tools is None:
        return None
    called = [call["tool_name"] for call in calls_of(episode)]
    expected = case.expected_tools
    hits = (Counter(called) & Counter(expected)).total()
    precision = hits / len(called) if called else float(not expected)
    recall = hits / len(expected) if expected else 1.0
    needless = needless_calls(calls_of(episode), expected, case.tools_match)
    problems = []
    if not matches(called, expected, case.tools_match):
        problems.append(f"called {called}, expected {expected} ({case.tools_match})")
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return _score(
        "tool_selection", problems, 1.0 if not problems else min(f1, 0.99),
        precision=precision, recall=recall, needless=needless,
        in_order=float(called[: len(expected)] == expected),
    )  # fmt: skip


def needless_calls(
    calls: Sequence[ToolCallRecord], expected: Sequence[str], mode: Match = "exact_order"
) -> int:
    """Calls that had been answered before, and, but for `superset`, calls of a tool beyond those
    expected of it."""
    left = Counter(expected)
    needless = 0
    answered: list[tuple[str, Any]] = []
    for call in calls:
        key = (call["tool_name"], call["args"])
        too_many = mode != "superset" and left[call["tool_name"]] <= 0
        needless += too_many or key in answered
        left[call["tool_name"]] -= 1
        if call["success"]:
            answered.append(key)
    return needless


# --- argument quality ---


def argument(given: Mapping[str, JsonValue], name: str, expected: JsonValue) -> ArgumentIs:
    """How one argument of one call stands."""
    if name not in given:
        return "right" if expected is None else "missing"
    value = given[name]
    if value == expected and type(value) is type(expected):
        return "right"
    if name in DEFAULTS and value == DEFAULTS[name]:
        return "defaulted"
    return "wrong"


def argument_quality(case: Case, episode: Episode) -> Score | None:
    """Were the arguments right: each one right, defaulted though told otherwise, wrong, missing."""
    if not case.expected_args:
        return None
    counts: Counter[ArgumentIs] = Counter()
    problems = []
    for tool_name, expected in case.expected_args.items():
        calls = [call["args"] for call in calls_of(episode) if call["tool_name"] == tool_name]
        judged = [{name: argument(args, name, want) for name, want in expected.items()}
                  for args in calls or [{}]]  # fmt: skip
        best = max(judged, key=lambda verdicts: list(verdicts.values()).count("right"))
        given = (calls or [{}])[judged.index(best)]
        if not calls:
            best = dict.fromkeys(expected, "missing")
        counts.update(best.values())
        problems += [
            f"{tool_name}.{name} is {how}: {given.get(name)!r}, expected {expected[name]!r}"
            for name, how in best.items()
            if how != "right"
        ]
    value = counts["right"] / counts.total()
    kinds: tuple[ArgumentIs, ...] = ("right", "defaulted", "wrong", "missing")
    return _score("argument_quality", problems, value, **{kind: counts[kind] for kind in kinds})


# --- task completion ---


def task_completion(case: Case, episode: Episode) -> Score | None:
    """Did it do what was asked: judged by how it ended, by the verdict, and by the database."""
    run = _run(episode)
    verdict = run.verdict
    problems: list[str] = []

    def expect(name: str, got: object, wanted: object) -> None:
        if wanted is not None and got != wanted:
            problems.append(f"{name} is {got!r}, expected {wanted!r}")

    expect("status", run.status, case.expected_status)
    expect("stop reason", run.stop_reason, case.expected_stop_reason)
    if case.expected_needs_followup is not None:
        needs = verdict["needs_followup"] if verdict else "no verdict"
        expect("needs_followup", "undetermined" if needs is None else needs,
               case.expected_needs_followup)  # fmt: skip
        if run.status != "completed" and case.expected_status is None:
            problems.append(f"the run ended as {run.status} ({run.stop_reason})")
    expect("priority", verdict["priority"] if verdict else None, case.expected_priority)
    text = run.answer or ""
    problems += [f"the answer lacks {w!r}" for w in case.expected_must_contain if w not in text]
    problems += [f"the answer says {w!r}" for w in case.must_not_contain if w in text]
    if case.expected_question is not None:
        asked = episode.questions[0] if episode.questions else ""
        problems += [f"the question lacks {w!r}" for w in case.expected_question if w not in asked]
        if not asked:
            problems.append("nothing was asked")
    if case.expected_approval is not None:
        shown = episode.approvals[0]["args"] if episode.approvals else {}
        for name, wanted in case.expected_approval.items():
            expect(f"{name} of the write that was shown", shown.get(name), wanted)
        if not episode.approvals:
            problems.append("no write was put before a person")
    if case.expected_tasks is not None:
        expect("number of tasks", len(episode.tasks), len(case.expected_tasks))
        for task, wanted_task in zip(episode.tasks, case.expected_tasks, strict=False):
            for column, wanted in wanted_task.items():
                expect(f"{column} of the task", task.get(column), wanted)
    return _score("task_completion", problems)


# --- groundedness ---

_CITED = re.compile(r"\[(e[0-9]+)\]")
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_CREATED = re.compile(r"已创建跟进任务|task (?:was |has been |had been )?created", re.IGNORECASE)
_NOT_CREATED = re.compile(r"no follow-up task was created|没有创建跟进任务", re.IGNORECASE)


def groundedness(case: Case, episode: Episode) -> Score | None:
    """Does every citation, number and claim of the answer stand in the record."""
    run = _run(episode)
    if run.answer is None or run.waiting_for is not None:
        return None
    calls = {call["call_id"]: call for call in run.tool_history}
    known = {item["id"]: item for item in run.evidence}
    answered = {call_id for call_id, call in calls.items() if call["success"]}
    problems = [
        f"evidence {item['id']} is of call {item['call_id']}, which gave no answer"
        for item in run.evidence
        if item["call_id"] not in answered
    ]
    cited = [*_CITED.findall(run.answer)]
    for reason in run.verdict["reasons"] if run.verdict else []:
        cited += reason["evidence_ids"]
        if not reason["evidence_ids"]:
            problems.append(f"a reason without evidence: {reason['text']}")
    problems += [f"{one} is cited, and there is none" for one in sorted({*cited} - {*known})]
    if run.verdict and run.verdict["needs_followup"] is not None and not cited:
        problems.append("a verdict that cites nothing")
    record = " ".join(_record(run))
    stand = set(_NUMBER.findall(record)) | {str(DEFAULT_DAYS)}
    said = set(_NUMBER.findall(_CITED.sub("", run.answer)))
    problems += [f"{number} stands nowhere in the record" for number in sorted(said - stand)]
    wrote = any(
        call["tool_name"] == "send_followup_task" and call["success"] for call in calls.values()
    )
    claims = _CREATED.search(_NOT_CREATED.sub("", run.answer)) is not None
    if claims and not wrote:
        problems.append("the answer claims a task that no call has created")
    return _score("groundedness", problems)


def _record(run: Run) -> list[str]:
    """Every text of a run in which a number of its answer may stand."""
    return [
        run.user_goal,
        normal_form(run.user_goal),
        *(item["summary"] for item in run.evidence),
        *(str(value) for call in run.tool_history for value in call["args"].values()),
        *(call["result_summary"] for call in run.tool_history),
        *(str(fact["value"]) for facts in run.facts.values() for fact in facts.values()),
    ]


# --- language ---

_NEUTRAL = re.compile(r"\[e[0-9]+\]|[A-Za-z]+_[A-Za-z0-9_]+|[A-Z]+-[0-9]+|\b[A-Z]{3}\b")
"""Citations, ids, tool names and currencies are the same in every language."""


def language(case: Case, episode: Episode) -> Score | None:
    """Is everything that the user reads in the goal's language."""
    run = _run(episode)
    texts = [*episode.questions, *([run.answer] if run.answer else [])]
    if not texts:
        return None
    quoted = case.input + "".join(turn.answer or turn.goal or "" for turn in case.turns)
    problems = []
    for text in texts:
        for line in text.splitlines():
            rest = _NEUTRAL.sub("", line)
            for word in re.findall(r"[“'\"]([^”'\"]+)[”'\"]", rest):
                if word in quoted:
                    rest = rest.replace(word, "")
            if re.search(r"[^\W\d_]{2,}", rest) and language_of(rest) != case.language:
                problems.append(f"not in {case.language}: {line[:80]}")
    return _score("language", problems)


SCORERS: Mapping[str, Scorer] = {
    "tool_selection": tool_selection,
    "argument_quality": argument_quality,
    "task_completion": task_completion,
    "groundedness": groundedness,
    "language": language,
}
"""In the order they are reported."""


def measures(episode: Episode) -> dict[str, float]:
    """What it took: reported, never judged."""
    run = episode.run
    usage = run.usage if run else None
    return {
        "steps": float(len(episode.decisions)),
        "tool_calls": float(len(run.tool_history)) if run else 0.0,
        "seconds": episode.seconds,
        "model_calls": float(usage["model_calls"]) if usage else 0.0,
        "tokens": float(usage["input_tokens"] + usage["output_tokens"]) if usage else 0.0,
        "cost": usage["cost"] if usage else 0.0,
    }
