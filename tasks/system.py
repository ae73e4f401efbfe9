"""What the agent needs of a task system: make a task once for a key, and find it by its key."""

from typing import Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict


class NewTask(BaseModel):
    """A task to be made."""

    model_config = ConfigDict(frozen=True)

    customer_id: str
    reason: str
    priority: str
    due_at: AwareDatetime
    assignee: str | None
    evidence: list[str]
    thread_id: str
    approved_by: str
    created_at: AwareDatetime


class Task(BaseModel):
    """A task as it stands. What else a task system says of it is left to it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: str
    due_at: AwareDatetime
    thread_id: str = ""
    """Of the run that made it."""


class TaskSystem(Protocol):
    """Takes one task for one key, whoever sends it and however often.

    Both raise ToolUnavailable when the request surely did not arrive, ToolRefused when it was
    declined. Anything else that goes wrong may have happened after the task was made.
    """

    async def create(self, key: str, task: NewTask) -> Task:
        """Make the task, unless there is one of this key; either way the one there is."""

    async def find(self, key: str) -> Task | None:
        """The task of this key; None when there is none."""
