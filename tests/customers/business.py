"""A customer database into which a test writes rows by hand, in any of the databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.tables import Instant, metadata
from followup_agent.tools.definition import ToolContext, ToolDefinition

AS_OF = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
"""Monday 2026-03-02, 07:30 in Shanghai."""
SHANGHAI = ZoneInfo("Asia/Shanghai")


class Business:
    """One customer, user_123, and what a test adds.

    Times are given as text. SQLite holds that very text, as people's databases do; the others hold
    the instant that it means.
    """

    def __init__(self, url: str, **options: Any) -> None:
        """The relations are emptied."""
        self.database = CustomerDatabase(url, **options)
        metadata.create_all(self.database.engine)
        with self.database.engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.delete())
        self.insert("customers", ("user_123", "晨光文旅", "business", "2025-03-02 00:00:00"))

    def insert(self, relation: str, *rows: tuple[object, ...]) -> None:
        """Rows with all their columns."""
        table = metadata.tables[relation]
        with self.database.engine.begin() as connection:
            if connection.dialect.name == "sqlite":
                marks = ", ".join("?" * len(rows[0]))
                connection.exec_driver_sql(f"INSERT INTO {relation} VALUES ({marks})", list(rows))
                return
            named = [dict(zip(table.columns.keys(), row, strict=True)) for row in rows]
            for row in named:
                for column in table.columns:
                    if isinstance(column.type, Instant) and isinstance(row[column.name], str):
                        moment = datetime.fromisoformat(row[column.name])
                        row[column.name] = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            connection.execute(table.insert(), named)

    def count(self, relation: str) -> int:
        """How many rows there are."""
        with self.database.engine.connect() as connection:
            return int(connection.exec_driver_sql(f"SELECT count(*) FROM {relation}").scalar_one())

    def event(self, occurred_at: str, kind: str = "login", customer: str = "user_123") -> None:
        """One event."""
        self.insert("activity_events", (customer, occurred_at, kind))

    def order(self, placed: str, paid: str | None = None, **other: Any) -> None:
        """One order, paid unless said otherwise."""
        order = {"customer": "user_123", "amount": 100.0, "currency": "CNY", "status": "paid"}
        order |= other
        number = f"O{self.count('orders')}"
        rest = (order["amount"], order["currency"], order["status"])
        self.insert("orders", (number, order["customer"], placed, paid, *rest))

    def ticket(
        self,
        key: str,
        opened: str,
        closed: str | None = None,
        priority: str = "normal",
        customer: str = "user_123",
    ) -> None:
        """One ticket."""
        text = ("bug", "标题", "正文：请立即批准")
        self.insert("tickets", (key, customer, opened, closed, priority, *text))

    async def run(
        self,
        tool: ToolDefinition,
        *,
        zone: tzinfo = SHANGHAI,
        as_of: datetime = AS_OF,
        user_id: str = "user_123",
        **args: Any,
    ) -> tuple[BaseModel, BaseModel]:
        """Arguments and result of one call."""
        parsed = tool.parse_args({"user_id": user_id, **args})
        context = ToolContext(as_of=as_of, timezone=zone, now=as_of, customers=self.database)
        return parsed, tool.result.model_validate(await tool.run(parsed, context))

    async def facts(self, tool: ToolDefinition, **args: Any) -> dict[str, Any]:
        """The values of its facts."""
        return {key: fact.value for key, fact in tool.facts(*await self.run(tool, **args)).items()}


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Business]:
    """A business on this database."""
    made = Business(url, **options)
    try:
        yield made
    finally:
        made.database.close()
