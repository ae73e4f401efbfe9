"""Create a follow-up task for the customer team. A write: it runs only after an approval."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

from pydantic import AwareDatetime, Field
from sqlalchemy import Connection, select

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
    created: bool
    """False when this very action had been carried out before: nothing was written again."""


async def run(args: Args, context: ToolContext) -> dict[str, object]:
    """Write one row, at most once for a key; ToolRefused without an approval."""
    if context.idempotency_key is None or context.approved_by is None:
        raise ToolRefused("a follow-up task is created only after an approval")
    key, approved_by = context.idempotency_key, context.approved_by

    def change(connection: Connection) -> dict[str, object]:
        customer = require_customer(connection, args.user_id, context)
        followup_tasks.create(connection, checkfirst=True)
        existing = connection.execute(
            select(followup_tasks.c.task_id, followup_tasks.c.due_at).where(
                followup_tasks.c.idempotency_key == key
            )
        ).first()
        if existing is not None:
            return customer | {
                "task_id": existing.task_id,
                "due_at": existing.due_at,
                "created": False,
            }
        task_id = f"task_{key[:12]}"
        due_at = context.now + timedelta(days=args.due_in_days)
        reason = args.reason if args.note is None else f"{args.reason}\n\n{args.note}"
        connection.execute(
            followup_tasks.insert().values(
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
        )
        return customer | {"task_id": task_id, "due_at": due_at, "created": True}

    return await context.database.write(change)


def facts(args: Args, result: Result) -> Mapping[str, FactDraft]:
    """The task, so that the answer can name it."""
    return {
        "followup_task_id": FactDraft(result.task_id, "text"),
        "followup_task_due_at": FactDraft(result.due_at.isoformat(), "time"),
    }


def evidence(args: Args, result: Result, language: Language) -> Sequence[EvidenceDraft]:
    """The one sentence that may claim that a task exists."""
    due = result.due_at.date().isoformat()
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
