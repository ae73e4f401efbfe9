"""Read what a person, or a chat client, sends to a run that waits.

Only a closed list of words approves, and only when nothing else is said: 不同意 contains 同意, and
every non-empty string is true in Python.
"""

from collections.abc import Mapping
from typing import Any

from followup_agent.goals.text import normal_form

APPROVING_WORDS = frozenset({"approve", "approved", "yes", "同意", "批准"})
TAKEN = {"taken": True}
"""Marks a human message that a run has taken as its goal or an answer: it is neither again."""
ANSWER: dict[str, Any] = {"type": "string", "minLength": 1, "description": "The answer, as text."}
"""JSON Schema of an answer, for clients that make a form of it."""
DECISIONS: dict[str, Any] = {
    "type": "object",
    "required": ["decisions"],
    "properties": {
        "decisions": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": {
                "anyOf": [
                    {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"const": "approve"}},
                        "additionalProperties": False,
                    },
                    {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"const": "reject"}, "message": {"type": "string"}},
                        "additionalProperties": False,
                    },
                    {
                        "type": "object",
                        "required": ["type", "edited_action"],
                        "properties": {
                            "type": {"const": "edit"},
                            "edited_action": {
                                "type": "object",
                                "required": ["name", "args"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "args": {"type": "object"},
                                },
                                "additionalProperties": False,
                            },
                        },
                        "additionalProperties": False,
                    },
                ]
            },
        }
    },
    "additionalProperties": False,
}
"""JSON Schema of the decision on a write, for clients that make a form of it."""
CANCEL = {"type": "cancel"}
"""The typed form that drops a pending question or approval and ends the run."""


def is_cancel(reply: object) -> bool:
    """`{"type": "cancel"}`; words such as 算了 are an answer like any other."""
    return isinstance(reply, Mapping) and reply.get("type") == "cancel"


def reply_text(reply: Any) -> str:
    """The words of a reply: text, `{"answer": …}`, or a chat client's decision or message list."""
    if isinstance(reply, Mapping):
        if isinstance(reply.get("decisions"), list):
            return reply_text(reply["decisions"])
        return reply_text(
            reply.get("answer") or reply.get("message") or reply.get("content") or reply.get("args")
        )
    if isinstance(reply, list):
        return " ".join(filter(None, map(reply_text, reply)))
    return reply.strip() if isinstance(reply, str) else ""


def is_approval(reply: object) -> bool:
    """Whether this reply approves exactly what was shown. Anything unclear does not."""
    if isinstance(reply, str):
        return normal_form(reply).lower().rstrip("。.!！") in APPROVING_WORDS
    decisions = reply.get("decisions") if isinstance(reply, Mapping) else None
    if not isinstance(decisions, list) or len(decisions) != 1:
        return False
    decision = decisions[0]
    return isinstance(decision, Mapping) and dict(decision) == {"type": "approve"}


def edited_action(reply: object) -> Mapping[str, Any] | None:
    """The action of `{"decisions": [{"type": "edit", "edited_action": {"name", "args"}}]}`."""
    decisions = reply.get("decisions") if isinstance(reply, Mapping) else None
    if not isinstance(decisions, list) or len(decisions) != 1:
        return None
    decision = decisions[0]
    if not isinstance(decision, Mapping) or decision.get("type") != "edit":
        return None
    action = decision.get("edited_action")
    return action if isinstance(action, Mapping) else {}
