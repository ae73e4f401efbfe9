"""Try a model out: which output methods its server takes, and whether it decides sensibly.

Four requests for the methods and two more for the sense, each a small made-up round with one right
kind of decision. The answers say nothing of quality beyond that: `followup eval run` does.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from followup_agent.goals.goal import read_goal
from followup_agent.goals.ids import IdPattern
from followup_agent.goals.limits import Guidance, OutputMethod
from followup_agent.planners.chat import Chat, ChatFailed
from followup_agent.planners.forms import Forms
from followup_agent.planners.methods import METHODS
from followup_agent.planners.prompt import PromptMaker
from followup_agent.planners.reading import Misread, read_reply
from followup_agent.state import (
    NO_COUNTS,
    NO_LIMITS,
    NO_USAGE,
    AgentState,
    CallTool,
    Decision,
    Round,
    ToolCallRecord,
)

SUBJECT = "user_123"
PROBE_IDS = IdPattern()
_AS_OF = datetime(2026, 3, 2, tzinfo=UTC)

Found = Literal["right", "wrong", "unreadable", "not known", "failed"]


class MethodFound(BaseModel):
    """What one output method came to."""

    method: OutputMethod
    result: Found
    """right, wrong: a decision came, a sensible one or not. unreadable: what came is no decision.
    not known: the server does not take the method. failed: no reply at all."""
    detail: str
    milliseconds: int


class Probe(BaseModel):
    """What was found out about one model."""

    endpoint: str
    methods: list[MethodFound]
    advised_method: OutputMethod | None
    """The strictest that brought a decision; None when none did."""
    right: int
    """Of the rounds, how many were decided sensibly with that method."""
    rounds: int
    advised_guidance: Guidance
    """narrow when a round was decided wrongly."""


class _Subject(NamedTuple):
    """What is tried out."""

    chat: Chat
    forms: Forms
    prompts: PromptMaker


async def probe(chat: Chat, forms: Forms) -> Probe:
    """Try the model out; never raises for what its server does."""
    subject = _Subject(chat, forms, PromptMaker(forms, PROBE_IDS, UTC))
    rounds = _rounds()
    methods = [await _try(subject, method, *rounds[0]) for method in METHODS]
    usable = [found.method for found in methods if found.result in ("right", "wrong")]
    right = [found.method for found in methods if found.result == "right"]
    advised = next(iter(right or usable), None)
    results = [found.result for found in methods if found.method == advised]
    if advised is not None:
        results += [(await _try(subject, advised, *one)).result for one in rounds[1:]]
    return Probe(
        endpoint=chat.endpoint.shown,
        methods=methods,
        advised_method=advised,
        right=results.count("right"),
        rounds=len(rounds),
        advised_guidance="free" if results.count("right") == len(rounds) else "narrow",
    )


async def _try(
    subject: _Subject, method: OutputMethod, state: AgentState, wanted: str
) -> MethodFound:
    """One request, without repair."""
    started = time.monotonic()
    result, detail = await _reply(subject, method, state, wanted)
    elapsed = round((time.monotonic() - started) * 1000)
    return MethodFound(method=method, result=result, detail=detail, milliseconds=elapsed)


async def _reply(
    subject: _Subject, method: OutputMethod, state: AgentState, wanted: str
) -> tuple[Found, str]:
    prompt = subject.prompts.make(state, method)
    try:
        answer = await subject.chat.ask(
            prompt.messages, subject.forms.request(method), tokens=prompt.tokens
        )
        decision = read_reply(answer.reply, method, subject.forms)
    except ChatFailed as error:
        return ("not known" if error.trouble == "method" else "failed"), str(error)
    except Misread as error:
        return "unreadable", f"{error.fault}: {error}"
    sensible = _is_sensible(decision, wanted)
    return ("right" if sensible else "wrong"), _in_words(decision)


def _is_sensible(decision: Decision, wanted: str) -> bool:
    """The right kind of decision, and of a tool the right customer."""
    if decision["type"] != wanted:
        return False
    return decision["type"] != "tool" or decision["args"].get("user_id") == SUBJECT


def _in_words(decision: Decision) -> str:
    if decision["type"] != "tool":
        return decision["type"]
    args = ", ".join(f"{name}={value}" for name, value in decision["args"].items())
    return f"{decision['tool_name']}({args})"


def _rounds() -> list[tuple[AgentState, str]]:
    """Made-up rounds, each with the kind of decision that is right in it."""
    return [
        (_state(f"帮我判断 {SUBJECT} 最近是否需要重点跟进", "zh"), "tool"),
        (_state("Does this customer need priority follow-up?", "en"), "ask_user"),
        (_looked_at(_state(f"Does {SUBJECT} need priority follow-up?", "en")), "finish"),
    ]


def _state(goal: str, language: Literal["zh", "en"]) -> AgentState:
    fields: Mapping[str, Any] = {
        "user_goal": goal,
        "language": language,
        "as_of": _AS_OF.isoformat(),
        "parsed_goal": read_goal(goal, PROBE_IDS, _AS_OF, UTC),
        "current_step": 0,
        "max_steps": 8,
        "limits": NO_LIMITS,
        "counters": NO_COUNTS,
        "usage": NO_USAGE,
        "facts": {},
        "last_error": None,
    }
    lists: dict[str, list[Any]] = {
        name: [] for name in ("evidence", "tool_history", "rounds", "quotes", "answers")
    }
    return {**fields, **lists}  # type: ignore[typeddict-item] # all that a prompt reads


def _looked_at(state: AgentState) -> AgentState:
    """The state after every source has answered."""
    answers = {
        "get_user_activity": "Active on 6 of the last 7 days, 9 logins; last active today",
        "get_user_orders": "3 orders placed and 3 paid in the last 7 days; last payment 2 days ago",
        "get_open_tickets": "No open tickets",
    }
    rounds, calls = list[Round](), list[ToolCallRecord]()
    for step, (name, summary) in enumerate(answers.items(), start=1):
        args: dict[str, Any] = {"user_id": SUBJECT}
        if name != "get_open_tickets":
            args["days"] = 7
        decision: CallTool = {
            "type": "tool",
            "tool_name": name,
            "args": args,
            "reason": "not looked at yet",
            "expected_outcome": "what it says",
        }
        rounds.append(Round(step=step, decision=decision))
        calls.append(
            ToolCallRecord(
                call_id=f"c{step}",
                step=step,
                tool_name=name,
                args=args,
                outcome="found",
                failure_kind=None,
                result_summary=summary,
                success=True,
                attempts=1,
                duration_ms=1,
            )
        )
    return {**state, "rounds": rounds, "tool_history": calls, "current_step": len(calls)}
