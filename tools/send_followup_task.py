"""Create a follow-up task for the customer team. A write: it runs only after an approval."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Literal

from pydantic import AwareDatetime, Field

from followup_agent.customers.lookup import CustomerArgs, CustomerResult, require_customer
from followup_agent.tasks.system import NewTask, Task
from followup_agent.tools.definition import ToolContext, ToolDefinition, ToolRefused
from followup_agent.tools.outcome import EvidenceDraft, FactDraft, Language


class Args(CustomerArgs):
    """What the customer team is to do, for whom and by when."""

    reason: str = Field(
        min_length=1,
        max_length=500,
        description="Why this customer needs follow-up, in a sentence.",
    )
    priority: Literal["high", "medium", "low"] = Field(description="How urgent the follow-up is.")
    due_in_days: int = Field(ge=0, le=90, description="Calendar days until it is due; 0 is today.")
    assignee: str | None = Field(
        None, max_length=100, description="Who is to do it; leave out to use the team's queue."
    )
    note: str | None = Field(
        None, max_length=2000, description="Anything the assignee should know."
    )


class Result(CustomerResult):
    """The task as it stands."""

    task_id: str
    due_at: AwareDatetime
    due_on: str
    """The local day, ISO."""
    created: bool
    """False when another run had carried out this very action: nothing was written again."""


async def run(args: Args, context: ToolContext) -> dict[str, object]:
    """Make one task, at most once for a key; ToolRefused without an approval."""
    if context.idempotency_key is None or context.approved_by is None:
        raise ToolRefused("a follow-up task is created only after an approval")
    task = NewTask(
        customer_id=args.user_id,
        reason=args.reason if args.note is None else f"{args.reason}\n\n{args.note}",
        priority=args.priority,
        due_at=_end_of_day(context.now, args.due_in_days, context.timezone),
        assignee=args.assignee,
        evidence=list(context.evidence_ids),
        thread_id=context.thread_id,
        approved_by=context.approved_by,
        created_at=context.now,
    )
    customer = await _customer(args, context)
    return customer | _shown(
        await context.task_system.create(context.idempotency_key, task), context
    )


async def find(args: Args, context: ToolContext) -> dict[str, object] | None:
    """The task of this key, if there is one."""
    if context.idempotency_key is None:
        return None
    task = await context.task_system.find(context.idempotency_key)
    return None if task is None else await _customer(args, context) | _shown(task, context)


async def _customer(args: Args, context: ToolContext) -> dict[str, object]:
    return await context.database.read(lambda c: require_customer(c, args.user_id, context))


def _shown(task: Task, context: ToolContext) -> dict[str, object]:
    return {
        "task_id": task.task_id,
        "due_at": task.due_at,
        "due_on": task.due_at.astimezone(context.timezone).date().isoformat(),
        "created": context.mine and task.thread_id == context.thread_id,
    }


def _end_of_day(now: datetime, days: int, zone: tzinfo) -> datetime:
    """The last instant of the local day so many days on: due today is not overdue at once."""
    day = now.astimezone(zone).date() + timedelta(days=days)
    return datetime.combine(day, time(23, 59, 59), zone).astimezone(UTC)


def facts(args: Args, result: Result) -> Mapping[str, FactDraft]:
    """The task, so that the answer can name it."""
    return {
        "followup_task_id": FactDraft(result.task_id, "text"),
        "followup_task_due_at": FactDraft(result.due_at.isoformat(), "time"),
    }


def evidence(args: Args, result: Result, language: Language) -> Sequence[EvidenceDraft]:
    """The one sentence that may claim that a task exists."""
    due = result.due_on
    if language == "zh":
        verb = "已创建跟进任务" if result.created else "跟进任务此前已创建"
        return (EvidenceDraft(f"{verb} {result.task_id}，截止 {due}", 1.0),)
    verb = "Follow-up task created" if result.created else "Follow-up task had been created before"
    return (EvidenceDraft(f"{verb}: {result.task_id}, due {due}", 1.0),)


TOOL = ToolDefinition(
    name="send_followup_task",
    description="Create one follow-up task for the customer team. Needs a person's approval of "
    "exactly these arguments.",
    args=Args,
    result=Result,
    run=run,
    facts=facts,
    evidence=evidence,
    effect="write",
    once_per="reason",
    find=find,
    timeout_s=5.0,
    max_attempts=1,
)
