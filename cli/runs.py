"""The commands that run the graph, or read what it has stored."""

import asyncio
import json
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from followup_agent.cli.output import console, notice, print_json
from followup_agent.cli.start import FAILED, OK, TERMINATED, WAITING, imports_done
from followup_agent.service.agent import FollowupAgent
from followup_agent.service.errors import InvalidOption, UsageError
from followup_agent.service.events import (
    ApprovalAsked,
    DecisionMade,
    QuestionAsked,
    RunEvent,
    RunStopped,
    ToolCalled,
)
from followup_agent.service.history import Checkpoint
from followup_agent.service.run import Run
from followup_agent.service.settings import load_settings
from followup_agent.service.wiring import choose_planner
from followup_agent.tools.outcome import Fact

imports_done()

T = TypeVar("T")

_MARKS = {"found": ("✓", "green"), "empty": ("○", "yellow"), "failed": ("✗", "red")}


def ask(
    goal: str,
    *,
    thread: str | None,
    max_steps: int | None,
    as_of: str | None,
    deadline_s: float | None,
    planner: str | None,
    log: str | None,
    as_json: bool,
    home: Path | None,
) -> int:
    """One run."""
    notice(choose_planner(load_settings(home=home, planner=planner)))
    return _drive(
        lambda agent: agent.astream(
            goal, thread_id=thread, max_steps=max_steps, as_of=as_of, deadline_s=deadline_s
        ),
        as_json=as_json,
        log=log,
        home=home,
        planner=planner,
    )


def answer(
    thread: str,
    text: str,
    question: str | None,
    *,
    log: str | None,
    as_json: bool,
    home: Path | None,
) -> int:
    """Answer a question."""
    return _drive(
        lambda agent: agent.astream_answer(thread, text, question_id=question),
        as_json=as_json,
        log=log,
        home=home,
    )


def approve(
    thread: str,
    edit: str | None,
    approval: str | None,
    *,
    log: str | None,
    as_json: bool,
    home: Path | None,
) -> int:
    """Approve a write."""
    changes = None if edit is None else _json_object("--edit", edit)
    return _drive(
        lambda agent: agent.astream_decision(
            thread, approve=True, edit=changes, approval_id=approval
        ),
        as_json=as_json,
        log=log,
        home=home,
    )


def reject(
    thread: str,
    reason: str,
    approval: str | None,
    *,
    log: str | None,
    as_json: bool,
    home: Path | None,
) -> int:
    """Reject a write."""
    return _drive(
        lambda agent: agent.astream_decision(
            thread, approve=False, reason=reason, approval_id=approval
        ),
        as_json=as_json,
        log=log,
        home=home,
    )


def cancel(thread: str, *, log: str | None, as_json: bool, home: Path | None) -> int:
    """Drop what is pending."""
    return _drive(lambda agent: agent.astream_cancel(thread), as_json=as_json, log=log, home=home)


def resume(thread: str, *, log: str | None, as_json: bool, home: Path | None) -> int:
    """Go on with a run that was cut off."""
    return _drive(lambda agent: agent.astream_resume(thread), as_json=as_json, log=log, home=home)


def show(thread: str, *, checkpoints: bool, as_json: bool, home: Path | None) -> int:
    """One run as a timeline, or the checkpoints of its thread."""
    return asyncio.run(_show(thread, checkpoints=checkpoints, as_json=as_json, home=home))


async def _show(thread: str, *, checkpoints: bool, as_json: bool, home: Path | None) -> int:
    async with FollowupAgent.aopen(home=home, planner="rules") as agent:  # decides nothing
        if checkpoints:
            return _print_checkpoints(await agent.acheckpoints(thread), as_json=as_json)
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
        for call in step.calls:
            own = {k: f for k, f in step.new_facts.items() if f["call_id"] == call["call_id"]}
            _print_edit(out, step.decision, call)
            _print_call(out, call, own)
    out.print()
    _print_end(out, run)
    _print_view(out, run)
    _print_usage(out, run)
    return OK


def _print_checkpoints(checkpoints: list[Checkpoint], *, as_json: bool) -> int:
    if as_json:
        print_json([checkpoint.model_dump(mode="json") for checkpoint in checkpoints])
        return OK
    out = console()
    out.print("superstep  step  status       next", style="bold")
    for point in checkpoints:
        following = ", ".join(point.next) + (" (waits)" if point.waits else "")
        out.print(
            f"{point.superstep:>9}  {point.step:>4}  {point.status or '-':<11}  {following or 'end'}"
        )
    return OK


def fork(thread: str, at: int, edit: str | None, *, as_json: bool, home: Path | None) -> int:
    """A new thread from an old one."""
    changes = None if edit is None else _json_object("--edit", edit)
    run = _with_agent(home, lambda agent: agent.afork(thread, at, edit=changes))
    if as_json:
        print_json(run.model_dump(mode="json"))
    else:
        console().print(
            f"{run.thread_id} is {thread} as it was after step {at}. "
            f"Go on: followup resume {run.thread_id}"
        )
    return OK


