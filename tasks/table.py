"""Tasks in `followup_tasks`, beside the business data or in a database of its own. The key is unique
there. An account that may INSERT and SELECT will do, where the table is there already."""

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable
from typing_extensions import override

from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.tables import followup_tasks
from followup_agent.tasks.system import NewTask, Task, TaskSystem


class TaskTable(TaskSystem):
    """The table; made at the first task if it is missing."""

    def __init__(self, database: CustomerDatabase) -> None:
        """In this database."""
        self._database = database

    @override
    async def create(self, key: str, task: NewTask) -> Task:
        def change(connection: Connection) -> Task:
            if not inspect(connection).has_table(followup_tasks.name):  # may need no CREATE right
                connection.execute(CreateTable(followup_tasks, if_not_exists=True))
            row = followup_tasks.insert().values(
                task_id=f"task_{key[:12]}", idempotency_key=key, **task.model_dump()
            )
            try:
                with connection.begin_nested():
                    connection.execute(row)
            except IntegrityError:  # somebody made this very task before
                existing = _find(connection, key)
                if existing is None:
                    raise
                return existing
            return Task(task_id=f"task_{key[:12]}", due_at=task.due_at, thread_id=task.thread_id)

        return await self._database.write(change)

    @override
    async def find(self, key: str) -> Task | None:
        def query(connection: Connection) -> Task | None:
            known = inspect(connection).has_table(followup_tasks.name)
            return _find(connection, key) if known else None

        return await self._database.read(query)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _find(connection: Connection, key: str) -> Task | None:
    columns = (followup_tasks.c.task_id, followup_tasks.c.due_at, followup_tasks.c.thread_id)
    row = connection.execute(
        select(*columns).where(followup_tasks.c.idempotency_key == key)
    ).first()
    return Task.model_validate(dict(row._mapping)) if row is not None else None
