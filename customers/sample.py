"""Make up a company: deterministic for a seed, lifelike, and ending at one `as_of`.

Each customer has a story (steady, fading, gone, new, seasonal, in trouble), and the events follow
from it: weekday rhythms, a season, fewer and fewer logins before somebody leaves, tickets in
Chinese and English. Three customers are always there, whatever the seed:

    user_123   quiet for over a week, one urgent ticket, last payment 45 days ago
    user_456   active, no open ticket, paid a few days ago
    user_789   signed up two days ago, nothing yet
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from followup_agent.customers.load import Rows

Story = Literal["steady", "fading", "gone", "new", "seasonal", "troubled"]
DAYS_OF_HISTORY = 180
SEGMENTS = ("enterprise", "business", "consumer", "seasonal")
_STORIES: tuple[tuple[Story, float], ...] = (
    ("steady", 0.5),
    ("fading", 0.15),
    ("gone", 0.1),
    ("new", 0.07),
    ("troubled", 0.18),
)
_PRICE = {"enterprise": 4800.0, "business": 680.0, "consumer": 49.0, "seasonal": 320.0}
_NAMES_ZH = ("晨光", "远山", "云帆", "青禾", "海棠", "北辰", "南风", "明川", "星野", "松果")
_TRADES_ZH = ("科技", "教育", "物流", "医疗", "餐饮", "文旅", "制造", "零售")
_NAMES_EN = (
    "Alder",
    "Birch",
    "Cobalt",
    "Dune",
    "Ember",
    "Fjord",
    "Grove",
    "Harbor",
    "Iris",
    "Juno",
)
_TRADES_EN = ("Labs", "Foods", "Travel", "Health", "Logistics", "Retail", "Studio", "Works")
_TICKETS: tuple[tuple[str, str, str], ...] = (
    ("bug", "无法导出报表", "点击导出后一直转圈，换浏览器也一样。"),
    ("billing", "发票抬头需要修改", "上月发票抬头写错了，请协助重开。"),
    ("bug", "登录后页面空白", "今天早上开始，登录后只看到空白页。"),
    ("question", "如何批量导入成员", "想一次导入两百个成员，有模板吗？"),
    ("complaint", "客服响应太慢", "上周的问题到现在没有人回复。"),
    ("bug", "Export fails with a timeout", "The export spins for a minute and then fails."),
    ("billing", "Charged twice this month", "We see two charges for the same invoice."),
    ("question", "How do we add a second workspace?", "The docs mention it, the menu does not."),
    ("complaint", "Still waiting for an answer", "Nobody has replied to our last ticket."),
    ("bug", "Dashboard shows yesterday's data", "The numbers have not moved since yesterday."),
)


@dataclass
class _Company:
    as_of: datetime
    rng: random.Random
    rows: Rows = field(default_factory=Rows)
    signed_up: dict[str, datetime] = field(default_factory=dict)
    orders: int = 0
    tickets: int = 0

    def customer(self, customer_id: str, name: str, segment: str, signed_up_at: datetime) -> None:
        self.signed_up[customer_id] = signed_up_at
        self.rows.customers.append(
            {
                "customer_id": customer_id,
                "name": name,
                "segment": segment,
                "signed_up_at": signed_up_at,
            }
        )

    def _happened(self, customer_id: str, moment: datetime) -> bool:
        """Neither before the customer signed up nor after `as_of`."""
        return self.signed_up[customer_id] <= moment <= self.as_of

    def event(self, customer_id: str, occurred_at: datetime, kind: str = "login") -> None:
        if self._happened(customer_id, occurred_at):
            self.rows.activity_events.append(
                {"customer_id": customer_id, "occurred_at": occurred_at, "kind": kind}
            )

    def order(self, customer_id: str, placed_at: datetime, amount: float, status: str) -> None:
        self.orders += 1
        paid_at = placed_at + timedelta(minutes=12) if status in ("paid", "refunded") else None
        if self._happened(customer_id, placed_at) and (paid_at is None or paid_at <= self.as_of):
            self.rows.orders.append(
                {
                    "order_id": f"O-{self.orders:06d}",
                    "customer_id": customer_id,
                    "placed_at": placed_at,
                    "paid_at": paid_at,
                    "amount": round(amount, 2),
                    "currency": "CNY",
                    "status": status,
                }
            )

    def ticket(
        self,
        customer_id: str,
        opened_at: datetime,
        closed_at: datetime | None,
        priority: str,
        text: tuple[str, str, str] | None = None,
    ) -> None:
        self.tickets += 1
        kind, subject, body = text or self.rng.choice(_TICKETS)
        if not self._happened(customer_id, opened_at):
            return
        self.rows.tickets.append(
            {
                "ticket_id": f"T-{self.tickets:06d}",
                "customer_id": customer_id,
                "opened_at": opened_at,
                "closed_at": closed_at if closed_at and closed_at <= self.as_of else None,
                "priority": priority,
                "kind": kind,
                "subject": subject,
                "body": body,
            }
        )


def make_company(customers: int, seed: int, as_of: datetime) -> Rows:
    """The rows of a company of so many customers (3 at least), as of this aware time."""
    company = _Company(as_of.replace(microsecond=0), random.Random(seed))  # noqa: S311 - a sample
    _fixed_customers(company)
    stories, weights = zip(*_STORIES, strict=True)
    for number in range(1001, 1001 + max(0, customers - 3)):
        segment = company.rng.choices(SEGMENTS, (2, 4, 3, 1))[0]
        story: Story = company.rng.choices(stories, weights)[0]
        story = "seasonal" if segment == "seasonal" else story
        _live(company, f"user_{number}", segment, story)
    return company.rows


def _fixed_customers(company: _Company) -> None:
    now, day = company.as_of, timedelta(days=1)
    company.customer("user_123", "晨光文旅", "business", now - 400 * day)
    for days_ago in range(9, 60, 2):
        company.event("user_123", now - days_ago * day)
    company.order("user_123", now - 45 * day - timedelta(minutes=12), 680.0, "paid")
    company.ticket("user_123", now - 3 * day, None, "urgent", _TICKETS[2])
    company.ticket("user_123", now - 50 * day, now - 48 * day, "normal", _TICKETS[1])
    company.customer("user_456", "Alder Labs", "business", now - 300 * day)
    for hours_ago in range(2, 24 * 60, 17):
        company.event("user_456", now - timedelta(hours=hours_ago))
    for days_ago in (5, 35, 65):
        company.order("user_456", now - days_ago * day, 680.0, "paid")
    company.ticket("user_456", now - 20 * day, now - 19 * day, "normal", _TICKETS[8])
    company.customer("user_789", "星野零售", "consumer", now - 2 * day)


def _live(company: _Company, customer_id: str, segment: str, story: Story) -> None:
    rng, now = company.rng, company.as_of
    age = rng.randint(1, 10) if story == "new" else rng.randint(60, 900)
    name = (
        rng.choice(_NAMES_ZH) + rng.choice(_TRADES_ZH)
        if rng.random() < 0.6
        else f"{rng.choice(_NAMES_EN)} {rng.choice(_TRADES_EN)}"
    )
    company.customer(
        customer_id, name, segment, now - timedelta(days=age, hours=rng.randint(0, 23))
    )
    history = min(age, DAYS_OF_HISTORY)
    gone_for = rng.randint(25, 120) if story == "gone" else 0
    fades_over = rng.randint(20, 60)
    base = {"enterprise": 0.9, "business": 0.7, "consumer": 0.35, "seasonal": 0.6}[segment]
    for days_ago in range(history, -1, -1):
        day = now - timedelta(days=days_ago)
        chance = base * _rhythm(day, segment) * _vigour(story, days_ago, gone_for, fades_over)
        for _ in range(_visits(rng, chance)):
            company.event(customer_id, day - timedelta(minutes=rng.randint(0, 600)))
            if rng.random() < 0.5:
                company.event(customer_id, day - timedelta(minutes=rng.randint(0, 600)), "feature")
    for placed_at, amount in _bills(rng, now, segment, history):
        days_ago = (now - placed_at).days
        if rng.random() < _vigour(story, days_ago, gone_for, fades_over) + 0.1:
            status = rng.choices(("paid", "placed", "cancelled", "refunded"), (90, 4, 4, 2))[0]
            company.order(customer_id, placed_at, amount, status)
    for _ in range(_visits(rng, 1.2 if story == "troubled" else 0.5)):
        opened_at = now - timedelta(hours=rng.randint(1, 24 * history))
        closed_at = opened_at + timedelta(hours=rng.expovariate(1 / 60))
        open_still = story == "troubled" and rng.random() < 0.7
        priority = rng.choices(("low", "normal", "high", "urgent"), (20, 50, 20, 10))[0]
        company.ticket(customer_id, opened_at, None if open_still else closed_at, priority)


def _rhythm(day: datetime, segment: str) -> float:
    """Week and year: offices rest at weekends, seasonal customers for half of the year."""
    week = (0.25 if segment in ("enterprise", "business") else 1.15) if day.weekday() >= 5 else 1.0
    if segment != "seasonal":
        return week
    return week * max(0.03, math.sin(2 * math.pi * (day.timetuple().tm_yday - 80) / 365))


def _vigour(story: Story, days_ago: int, gone_for: int, fades_over: int) -> float:
    """1 in a customer's good days, 0 after they have gone; fading in between."""
    if story == "gone":
        return 0.0 if days_ago < gone_for else min(1.0, (days_ago - gone_for) / fades_over)
    if story == "fading":
        return min(1.0, 0.05 + days_ago / fades_over)
    return 1.0


def _visits(rng: random.Random, mean: float) -> int:
    """A Poisson number."""
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count


def _bills(
    rng: random.Random, now: datetime, segment: str, history: int
) -> Iterator[tuple[datetime, float]]:
    """Monthly bills; quarterly ones for enterprises. A little irregular, as bills are."""
    every = 90 if segment == "enterprise" else 30
    days_ago = rng.randint(1, every)
    while days_ago <= history:
        yield (
            now - timedelta(days=days_ago, minutes=rng.randint(60, 900)),
            _PRICE[segment] * rng.choice((1, 1, 1, 2, 3)),
        )
        days_ago += every + rng.randint(-2, 4)
