"""Everything one run knows: the values that nodes read and write. Nothing here acts.

What is checkpointed is plain JSON, so that a thread can be read after any rename, in any process
and by any client; `messages` alone holds LangChain's own message classes, for chat clients.
Every node's update is validated against these types before it is written (`graph/step.py`).

    Decision = CallTool | AskUser | Finish      (tag: type)

Lists and facts that grow with the steps are `DeltaChannel`s: a checkpoint stores what was added,
not the whole again, so the stored bytes of a run grow with its steps and not with their square.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired, TypeVar

from langchain_core.messages import AnyMessage
from langgraph.channels import DeltaChannel, EphemeralValue
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from pydantic import Discriminator, Field, JsonValue, with_config
from typing_extensions import TypedDict

from followup_agent.tools.outcome import PLAIN, Fact, FailureKind, Language, OutcomeKind

Status = Literal["running", "needs_input", "completed", "failed"]
StopReason = Literal[
    "finish",
    "ask_user",
    "approval",
    "max_steps",
    "repeated_failures",
    "no_progress",
    "budget",
    "deadline",
    "planner_failed",
    "model_refused",
    "cancelled",
    "recursion_limit",
    "internal",
]
USED_UP: frozenset[StopReason] = frozenset({"max_steps", "deadline", "budget"})
"""A limit was met, and nothing went wrong: the run concludes from what it has found."""
Coverage = Literal["found", "empty", "failed", "not_checked"]
Priority = Literal["high", "medium", "low", "none", "undetermined"]
GoalKind = Literal["judgement", "activity", "orders", "tickets", "task", "unclear"]
TaskWish = Literal["none", "if_needed", "requested"]
Text = Annotated[str, Field(pattern=r"\S", max_length=4000)]

GRAPH_VERSION = "3"
"""Raised when stored threads of the former version cannot be gone on with."""


# --- what the planner may decide: exactly one a round ---


@with_config(PLAIN)
class CallTool(TypedDict):
    """Act: run one tool."""

    type: Literal["tool"]
    tool_name: str
    args: dict[str, JsonValue]
    reason: Text
    expected_outcome: str


@with_config(PLAIN)
class AskUser(TypedDict):
    """Stop and ask, because something only the user knows is missing."""

    type: Literal["ask_user"]
    question: Text
    reason: Text
    expected_outcome: NotRequired[str]


@with_config(PLAIN)
class Finish(TypedDict):
    """Stop: the evidence is enough. The verdict is computed; the draft is never trusted."""

    type: Literal["finish"]
    reason: Text
    answer_draft: str
    expected_outcome: NotRequired[str]


Decision = Annotated[CallTool | AskUser | Finish, Discriminator("type")]


# --- what intake made of the user's words ---


@with_config(PLAIN)
class Window(TypedDict):
    """A day window as the tools take it."""

    days: int
    """Calendar days, the last one included; 1 to 365."""
    until: str | None
    """Last day, ISO date; None when the window ends at `as_of`."""
    stated: bool
    """False when the user named none and the default was taken."""


@with_config(PLAIN)
class Goal(TypedDict):
    """The goal as read by code, in Chinese or English."""

    kind: GoalKind
    subjects: list[str]
    """Customer ids in the user's own words: no tool may be called for any other."""
    unreadable_ids: list[str]
    """Words that look like an id but have not the form of one here."""
    window: Window
    task: TaskWish
    """Whether a follow-up task is wanted."""


# --- records ---


@with_config(PLAIN)
class Evidence(TypedDict):
    """One thing the answer may cite. Written by the updater only."""

    id: str
    """'e1', 'e2', ...: what the answer cites."""
    call_id: str
    source: str
    """The tool's name."""
    summary: str
    confidence: float


@with_config(PLAIN)
class ToolCallRecord(TypedDict):
    """One tool call as it went."""

    call_id: str
    step: int
    tool_name: str
    args: dict[str, JsonValue]
    outcome: OutcomeKind
    failure_kind: FailureKind | None
    result_summary: str
    success: bool
    attempts: int
    """How often the tool was really run: 0 when refused, blocked or answered from the record."""
    duration_ms: int


