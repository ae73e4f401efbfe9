"""followup-agent: does this customer need priority follow-up, why, and what should we do?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from followup_agent.planners import Planner
    from followup_agent.runs.index import ThreadEntry
    from followup_agent.service.agent import FollowupAgent
    from followup_agent.service.errors import (
        ConfigurationError,
        CustomerDataError,
        FollowupError,
        IncompatibleThread,
        InvalidGoal,
        InvalidOption,
        LeaseLost,
        NoAnswer,
        NotWaiting,
        NotYours,
        ShuttingDown,
        StorageError,
        ThreadBusy,
        ThreadError,
        UnknownThread,
        UsageError,
    )
    from followup_agent.service.events import (
        ApprovalAsked,
        DecisionMade,
        QuestionAsked,
        RunEvent,
        RunStopped,
        ToolCalled,
    )
    from followup_agent.service.run import Run
    from followup_agent.state import AgentState, AskUser, CallTool, Finish
    from followup_agent.tools.definition import (
        CustomerNotFound,
        DefinitionError,
        ToolArgs,
        ToolContext,
        ToolDefinition,
        ToolRefused,
        ToolResult,
        ToolUnavailable,
    )
    from followup_agent.tools.foreign import from_langchain
    from followup_agent.tools.outcome import EvidenceDraft, FactDraft

_HOMES = {
    "service.agent": ("FollowupAgent",),
    "service.errors": (
        "ConfigurationError",
        "CustomerDataError",
        "FollowupError",
        "IncompatibleThread",
        "InvalidGoal",
        "InvalidOption",
        "LeaseLost",
        "NoAnswer",
        "NotWaiting",
        "NotYours",
        "ShuttingDown",
        "StorageError",
        "ThreadBusy",
        "ThreadError",
        "UnknownThread",
        "UsageError",
    ),
    "service.events": (
        "ApprovalAsked",
        "DecisionMade",
        "QuestionAsked",
        "RunEvent",
        "RunStopped",
        "ToolCalled",
    ),
    "service.run": ("Run",),
    "runs.index": ("ThreadEntry",),
    "planners": ("Planner",),
    "state": ("AgentState", "AskUser", "CallTool", "Finish"),
    "tools.definition": (
        "CustomerNotFound",
        "DefinitionError",
        "ToolArgs",
        "ToolContext",
        "ToolDefinition",
        "ToolRefused",
        "ToolResult",
        "ToolUnavailable",
    ),
    "tools.foreign": ("from_langchain",),
    "tools.outcome": ("EvidenceDraft", "FactDraft"),
}
"""Loaded at first use: a command that runs no graph must not pay for importing one."""

_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AgentState",
    "ApprovalAsked",
    "AskUser",
    "CallTool",
    "ConfigurationError",
    "CustomerDataError",
    "CustomerNotFound",
    "DecisionMade",
    "DefinitionError",
    "EvidenceDraft",
    "FactDraft",
    "Finish",
    "FollowupAgent",
    "FollowupError",
    "IncompatibleThread",
    "InvalidGoal",
    "InvalidOption",
    "LeaseLost",
    "NoAnswer",
    "NotWaiting",
    "NotYours",
    "Planner",
    "QuestionAsked",
    "Run",
    "RunEvent",
    "RunStopped",
    "ShuttingDown",
    "StorageError",
    "ThreadBusy",
    "ThreadEntry",
    "ThreadError",
    "ToolArgs",
    "ToolCalled",
    "ToolContext",
    "ToolDefinition",
    "ToolRefused",
    "ToolResult",
    "ToolUnavailable",
    "UnknownThread",
    "UsageError",
    "from_langchain",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
