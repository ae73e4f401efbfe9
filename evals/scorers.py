"""The evaluators: each takes a case and what came of it, and returns a value with a reason.

`README.md` holds the exact definitions. A case that crashed, or did not come to its end, is right
in nothing it was asked: an error is never the same as "no follow-up needed".
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
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
        key = (call["tool_name"], without_defaults(call["args"]))
        too_many = mode != "superset" and left[call["tool_name"]] <= 0
        needless += too_many or key in answered
        left[call["tool_name"]] -= 1
        if call["success"]:
            answered.append(key)
    return needless


# --- argument quality ---


def without_defaults(args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The arguments that make a difference: one at its default is as good as left out."""
    return {k: v for k, v in args.items() if k not in DEFAULTS or v != DEFAULTS[k]}


def argument(given: Mapping[str, JsonValue], name: str, expected: JsonValue) -> ArgumentIs:
    """How one argument of one call stands."""
    if name not in given:
        if expected is None or expected == DEFAULTS.get(name):
            return "right"
        return "defaulted" if name in DEFAULTS else "missing"
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
    stated = (
        case.expected_status, case.expected_stop_reason, case.expected_needs_followup,
        case.expected_priority, case.expected_question, case.expected_approval,
        case.expected_tasks, case.expected_must_contain or None, case.must_not_contain or None,
    )  # fmt: skip
    if all(one is None for one in stated):
        return None
    run = _run(episode)
    verdict = run.verdict
    problems: list[str] = []
    if case.expected_status is None:
        undetermined = case.expected_needs_followup == "undetermined"
        judged = case.expected_needs_followup is not None or case.expected_priority is not None
        if not undetermined and (run.status == "failed" or (judged and run.status != "completed")):
            problems.append(f"the run ended as {run.status} ({run.stop_reason})")

    def expect(name: str, got: object, wanted: object) -> None:
        if wanted is not None and got != wanted:
            problems.append(f"{name} is {got!r}, expected {wanted!r}")

    expect("status", run.status, case.expected_status)
    expect("stop reason", run.stop_reason, case.expected_stop_reason)
    if case.expected_needs_followup is not None:
        needs = verdict["needs_followup"] if verdict else "no verdict"
        expect("needs_followup", "undetermined" if needs is None else needs,
               case.expected_needs_followup)  # fmt: skip
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
        if episode.approvals:
            shown = episode.approvals[0]["args"]
            problems += _differences("the write that was shown", shown, case.expected_approval)
        else:
            problems.append("no write was put before a person")
    if case.expected_tasks is not None:
        expect("number of tasks", len(episode.tasks), len(case.expected_tasks))
        for task, wanted_task in zip(episode.tasks, case.expected_tasks, strict=False):
            problems += _differences("the task", task, wanted_task)
    return _score("task_completion", problems)


def _differences(what: str, got: Mapping[str, Any], wanted: Mapping[str, JsonValue]) -> list[str]:
    """Fields that are not as expected; null expects that there is nothing."""
    return [
        f"{name} of {what} is {got.get(name)!r}, expected {value!r}"
        for name, value in wanted.items()
        if got.get(name) != value
    ]


# --- groundedness ---

_CITED = re.compile(r"\[(e[0-9]+(?:\s*[,，、]\s*e[0-9]+)*)\]")
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_ID = re.compile(r"[A-Za-z]+[_-][A-Za-z0-9_-]*[0-9a-f][A-Za-z0-9_-]*")
"""Ids of customers, tickets, orders and tasks: their digits count nothing."""
_CREATED = re.compile(
    r"\b(?:created|made|opened|set up|scheduled)\b[^.\n]{0,40}\b(?:task|reminder)"
    r"|\b(?:task|reminder)\b[^.\n]{0,40}\b(?:created|made|set up)\b"
    r"|(?:创建|新建|建立|建好)了?[^。，\n]{0,10}任务|任务[^。，\n]{0,4}(?:已|被)[^。，\n]{0,3}(?:创建|建)",
    re.IGNORECASE,
)
_NOT_CREATED = re.compile(
    r"\bno\b[^.\n]{0,20}\b(?:task|reminder)\b[^.\n]{0,20}|creating the follow-up task failed"
    r"|(?:没有|没能|未能|未)\s*(?:创建|新建|建立)[^。，\n]{0,10}任务|(?:创建|新建|建立)[^。，\n]{0,10}任务失败",
    re.IGNORECASE,
)


def numbers(text: str) -> set[Decimal]:
    """The numbers in a text, however they are written in digits; those of ids are none."""
    plain = _ID.sub(" ", _CITED.sub(" ", unicodedata.normalize("NFKC", text)))
    return {Decimal(found.replace(",", "")) for found in _NUMBER.findall(plain) if _decimal(found)}


def _decimal(text: str) -> bool:
    return text.count(".") <= 1


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
    cited = [
        one.strip() for many in _CITED.findall(run.answer) for one in re.split("[,，、]", many)
    ]
    for reason in run.verdict["reasons"] if run.verdict else []:
        cited += reason["evidence_ids"]
        if not reason["evidence_ids"]:
            problems.append(f"a reason without evidence: {reason['text']}")
    problems += [f"{one} is cited, and there is none" for one in sorted({*cited} - {*known})]
    if run.verdict and run.verdict["needs_followup"] is not None and not cited:
        problems.append("a verdict that cites nothing")
    stand = numbers(" ".join(_record(run))) | {Decimal(DEFAULT_DAYS)}
    problems += [
        f"{one} stands nowhere in the record" for one in sorted(numbers(run.answer) - stand)
    ]
    for line in run.answer.splitlines():
        ids = [one.strip() for many in _CITED.findall(line) for one in re.split("[,，、]", many)]
        if ids and all(one in known for one in ids):
            says = numbers(" ".join(known[one]["summary"] for one in ids))
            says |= {n for one in ids for n in numbers(str(calls[known[one]["call_id"]]["args"]))}
            problems += [
                f"{one} does not stand in {', '.join(ids)}" for one in sorted(numbers(line) - says)
            ]
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
    names = [customer.name for customer in case.company().customers.values()]
    names += [t.subject for c in case.company().customers.values() for t in c.tickets]
    problems = []
    for text in texts:
        for line in text.splitlines():
            rest = _NEUTRAL.sub("", line)
            for name in names:
                rest = rest.replace(name, "")
            for word in re.findall(r"[“'\"]([^”'\"]+)[”'\"]", rest):
                if word in quoted:
                    rest = rest.replace(word, "")
            if _other_language(rest, case.language):
                problems.append(f"not in {case.language}: {line[:80]}")
    return _score("language", problems)


def _other_language(text: str, wanted: str) -> bool:
    """Whether a line is in another language than Chinese or English, as wanted; one without any
    word is in none."""
    if not re.search(r"[^\W\d_]{2,}", text):
        return False
    if wanted == "zh":
        return language_of(text) != "zh"
    return any(c.isalpha() and "LATIN" not in unicodedata.name(c, "") for c in text)


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
