"""What business data cost: a million rows imported, a tool call on them, many judgements at once.

On SQLite and on a PostgreSQL server of its own (Debian's packages, `make databases`), started here.
"""

import asyncio
import csv
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import text

from followup_agent import FollowupAgent
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.load import Rows, replace_all
from followup_agent.customers.sample import make_company
from followup_agent.judgement.policy import load_policy
from followup_agent.tools import get_open_tickets, get_user_activity, get_user_orders
from followup_agent.tools.definition import ToolContext

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import PostgresServer, binaries

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROWS, CUSTOMERS = 1_000_000, 100_000
CALLS = 1500
AT_ONCE = 200
TOOLS = (
    (get_user_activity.TOOL, {"days": 7}),
    (get_user_orders.TOOL, {"days": 30}),
    (get_open_tickets.TOOL, {}),
)
Bound = Callable[[str, float, float, str], None]


def write_export(folder: Path) -> dict[str, Path]:
    """A million events of 100,000 customers, 200,000 orders, 50,000 tickets."""
    rng = random.Random(1)
    files = {
        name: folder / f"{name}.csv" for name in ("customers", "activity", "orders", "tickets")
    }

    def ago(days: float) -> str:
        return (NOW - timedelta(seconds=rng.randrange(int(days * 86_400)))).isoformat(" ")

    def who() -> str:
        return f"user_{rng.randrange(CUSTOMERS)}"

    heads = {
        "customers": "customer_id,name,segment,signed_up_at",
        "activity": "customer_id,occurred_at,kind",
        "orders": "order_id,customer_id,placed_at,paid_at,amount,currency,status",
        "tickets": "ticket_id,customer_id,opened_at,closed_at,priority,kind,subject,body",
    }
    rows: dict[str, Any] = {
        "customers": ((f"user_{n}", f"客户 {n}", "business", ago(900)) for n in range(CUSTOMERS)),
        "activity": ((who(), ago(120), rng.choice(("login", "view"))) for _ in range(ROWS)),
        "orders": (
            (f"O{n}", who(), at := ago(300), at, rng.randint(1, 9999), "CNY", "paid")
            for n in range(200_000)
        ),
        "tickets": (
            (f"T{n}", who(), ago(60), "", "normal", "bug", "标题", "正文") for n in range(50_000)
        ),
    }
    for name, path in files.items():
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(heads[name].split(","))
            writer.writerows(rows[name])
    return files