def export(names: list[str], *, out: Path | None, as_json: bool, home: Path | None) -> int:
    """Threads as JSON lines, or as one JSON list."""

    async def read(agent: FollowupAgent) -> list[dict[str, Any]]:
        wanted = names or [entry.thread_id for entry in await agent.athreads()]
        return [await agent.aexport(name) for name in wanted]

    documents = _with_agent(home, read)
    if out is None and as_json:
        print_json(documents)
        return OK
    lines = "".join(
        json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n" for document in documents
    )
    if out is None:
        sys.stdout.write(lines)
        return OK
    try:
        out.write_text(lines, encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"cannot write {out}: {error.strerror}") from error
    if as_json:
        print_json({"exported": len(documents), "file": str(out)})
    else:
        notice(f"{len(documents)} threads written to {out}")
    return OK


def prune(older_than: str, *, as_json: bool, home: Path | None) -> int:
    """Forget old threads."""
    age = _age(older_than)
    pruned = _with_agent(home, lambda agent: agent.aprune(age))
    if as_json:
        print_json({"pruned": pruned})
    else:
        console().print(f"{len(pruned)} threads forgotten")
    return OK


def _with_agent(home: Path | None, act: Callable[[FollowupAgent], Awaitable[T]]) -> T:
    async def run() -> T:
        async with FollowupAgent.aopen(home=home, planner="rules") as agent:  # decides nothing
            return await act(agent)

    return asyncio.run(run())


def _json_object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidOption(
            f'{option} is not JSON ({error}): write e.g. \'{{"note": "…"}}\''
        ) from error
    if not isinstance(value, dict):
        raise InvalidOption(f'{option} must be a JSON object, such as \'{{"note": "…"}}\'')
    return value


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,5})([dhm])", text.strip())
    if match is None:
        raise InvalidOption(f"--older-than is {text!r}: write e.g. 30d, 12h or 45m")
    units = {"d": "days", "h": "hours", "m": "minutes"}
    return timedelta(**{units[match[2]]: int(match[1])})


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
        with suppress(NotImplementedError):  # Windows
            # Asked to go: the current step ends, and the run can go on elsewhere.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, agent.drain)
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
        _print_usage(out, run)
    if run.status == "running":
        notice(f"stopped; go on with: followup resume {shlex.quote(run.thread_id)}")
        return TERMINATED
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
        out.print(f"{step:>3}  the planner gave no usable decision", style="red")
    elif decision["type"] == "tool":
        args = ", ".join(f"{name}={value}" for name, value in decision["args"].items())
        out.print(f"{step:>3}  {decision['tool_name']}({args})", style="bold")
        out.print(f"     {decision['reason']}", style="dim")
    else:
        out.print(f"{step:>3}  {decision['type']}: {decision['reason']}", style="bold")


def _print_edit(out: Console, decision: Mapping[str, Any] | None, call: Mapping[str, Any]) -> None:
    """The arguments with which the decided call was made, where a reviewer has changed them."""
    if decision is None or decision.get("tool_name") != call["tool_name"]:
        return
    before, after = decision["args"], call["args"]
    changed = [f"{key}={value}" for key, value in after.items() if before.get(key) != value]
    changed += [f"no {key}" for key in before if key not in after]
    if changed:
        out.print(f"     as edited: {', '.join(changed)}")


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


def _print_usage(out: Console, run: Run) -> None:
    """What a model cost; nothing for the rules."""
    usage = run.usage
    if not usage["model_calls"]:
        return
    cost = f"cost {usage['cost']:.6f}" if usage["cost"] else "cost unknown (no price for it)"
    out.print(
        f"{run.planner}: {usage['model_calls']} calls, {usage['input_tokens']} input tokens "
        f"({usage['cached_input_tokens']} cached), {usage['output_tokens']} output tokens, {cost}",
        style="dim",
    )


def _print_view(out: Console, run: Run) -> None:
    """A model's own answer, where the record does not bear it out."""
    view = run.model_view
    if view is None or view["used"]:
        return
    out.print(f"\n{run.planner} would have said (not used): {view['draft']}", style="dim")
    for disagreement in view["disagreements"]:
        out.print(f"  - {disagreement}", style="yellow")


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
        for remark in run.approval["remarks"]:
            out.print(f"    ! {remark}", style="yellow")
        for item in run.evidence:
            if item["id"] in run.approval["evidence_ids"]:
                out.print(f"    [{item['id']}] {item['summary']}", style="dim")
        yes, no = ("同意：", "拒绝：") if zh else ("Approve: ", "Reject: ")
        out.print(f"{yes}followup approve {thread}    {no}followup reject {thread}")
    else:
        out.print(run.answer or "")
