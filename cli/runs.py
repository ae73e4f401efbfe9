"""The commands that run the graph: ask, answer, approve, reject, cancel, show."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from followup_agent.cli.output import console, notice, print_json
from followup_agent.cli.start import FAILED, OK, WAITING, imports_done
from followup_agent.service.agent import FollowupAgent
from followup_agent.service.errors import UsageError
from followup_agent.service.events import (
    ApprovalAsked,
    DecisionMade,
    QuestionAsked,
    RunEvent,
    RunStopped,
    ToolCalled,
)
from followup_agent.service.run import Run
from followup_agent.service.settings import load_settings
from followup_agent.service.wiring import choose_planner
from followup_agent.tools.outcome import Fact

imports_done()

_MARKS = {"found": ("✓", "green"), "empty": ("○", "yellow"), "failed": ("✗", "red")}


def ask(
    goal: str,
    *,
    thread: str | None,
    max_steps: int | None,
    as_of: str | None,
    planner: str | None,
    log: str | None,
    as_json: bool,
    home: Path | None,
) -> int:
    """One run."""
    notice(choose_planner(load_settings(home=home, planner=planner)))
    return _drive(
        lambda agent: agent.astream(goal, thread_id=thread, max_steps=max_steps, as_of=as_of),
        as_json=as_json,
        log=log,
        home=home,
        planner=planner,
    )


def answer(thread: str, text: str, *, log: str | None, as_json: bool, home: Path | None) -> int:
    """Answer a question."""
    return _drive(
        lambda agent: agent.astream_answer(thread, text), as_json=as_json, log=log, home=home
    )


def decide(
    thread: str, *, approve: bool, reason: str, log: str | None, as_json: bool, home: Path | None
) -> int:
    """Approve or reject a write."""
    return _drive(
        lambda agent: agent.astream_decision(thread, approve=approve, reason=reason),
        as_json=as_json,
        log=log,
        home=home,
    )


def cancel(thread: str, *, log: str | None, as_json: bool, home: Path | None) -> int:
    """Drop what is pending."""
    return _drive(lambda agent: agent.astream_cancel(thread), as_json=as_json, log=log, home=home)


def show(thread: str, *, as_json: bool, home: Path | None) -> int:
    """One run as a timeline."""
    return asyncio.run(_show(thread, as_json=as_json, home=home))


async def _show(thread: str, *, as_json: bool, home: Path | None) -> int:
    async with FollowupAgent.aopen(home=home) as agent:
        run, steps = await agent.aget(thread), await agent.atimeline(thread)
    if as_json:
        timeline = [step.model_dump(mode="json") for step in steps]
        print_json({**run.model_dump(mode="json"), "timeline": timeline})
        return OK
    out = console()
    out.print(f"{run.user_goal}", style="bold")
    out.print(f"{run.thread_id}  {run.status}  {run.stop_reason or ''}  as of {run.as_of}")
    for step in steps:
        out.print(f"\n{step.at:%H:%M:%S}", style="dim", end="")
        _print_decision(out, step.step, step.decision)
        if step.call is not None:
            _print_call(out, step.call, step.new_facts)
    out.print()
    _print_end(out, run)
    return OK


def _drive(
    start: Callable[[FollowupAgent], AsyncIterator[RunEvent]],
    *,
    as_json: bool,
    log: str | None,
    home: Path | None,
    planner: str | None = None,
) -> int:
    return asyncio.run(_follow(start, as_json, log, home=home, planner=planner))


async def _follow(
    start: Callable[[FollowupAgent], AsyncIterator[RunEvent]],
    as_json: bool,
    log: str | None,
    **settings: Any,
) -> int:
    """Show the steps as they happen, then the result; return the exit code."""
    if log not in (None, "-"):
        raise UsageError(f"--log {log}: only `--log -` (stderr) is known; the file is in the home")
    out = console()
    run: Run | None = None
    async with FollowupAgent.aopen(log_to_stderr=log == "-", **settings) as agent:
        async for event in start(agent):
            if isinstance(event, RunStopped):
                run = event.run
            elif not as_json:
                _print_event(out, event)
    if run is None:
        return FAILED
    if as_json:
        print_json(run.model_dump(mode="json"))
    else:
        out.print()
        _print_end(out, run)
    return {"completed": OK, "needs_input": WAITING}.get(run.status, FAILED)


def _print_event(out: Console, event: RunEvent) -> None:
    match event:
        case DecisionMade():
            _print_decision(out, event.step, event.decision)
        case ToolCalled():
            facts = {key: fact for own in event.new_facts.values() for key, fact in own.items()}
            _print_call(out, event.record, facts)
        case QuestionAsked() | ApprovalAsked() | RunStopped():
            pass  # printed once, at the end


def _print_decision(out: Console, step: int, decision: Mapping[str, Any] | None) -> None:
    if decision is None:
        out.print(f"{step:>3}  the planner's reply was unusable", style="red")
    elif decision["type"] == "tool":
        args = ", ".join(f"{name}={value}" for name, value in decision["args"].items())
        out.print(f"{step:>3}  {decision['tool_name']}({args})", style="bold")
        out.print(f"     {decision['reason']}", style="dim")
    else:
        out.print(f"{step:>3}  {decision['type']}: {decision['reason']}", style="bold")


def _print_call(out: Console, call: Mapping[str, Any], facts: Mapping[str, Fact]) -> None:
    mark, style = _MARKS[call["outcome"]]
    kind = f" {call['failure_kind']}" if call["failure_kind"] else ""
    summary = call["result_summary"].removeprefix("ERROR: ")
    out.print(
        f"     {mark} {call['outcome']}{kind}: {summary} ({call['duration_ms']} ms)",
        style=style,
    )
    if facts:
        known = ", ".join(f"{key}={fact['value']}" for key, fact in facts.items())
        out.print(f"       {known}", style="dim")


def _print_end(out: Console, run: Run) -> None:
    zh, thread = run.language == "zh", shlex.quote(run.thread_id)
    if run.waiting_for == "answer":
        out.print(run.pending_questions[0]["question"], style="bold")
        reply, drop = ("回答：", "取消：") if zh else ("Answer: ", "Cancel: ")
        out.print(f"{reply}followup answer {thread} TEXT    {drop}followup cancel {thread}")
    elif run.approval is not None:
        title = (
            "等待审批，同意后才会执行" if zh else "Waits for approval; it runs only when approved"
        )
        out.print(f"{title}: {run.approval['tool_name']}", style="bold")
        for name, value in run.approval["args"].items():
            out.print(f"    {name}: {value}")
        for item in run.evidence:
            if item["id"] in run.approval["evidence_ids"]:
                out.print(f"    [{item['id']}] {item['summary']}", style="dim")
        yes, no = ("同意：", "拒绝：") if zh else ("Approve: ", "Reject: ")
        out.print(f"{yes}followup approve {thread}    {no}followup reject {thread}")
    else:
        out.print(run.answer or "")