@with_config(PLAIN)
class Observation(TypedDict):
    """What came of one call, uninterpreted; gone after the updater has read it."""

    tool_name: str
    args: dict[str, JsonValue]
    outcome: OutcomeKind
    failure_kind: FailureKind | None
    message: str
    result: dict[str, JsonValue] | None
    attempts: int
    duration_ms: int
    repeat_of: str | None
    """The earlier call that already answered these very arguments."""


@with_config(PLAIN)
class Question(TypedDict):
    """A question that waits for the user."""

    id: str
    question: str
    reason: str


@with_config(PLAIN)
class Round(TypedDict):
    """One decision in its place: what came of it stands in `tool_history` or `answers`."""

    step: int
    decision: Decision


@with_config(PLAIN)
class Answered(TypedDict):
    """What the user has answered to the question of a step."""

    step: int
    answer: str


@with_config(PLAIN)
class Quote(TypedDict):
    """What a customer wrote, as a tool found it: data for a model to read, never evidence."""

    call_id: str
    text: str


@with_config(PLAIN)
class Limits(TypedDict):
    """What a run may use, whatever its planner; None: as much as it takes."""

    deadline_s: float | None
    """Seconds of work: the planner's and the tools' time, not the time a person takes."""
    model_calls: int | None
    tokens: int | None
    """Input and output together."""
    cost: float | None
    """In the currency of the price table."""


NO_LIMITS = Limits(deadline_s=None, model_calls=None, tokens=None, cost=None)


@with_config(PLAIN)
class Approval(TypedDict):
    """A write that waits for a person: exactly what would be done, and on what grounds."""

    id: str
    tool_name: str
    args: dict[str, JsonValue]
    reason: str
    evidence_ids: list[str]
    digest: str
    """SHA-256 over tool, arguments, evidence and policy version: what was shown is what runs."""
    expires_at: str
    approver: str | None
    """Who may approve; None: whoever uses the agent."""
    remarks: list[str]
    """Why it is asked anew: the facts that changed since it was asked before, or what an edit
    may not do; empty the first time."""


@with_config(PLAIN)
class Approved(TypedDict):
    """A person's agreement to the one write that may run next."""

    digest: str
    """Of what was shown: a call with another digest does not run."""
    by: str
    changed: list[str]
    """How the facts it rests on have changed since it was asked for: it is void and asked anew."""


@with_config(PLAIN)
class Counters(TypedDict):
    """What is counted over the whole run, resumes included, to end it in time."""

    failures_in_a_row: int
    """Failed tool calls since the last that answered."""
    invalid_decisions: int
    """Unusable planner replies in a row."""
    repeated_calls: int
    """Calls that had been answered before."""
    questions: int
    approvals: int
    """Approvals asked for."""
    unusable_answers: int
    """Answers in a row that told nothing new."""
    handed_back: int
    """Times a model finished before the evidence was in, and was told what is missing."""
    planner_ms: int
    """Time the planner took, its waiting included."""


NO_COUNTS = Counters(
    failures_in_a_row=0,
    invalid_decisions=0,
    repeated_calls=0,
    questions=0,
    approvals=0,
    unusable_answers=0,
    handed_back=0,
    planner_ms=0,
)


@with_config(PLAIN)
class Reason(TypedDict):
    """One reason of a verdict, tied to its evidence."""

    text: str
    evidence_ids: list[str]


@with_config(PLAIN)
class Verdict(TypedDict):
    """The judgement on one customer."""

    subject: str
    needs_followup: bool | None
    """None: what was found does not suffice to say."""
    priority: Priority
    score: int
    """0 to 100; with a source missing, the least it can be."""
    reasons: list[Reason]
    advised_action: str
    coverage: dict[str, Coverage]
    """Tool name to what it came to."""


@with_config(PLAIN)
class ModelView(TypedDict):
    """What a model wrote as its answer, beside the verdict that was computed."""

    draft: str
    needs_followup: bool | None
    """What the draft says; None: it says neither."""
    used: bool
    """Whether the draft stands in the answer."""
    disagreements: list[str]
    """Why it does not: what it says that the record does not, or the verdict contradicts."""


@with_config(PLAIN)
class RunError(TypedDict):
    """The last thing that went wrong."""

    kind: FailureKind
    message: str


@with_config(PLAIN)
class Usage(TypedDict):
    """What the model cost; all zero with the built-in rules."""

    model_calls: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost: float
    """In the currency of the price table; 0.0 where the model has no price there."""


