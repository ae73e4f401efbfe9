"""Create a follow-up task for the customer team. A write: it runs only after an approval."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Literal

from pydantic import AwareDatetime, Field
from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable

from followup_agent.customers.lookup import CustomerArgs, CustomerResult, require_customer
from followup_agent.customers.tables import followup_tasks
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
    """The task as it stands in the database."""

    task_id: str
    due_at: AwareDatetime
    due_on: str
    """The local day, ISO."""
    created: bool
    """False when this very action had been carried out before: nothing was written again."""


async def run(args: Args, context: ToolContext) -> dict[str, object]:
    """Write one row, at most once for a key; ToolRefused without an approval."""
    if context.idempotency_key is None or context.approved_by is None:
        raise ToolRefused("a follow-up task is created only after an approval")
    key, approved_by = context.idempotency_key, context.approved_by

    def change(connection: Connection) -> dict[str, object]:
        customer = require_customer(connection, args.user_id, context)
        connection.execute(CreateTable(followup_tasks, if_not_exists=True))
        existing = _find(connection, key)
        if existing is not None:
            return customer | _shown(*existing, context, created=False)
        task_id = f"task_{key[:12]}"
        due_at = _end_of_day(context.now, args.due_in_days, context.timezone)
        reason = args.reason if args.note is None else f"{args.reason}\n\n{args.note}"
        row = followup_tasks.insert().values(
            task_id=task_id,
            idempotency_key=key,
            customer_id=args.user_id,
            reason=reason,
            priority=args.priority,
            due_at=due_at,
            assignee=args.assignee,
            evidence=list(context.evidence_ids),
            thread_id=context.thread_id,
            approved_by=approved_by,
            created_at=context.now,
        )
        try:
            with connection.begin_nested():
                connection.execute(row)
        except IntegrityError:  # somebody wrote this very action a moment ago
            existing = _find(connection, key)
            if existing is None:
                raise
            return customer | _shown(*existing, context, created=False)
        return customer | _shown(task_id, due_at, context, created=True)

    return await context.database.write(change)


def _find(connection: Connection, key: str) -> tuple[str, datetime] | None:
    row = connection.execute(
        select(followup_tasks.c.task_id, followup_tasks.c.due_at).where(
            followup_tasks.c.idempotency_key == key
        )
    ).first()
    return (row.task_id, row.due_at) if row is not None else None


def _shown(
    task_id: str, due_at: datetime, context: ToolContext, *, created: bool
) -> dict[str, object]:
    due_on = due_at.astimezone(context.timezone).date().isoformat()
    return {"task_id": task_id, "due_at": due_at, "due_on": due_on, "created": created}


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
    timeout_s=5.0,
    max_attempts=1,
)
