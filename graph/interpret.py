"""Ask a tool file what a result means: the step from plain JSON to facts and evidence."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_core import to_json

from followup_agent.state import AgentState, Evidence, Quote
from followup_agent.tools.definition import ToolDefinition
from followup_agent.tools.outcome import Fact

MAX_QUOTES = 10
MAX_QUOTE_CHARS = 800
"""Kept of what customers wrote: enough to see what it is about; the rest stays where it is."""


class Meaning(NamedTuple):
    """What one result means."""

    facts: dict[str, Fact]
    evidence: list[Evidence]
    quotes: list[Quote]


def interpret(
    tool: ToolDefinition,
    args: Mapping[str, Any],
    result: Mapping[str, Any],
    state: AgentState,
    call_id: str,
    *,
    first_evidence: int = 1,
) -> Meaning:
    """What the tool file says these arguments and this result mean.

    Evidence is numbered from `first_evidence`.
    """
    # Stored as plain JSON, so that a recorded run can be interpreted again by a newer tool file.
    typed_args = tool.parse_args(args)
    typed_result = tool.result.model_validate_json(to_json(result))
    facts = {
        key: Fact(
            value=draft.value,
            unit=draft.unit,
            window_days=draft.window_days,
            call_id=call_id,
            as_of=state["as_of"],
        )
        for key, draft in tool.facts(typed_args, typed_result).items()
    }
    evidence = [
        Evidence(
            id=f"e{number}",
            call_id=call_id,
            source=tool.name,
            summary=draft.summary,
            confidence=draft.confidence,
        )
        for number, draft in enumerate(
            tool.evidence(typed_args, typed_result, state["language"]), start=first_evidence
        )
    ]
    quotes = [
        Quote(call_id=call_id, text=_cut(text))
        for text in tool.quotes(typed_args, typed_result)[:MAX_QUOTES]
    ]
    return Meaning(facts, evidence, quotes)


def _cut(text: str) -> str:
    over = len(text) - MAX_QUOTE_CHARS
    return text if over <= 0 else f"{text[:MAX_QUOTE_CHARS]}… [{over} characters left out]"
