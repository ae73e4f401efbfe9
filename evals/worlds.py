"""The company that a case is asked about: customers as short stories, and tools that misbehave.

Times are written as days before the world's `as_of` (0 is that very moment, 0.5 twelve hours
before), or as an ISO 8601 time. So a world can be moved in time as a whole.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)

from followup_agent.customers.load import Rows
from followup_agent.service.settings import known_zone
from followup_agent.tools.definition import ToolDefinition, ToolRefused, ToolUnavailable

Moment = float | AwareDatetime
"""Days before `as_of`, or a time."""
FaultKind = Literal[
    "unavailable", "timeout", "broken", "malformed", "refused", "unavailable_once", "answer_lost"
]
"""What a tool does instead of answering.

unavailable: cannot be reached, every time. unavailable_once: the first time only. timeout: gives no
answer in time. broken: raises what nobody expects. malformed: answers in another form. refused:
declines. answer_lost: does its work, and the answer is lost (of a write: it may have happened).
"""
FAULTY_TIMEOUT_S = 0.02


class Closed(BaseModel):
    """Data from a YAML file: an unknown key is a typing error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Every(Closed):
    """Regular activity: `every` so many days, `from` so many days ago back `to` so many."""

    every: float = Field(gt=0)
    from_: float = Field(alias="from", ge=0)
    to: float = Field(ge=0)

    def moments(self) -> list[float]:
        """The days."""
        count = int((self.to - self.from_) / self.every) + 1
        return [self.from_ + number * self.every for number in range(count)]


class Order(Closed):
    """One order."""

    placed: Moment
    paid: bool = True
    """Paid at the moment it was placed."""
    amount: float = 680.0
    currency: str = "CNY"
    status: Literal["paid", "pending", "cancelled", "refunded"] = "paid"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.paid != (self.status in ("paid", "refunded")):
            raise ValueError(f"an order that is {self.status} cannot have paid: {self.paid}")
        return self


class Ticket(Closed):
    """One ticket."""

    opened: Moment
    closed: Moment | None = None
    priority: Literal["low", "normal", "high", "urgent"] = "normal"
    kind: str = "bug"
    subject: str = "登录后页面空白"
    body: str = "今天早上开始，登录后只看到空白页。"


class Customer(Closed):
    """One customer's story."""

    name: str = "晨光文旅"
    segment: Literal["business", "enterprise", "consumer", "seasonal"] = "business"
    signed_up: Moment = 400.0
    active: Every | list[Moment] = Field(default_factory=list)
    orders: list[Order] = Field(default_factory=list)
    tickets: list[Ticket] = Field(default_factory=list)


class World(Closed):
    """One company at one moment."""

    as_of: AwareDatetime = datetime.fromisoformat("2026-03-02T07:30:00+08:00")
    timezone: Annotated[str, AfterValidator(known_zone)] = "Asia/Shanghai"
    customers: dict[str, Customer]
    faults: dict[str, FaultKind] = Field(default_factory=dict)
    """Tool name to what it does."""

    @property
    def zone(self) -> ZoneInfo:
        """The zone days begin and end in."""
        return ZoneInfo(self.timezone)

    def moved(self, by: timedelta) -> Self:
        """The same company at another time; the days before `as_of` move with it."""
        return self.model_copy(update={"as_of": self.as_of + by})

    def rows(self) -> Rows:
        """The rows of the business database."""
        rows = Rows()

        def at(moment: Moment) -> datetime:
            if isinstance(moment, datetime):
                return moment
            return self.as_of - timedelta(days=moment)

        for customer_id, customer in self.customers.items():
            rows.customers.append(
                {
                    "customer_id": customer_id,
                    "name": customer.name,
                    "segment": customer.segment,
                    "signed_up_at": at(customer.signed_up),
                }
            )
            active = customer.active
            for moment in active.moments() if isinstance(active, Every) else active:
                rows.activity_events.append(
                    {"customer_id": customer_id, "occurred_at": at(moment), "kind": "login"}
                )
            for order in customer.orders:
                rows.orders.append(
                    {
                        "order_id": f"O-{len(rows.orders) + 1:06d}",
                        "customer_id": customer_id,
                        "placed_at": at(order.placed),
                        "paid_at": at(order.placed) if order.paid else None,
                        "amount": order.amount,
                        "currency": order.currency,
                        "status": order.status,
                    }
                )
            for ticket in customer.tickets:
                rows.tickets.append(
                    {
                        "ticket_id": f"T-{len(rows.tickets) + 1:06d}",
                        "customer_id": customer_id,
                        "opened_at": at(ticket.opened),
                        "closed_at": None if ticket.closed is None else at(ticket.closed),
                        "priority": ticket.priority,
                        "kind": ticket.kind,
                        "subject": ticket.subject,
                        "body": ticket.body,
                    }
                )
        return rows

    def tools(self, built_in: Mapping[str, ToolDefinition]) -> list[ToolDefinition]:
        """The tools as they behave here; ValueError for a fault of a tool that is none."""
        tools = dict(built_in)
        for name, kind in self.faults.items():
            if name not in tools:
                raise ValueError(
                    f"a fault of {name!r}, which is no tool; they are {', '.join(tools)}"
                )
            tools[name] = faulty(tools[name], kind)
        return list(tools.values())


def faulty(tool: ToolDefinition, kind: FaultKind) -> ToolDefinition:
    """The tool with a fault."""
    failed_once = False

    async def run(args: Any, context: Any) -> Any:
        nonlocal failed_once
        match kind:
            case "unavailable":
                raise ToolUnavailable("connection refused")
            case "refused":
                raise ToolRefused("access denied")
            case "broken":
                raise RuntimeError("the driver gave up")
            case "malformed":
                return {"rows": "many"}
            case "timeout":
                await asyncio.sleep(60)
            case "unavailable_once" if not failed_once:
                failed_once = True
                raise ToolUnavailable("connection refused")
            case "answer_lost":
                await tool.run(args, context)
                raise ConnectionResetError("the answer was lost")
        return await tool.run(args, context)

    timeout_s = FAULTY_TIMEOUT_S if kind == "timeout" else tool.timeout_s
    find = None if kind == "answer_lost" else tool.find
    return replace(tool, run=run, timeout_s=timeout_s, find=find)


@cache
def worlds() -> dict[str, World]:
    """The named worlds of `worlds.yaml`."""
    text = resources.files(__package__).joinpath("worlds.yaml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, World]).validate_python(yaml.safe_load(text))