def imported(files: dict[str, Path], environment: dict[str, str]) -> tuple[float, float]:
    """Wall seconds and megabytes of the command that imports them."""
    followup = str(Path(sys.executable).with_name("followup"))
    options = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    started = time.perf_counter()
    process = subprocess.Popen(
        [followup, "data", "import", *options, "--timezone", "UTC"],
        env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    peak = 0.0
    while process.poll() is None:  # ru_maxrss would begin with what this process here takes
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines()
            peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
        time.sleep(0.05)
    assert process.returncode == 0, process.returncode
    return time.perf_counter() - started, peak


async def call_times(url: str, customers: int) -> list[float]:
    """Milliseconds of calls for customers at random, the three tools in turn."""
    stale = load_policy().sources.model_dump()
    with closing(CustomerDatabase(url, stale_after_days=stale)) as database:
        context = ToolContext(as_of=NOW, timezone=UTC, now=NOW, customers=database)
        rng = random.Random(2)
        spent = []
        for number in range(CALLS):
            tool, window = TOOLS[number % 3]
            args = tool.parse_args({"user_id": f"user_{rng.randrange(customers)}", **window})
            started = time.perf_counter()
            await tool.run(args, context)
            spent.append((time.perf_counter() - started) * 1000)
    return spent


async def many_at_once(url: str, folder: Path) -> tuple[float, int, int]:
    """Seconds for 200 judgements at once, how many were completed, and connections at most."""
    with closing(CustomerDatabase(url)) as database:
        replace_all(database, make_company(AT_ONCE, 1, NOW), is_sample=True)
    counted = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    most = 0
    async with FollowupAgent.aopen(
        home=folder, customers_url=url, planner="rules", clock=lambda: NOW
    ) as agent:
        watcher = CustomerDatabase(url)

        async def watch() -> None:
            nonlocal most
            while True:
                found = await watcher.read(lambda c: int(c.execute(counted).scalar_one()))
                most = max(most, found - 1)
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        goals = [
            "user_123",
            "user_456",
            *(f"user_{1001 + n}" for n in range(AT_ONCE - 3)),
            "user_789",
        ]
        started = time.perf_counter()
        runs = await asyncio.gather(
            *(agent.aask(f"Does {c} need follow-up?", thread_id=f"many-{c}") for c in goals)
        )
        elapsed = time.perf_counter() - started
        watching.cancel()
        watcher.close()
    return elapsed, sum(run.status == "completed" for run in runs), most


def small_company(url: str, customers: int) -> None:
    """So many customers with ten events, two orders and a ticket each."""
    rows = Rows()
    for n in range(customers):
        who = f"user_{n}"
        rows.customers.append(
            {
                "customer_id": who,
                "name": "",
                "segment": "b",
                "signed_up_at": NOW - timedelta(days=90),
            }
        )
        for day in range(10):
            at = NOW - timedelta(days=day, seconds=n % 3600)
            rows.activity_events.append({"customer_id": who, "occurred_at": at, "kind": "login"})
        for day in (3, 40):
            at = NOW - timedelta(days=day)
            rows.orders.append(
                {
                    "order_id": f"{n}-{day}", "customer_id": who, "placed_at": at, "paid_at": at,
                    "amount": 9.0, "currency": "CNY", "status": "paid",
                }
            )  # fmt: skip
        rows.tickets.append(
            {
                "ticket_id": f"T{n}", "customer_id": who, "opened_at": NOW - timedelta(days=2),
                "closed_at": None, "priority": "normal", "kind": "bug", "subject": "", "body": "",
            }
        )  # fmt: skip
    with closing(CustomerDatabase(url)) as database:
        replace_all(database, rows, is_sample=True)


def run_all(folder: Path, bound: Bound) -> None:
    """All of it; `bound(name, value, limit, unit)` holds a figure against its limit."""
    export = folder / "export"
    export.mkdir()
    files = write_export(export)
    print(
        f"\nBusiness data: {ROWS:,} events, {CUSTOMERS:,} customers, 200,000 orders, 50,000 tickets"
    )
    home = folder / "big"
    sqlite = f"sqlite:///{home / 'customers.db'}"
    server = PostgresServer() if binaries() else None
    if server is None:
        print("  PostgreSQL is not installed: `make databases`; its figures are missing")
    stores = {"SQLite": sqlite} | ({"PostgreSQL": server.database()} if server else {})
    try:
        for store, url in stores.items():
            environment = {**os.environ, "FOLLOWUP_HOME": str(home), "FOLLOWUP_CUSTOMERS_URL": url}
            home.mkdir(exist_ok=True)
            seconds, megabytes = imported(files, environment)
            bound(f"{store}: the whole export is imported", seconds, 60, "s")
            bound(f"{store}: memory of the import", megabytes, 500, "MB")
            spent = sorted(asyncio.run(call_times(url, CUSTOMERS)))
            bound(f"{store}: a tool call, median of {CALLS}", statistics.median(spent), 10, "ms")
            bound(f"{store}: a tool call, p99", spent[int(CALLS * 0.99)], 50, "ms")
            by_size = {}
            for customers in (1_000, 100_000):
                small = (
                    f"sqlite:///{folder / f'company-{customers}.db'}"
                    if server is None or store == "SQLite"
                    else server.database()
                )
                small_company(small, customers)
                by_size[customers] = statistics.median(asyncio.run(call_times(small, customers)))
            shown = ", ".join(f"{ms:.2f} ms at {n:,}" for n, ms in by_size.items())
            bound(f"{store}: a call among 100,000 : among 1,000 customers ({shown})",
                  by_size[100_000] / by_size[1_000], 1.5, "x")  # fmt: skip
        if server is not None:
            seconds, completed, most = asyncio.run(many_at_once(server.database(), folder / "many"))
            print(
                f"  PostgreSQL: {AT_ONCE} judgements at once in {seconds:.1f} s, {completed} completed"
            )
            bound("PostgreSQL: of them not completed", AT_ONCE - completed, 0, "runs")
            bound("PostgreSQL: connections at most", most, 17, "connections")
    finally:
        if server is not None:
            server.remove()