NO_USAGE = Usage(model_calls=0, input_tokens=0, cached_input_tokens=0, output_tokens=0, cost=0.0)

# --- the state ---

T = TypeVar("T")


def extend(base: list[T], writes: Sequence[list[T]]) -> list[T]:
    """Append each write to the list (a `DeltaChannel` reducer: several writes at once)."""
    return [*base, *(item for write in writes for item in write)]


def merge_facts(
    base: dict[str, dict[str, Fact]], writes: Sequence[dict[str, dict[str, Fact]]]
) -> dict[str, dict[str, Fact]]:
    """Merge each write by subject, then by fact key; a newer fact of the same key replaces."""
    merged = dict(base)
    for write in writes:
        for subject, facts in write.items():
            merged[subject] = {**merged.get(subject, {}), **facts}
    return merged


class AgentInput(TypedDict, total=False):
    """What starts a run: the goal as text, or as the last human message."""

    user_goal: str
    messages: Annotated[list[AnyMessage], add_messages]


class AgentState(TypedDict):
    """Everything one run knows. Nodes return updates; nothing is edited in place."""

    session_id: str
    """The thread."""
    run_id: str
    user_goal: str
    """The goal in the user's own words, stripped."""
    language: Language
    """Of the first question; every text of the run follows it."""
    planner: str
    """'rules', or the model's name: who decided last."""
    as_of: str
    """ISO 8601, UTC: nothing later is ever seen."""
    as_of_given: bool
    """The user named `as_of`: what is read again is read as of then, not as of now."""
    graph_version: str
    """Of the state's form; a thread of another version is refused."""
    parsed_goal: Goal

    status: Status
    stop_reason: StopReason | None
    current_step: int
    """Decisions taken so far in this run, over all resumes."""
    max_steps: int
    limits: Limits
    counters: Counters

    decision: Decision | None
    needs_approval: bool
    """The decided tool changes something: a person must agree first."""
    observations: Annotated[list[Observation], EphemeralValue]
    facts: Annotated[dict[str, dict[str, Fact]], DeltaChannel(merge_facts)]
    """Subject to fact key to fact."""
    evidence: Annotated[list[Evidence], DeltaChannel(extend)]
    tool_history: Annotated[list[ToolCallRecord], DeltaChannel(extend)]

    rounds: Annotated[list[Round], DeltaChannel(extend)]
    """The decisions so far: what a model is shown of them grows and never changes."""
    quotes: Annotated[list[Quote], DeltaChannel(extend)]
    answers: Annotated[list[Answered], DeltaChannel(extend)]

    pending_questions: list[Question]
    approval: Approval | None
    """Set while a write waits for a person."""
    approved: Approved | None
    """Used up by running the write."""

    verdict: Verdict | None
    model_view: ModelView | None
    final_answer: str | None
    last_error: RunError | None
    usage: Usage
    messages: Annotated[list[AnyMessage], add_messages]
    """The conversation, for chat clients."""

    remaining_steps: RemainingSteps
    """Supersteps left before LangGraph's own limit."""


def worked_s(state: AgentState) -> float:
    """Seconds this run has worked: its planner and its tools, over all resumes."""
    tools_ms = sum(call["duration_ms"] for call in state["tool_history"])
    return (state["counters"]["planner_ms"] + tools_ms) / 1000


def time_left_s(state: AgentState) -> float | None:
    """Seconds until the run's deadline, never below 0; None when it has none."""
    deadline_s = state["limits"]["deadline_s"]
    return None if deadline_s is None else max(0.0, deadline_s - worked_s(state))


def budget_spent(state: AgentState) -> bool:
    """Whether the run has used as much of a model as it may, by what the server has reported."""
    usage, limits = state["usage"], state["limits"]
    used = (
        (usage["model_calls"], limits["model_calls"]),
        (usage["input_tokens"] + usage["output_tokens"], limits["tokens"]),
        (usage["cost"], limits["cost"]),
    )
    return any(limit is not None and spent >= limit for spent, limit in used)


def facts_of(state: AgentState) -> dict[str, Fact]:
    """Facts about the customer in question; empty when there is none."""
    subjects = state["parsed_goal"]["subjects"]
    return state["facts"].get(subjects[0], {}) if len(subjects) == 1 else {}
