"""Read the facts again on which an approval rests, before it is used. Interprets nothing else.

An approval is given on what was known when it was asked for. If that has changed, it is void: what
was read anew goes to the updater, and the write is put before a person again with the difference.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import NotRequired

from typing_extensions import TypedDict

from followup_agent.graph.context import AgentContext
from followup_agent.graph.gate import observe, tool_context_of
from followup_agent.graph.interpret import interpret
from followup_agent.state import AgentState, Approved, Observation, ToolCallRecord
from followup_agent.tools.outcome import Fact, Failed
from followup_agent.tools.runner import Prepared, ToolRun


class Update(TypedDict):
    """What this node writes."""

    approved: Approved
    observations: NotRequired[list[Observation]]


async def confirm_facts(state: AgentState, context: AgentContext) -> Update:
    """Let the approval stand, or make it void and say what has changed."""
    approved = state["approved"]
    if approved is None:
        raise TypeError("confirm_facts follows an approval")
    tool_context = tool_context_of(state, context)
    if not state["as_of_given"]:
        tool_context = replace(tool_context, as_of=tool_context.now)

    async def read(call: Prepared) -> ToolRun:
        return await context.tools.run(call, tool_context)

    calls = _load_bearing(state, context)
    runs = await asyncio.gather(*(read(call) for _, call in calls))
    changed: list[str] = []
    observations: list[Observation] = []
    for (record, call), run in zip(calls, runs, strict=True):
        if isinstance(run.outcome, Failed):
            kind = run.outcome.failure_kind
            changed.append(f"{call.tool.name}: could not be read again ({kind})")
            continue
        changed += _differences(state, record, call, run.outcome.result)
        observations.append(observe(call, run))
    if not changed:
        return Update(approved=approved)
    decision = state["decision"]
    context.log.emit(
        "agent.tool.blocked",
        decision={
            "type": "tool",
            "toolName": decision["tool_name"] if decision and decision["type"] == "tool" else None,
        },
        error={"kind": "not_approved", "message": f"the approval is void: {'; '.join(changed)}"},
        state={"status": "running"},
    )
    return Update(approved={**approved, "changed": changed}, observations=observations)


def _load_bearing(
    state: AgentState, context: AgentContext
) -> list[tuple[ToolCallRecord, Prepared]]:
    """The reads whose facts are the ones that hold now."""
    cited = {fact["call_id"] for facts in state["facts"].values() for fact in facts.values()}
    found = []
    for record in state["tool_history"]:
        if record["call_id"] not in cited or not record["success"]:
            continue
        call = context.tools.prepare(record["tool_name"], record["args"])
        if isinstance(call, Prepared) and call.tool.effect == "read":
            found.append((record, call))
    return found


def _differences(
    state: AgentState, record: ToolCallRecord, call: Prepared, result: Mapping[str, object]
) -> list[str]:
    """`key: before → now` for each fact of this call that has another value, or is gone (`?`)."""
    subject = call.tool.subject_of(call.canonical)
    before = state["facts"].get(subject or "", {})
    now = interpret(call.tool, call.canonical, result, state, record["call_id"]).facts
    return [
        f"{key}: {fact['value']} → {now[key]['value'] if key in now else '?'}"
        for key, fact in before.items()
        if fact["call_id"] == record["call_id"]
        and not _passes_by_itself(fact)
        and (key not in now or now[key]["value"] != fact["value"])
    ]


def _passes_by_itself(fact: Fact) -> bool:
    """How many days ago something was changes with the clock. What it was is compared instead."""
    return fact["unit"] == "days" and fact["window_days"] is None
