"""Another system's export, imported by a mapping file and judged: every fact is counted twice.

The data are RavenStack by River @ Rivalytics, outside of this repository. The second count is made
here from the CSV files, without any of our code.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer
from psycopg import sql

from followup_agent import FollowupAgent
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.importing import Export, import_export
from followup_agent.customers.mapping import read_mapping
from followup_agent.tools import get_open_tickets, get_user_activity, get_user_orders
from followup_agent.tools.definition import ToolContext

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "ravenstack"
MAPPING = Path(__file__).with_name("ravenstack.toml")
DAYS = 90

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the RavenStack files are not at {DATA}"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which the command line has imported the files."""
    home = tmp_path_factory.mktemp("ravenstack")
    done = subprocess.run(
        [
            sys.executable, "-m", "followup_agent.cli.start", "data", "import",
            "--map", str(MAPPING), "--from", str(DATA), "--home", str(home), "--json",
        ],
        cwd=home,
        env={k: v for k, v in os.environ.items() if not k.startswith("FOLLOWUP_")},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == {
        "customers": 500,
        "activity_events": 25000,
        "orders": 5000,
        "tickets": 2000,
    }
    return home


def table(name: str) -> list[dict[str, str]]:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tables() -> dict[str, list[dict[str, str]]]:
    names = ("accounts", "subscriptions", "feature_usage", "support_tickets")
    return {name: table(name) for name in names}


def of_account(
    tables: dict[str, list[dict[str, str]]], account: str
) -> dict[str, list[dict[str, str]]]:
    """The rows of one account."""
    index: dict[str, Any] = INDEX.setdefault(id(tables), {})
    if not index:
        owner = {s["subscription_id"]: s["account_id"] for s in tables["subscriptions"]}
        for name, rows in tables.items():
            for row in rows:
                whose = row.get("account_id") or owner[row["subscription_id"]]
                index.setdefault(whose, {}).setdefault(name, []).append(row)
    return {name: index[account].get(name, []) for name in tables}


INDEX: dict[int, dict[str, Any]] = {}


def count(every: dict[str, list[dict[str, str]]], account: str, as_of: str) -> dict[str, object]:
    """The facts on one account by plain counting; ISO dates compare as text."""
    tables = of_account(every, account)
    today = date.fromisoformat(as_of)
    first = (today - timedelta(days=DAYS - 1)).isoformat()

    def ago(day: str | None) -> int | None:
        return (today - date.fromisoformat(day)).days if day else None

    subscriptions = [
        s
        for s in tables["subscriptions"]
        if s["account_id"] == account and s["start_date"] <= as_of
    ]
    own = {s["subscription_id"] for s in tables["subscriptions"] if s["account_id"] == account}
    used = [
        u["usage_date"]
        for u in tables["feature_usage"]
        if u["subscription_id"] in own and u["usage_date"] <= as_of
    ]
    paid = [s for s in subscriptions if s["churn_flag"] != "TRUE"]
    paid_lately = [s for s in paid if s["start_date"] >= first]
    amount = sum(float(s["mrr_amount"]) for s in paid_lately)
    open_tickets = [
        t
        for t in tables["support_tickets"]
        if t["account_id"] == account
        and t["submitted_at"] <= as_of
        and not (t["closed_at"] and t["closed_at"] <= as_of)
    ]
    return {
        f"login_count_{DAYS}d": 0,
        f"active_days_{DAYS}d": len({day for day in used if day >= first}),
        "days_since_last_active": ago(max(used, default=None)),
        f"order_count_{DAYS}d": sum(s["start_date"] >= first for s in subscriptions),
        f"paid_order_count_{DAYS}d": len(paid_lately),
        f"paid_amount_{DAYS}d": {"USD": amount} if paid_lately else {},
        "days_since_last_paid": ago(max((s["start_date"] for s in paid), default=None)),
        "open_ticket_count": len(open_tickets),
        "urgent_ticket_count": sum(t["priority"] == "urgent" for t in open_tickets),
        "oldest_open_ticket_days": ago(
            min((t["submitted_at"] for t in open_tickets), default=None)
        ),
        "segment": next(a["plan_tier"] for a in tables["accounts"] if a["account_id"] == account),
        "days_since_signup": ago(
            next(a["signup_date"] for a in tables["accounts"] if a["account_id"] == account)
        ),
    }


ZH = "帮我判断 {} 最近90天是否需要重点跟进"
EN = "Does {} need priority follow-up? Use the last 90 days"
CASES = [
    ("A-592832", "2024-12-31", ZH),  # many orders, two of them cancelled
    ("A-b20d99", "2024-12-31", ZH),  # no use at all in the window
    ("A-43a9e3", "2024-12-31", ZH),  # no order in the window
    ("A-9f2731", "2024-12-31", EN),  # never a ticket
    ("A-524364", "2024-12-31", ZH),  # signed up on the last day
    ("A-3ce5b8", "2024-11-15", ZH),  # an urgent ticket was open then
    ("A-0baac2", "2024-06-30", EN),  # a ticket was open then; its one order was cancelled
]


@pytest.fixture(scope="module")
def agent(home: Path) -> Iterator[FollowupAgent]:
    with FollowupAgent.open(home=home, planner="rules") as agent:
        yield agent


@pytest.mark.parametrize(("account", "as_of", "goal"), CASES)
def test_every_fact_on_an_account_is_what_the_files_say(
    agent: FollowupAgent,
    tables: dict[str, list[dict[str, str]]],
    account: str,
    as_of: str,
    goal: str,
) -> None:
    run = agent.ask(goal.format(account), as_of=as_of)
    assert (run.status, run.stop_reason) == ("completed", "finish")
    assert run.verdict is not None
    assert run.verdict["subject"] == account
    assert run.language == ("zh" if goal == ZH else "en")
    facts = {key: fact["value"] for key, fact in run.facts[account].items()}
    wanted = count(tables, account, as_of)
    assert {key: facts[key] for key in wanted} == wanted
    assert set(facts) - set(wanted) == {"last_active_at", "last_paid_at"}
    assert set(run.facts) == {account}


def test_the_accounts_differ_in_what_they_test(tables: dict[str, list[dict[str, str]]]) -> None:
    counts = [count(tables, account, as_of) for account, as_of, _ in CASES]
    assert {c["open_ticket_count"] for c in counts} == {0, 1}
    assert {c["urgent_ticket_count"] for c in counts} == {0, 1}
    assert 0 in {c["active_days_90d"] for c in counts}
    assert 0 in {c["order_count_90d"] for c in counts}
    assert any(c["order_count_90d"] != c["paid_order_count_90d"] for c in counts)


def test_ids_are_learned_from_another_systems_data(agent: FollowupAgent) -> None:
    run = agent.ask("A-592832和A-43a9e3哪个要跟进", as_of="2024-12-31")
    assert run.status == "needs_input"
    question = run.pending_questions[0]["question"]
    assert "A-592832" in question
    assert "A-43a9e3" in question
    run = agent.answer(run.thread_id, "A-43a9e3")
    assert run.verdict is not None
    assert run.verdict["subject"] == "A-43a9e3"


async def all_facts(database: CustomerDatabase, accounts: list[str]) -> dict[str, dict[str, Any]]:
    """Every account's facts as of the last day, by the three tools."""
    as_of = datetime(2024, 12, 31, 12, tzinfo=UTC)
    context = ToolContext(as_of=as_of, timezone=UTC, now=as_of, customers=database)
    found: dict[str, dict[str, Any]] = {}
    for account in accounts:
        mine = found[account] = {}
        for tool in (get_user_activity.TOOL, get_user_orders.TOOL, get_open_tickets.TOOL):
            window = {} if tool is get_open_tickets.TOOL else {"days": DAYS}
            args = tool.parse_args({"user_id": account, **window})
            result = tool.result.model_validate(await tool.run(args, context))
            mine |= {key: fact.value for key, fact in tool.facts(args, result).items()}
    return found


@pytest.fixture(scope="module")
def counted(tables: dict[str, list[dict[str, str]]]) -> dict[str, dict[str, object]]:
    """The facts on all 500 accounts, counted from the files."""
    accounts = [row["account_id"] for row in tables["accounts"]]
    assert len(accounts) == 500
    return {account: count(tables, account, "2024-12-31") for account in accounts}


def agrees(found: dict[str, dict[str, Any]], counted: dict[str, dict[str, object]]) -> None:
    assert found.keys() == counted.keys()
    for account, wanted in counted.items():
        mine = {key: found[account][key] for key in wanted}
        assert mine == wanted, account


async def test_all_500_accounts_have_the_facts_of_the_files_in_every_database(
    new_url: str, counted: dict[str, dict[str, object]]
) -> None:
    """One mapping file, whatever the database."""
    database = CustomerDatabase(new_url)
    mapping = read_mapping(MAPPING)
    export = Export(mapping=(mapping, MAPPING), folder=DATA, reading=mapping.reading())
    done = import_export(database, export)
    assert (done.rejected, sum(done.rows.values())) == (0, 32_500)
    agrees(await all_facts(database, list(counted)), counted)
    assert {tuple(c) for c in import_export(database, export).changes.values()} == {(0, 0, 0)}
    database.close()


VIEWS = """
CREATE VIEW customers AS
SELECT account_id AS customer_id, account_name AS name, plan_tier AS segment,
       signup_date::timestamptz AS signed_up_at
FROM accounts;
CREATE VIEW activity_events AS
SELECT s.account_id AS customer_id, u.usage_date::timestamptz AS occurred_at, 'feature'::text AS kind
FROM feature_usage u JOIN subscriptions s USING (subscription_id);
CREATE VIEW orders AS
SELECT subscription_id AS order_id, account_id AS customer_id,
       start_date::date AS placed_at, start_date::date AS paid_at,
       mrr_amount::numeric AS amount, 'USD'::text AS currency,
       CASE churn_flag WHEN 'TRUE' THEN 'cancelled' ELSE 'paid' END AS status
FROM subscriptions;
CREATE VIEW tickets AS
SELECT ticket_id, account_id AS customer_id, submitted_at::timestamp AS opened_at,
       nullif(closed_at, '')::timestamp AS closed_at,
       CASE priority WHEN 'medium' THEN 'normal' ELSE priority END AS priority,
       'question'::text AS kind, ''::text AS subject, ''::text AS body
FROM support_tickets
"""


async def test_views_over_the_raw_tables_give_the_same(
    postgres: PostgresServer, counted: dict[str, dict[str, object]]
) -> None:
    """The files as they are, every column text, in a PostgreSQL of one's own."""
    url = postgres.database()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        for name in ("accounts", "subscriptions", "feature_usage", "support_tickets"):
            with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
                columns = next(csv.reader(file))
                fields = sql.SQL(", ").join(
                    sql.SQL("{} text").format(sql.Identifier(column)) for column in columns
                )
                table = sql.Identifier(name)
                connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, fields))
                command = sql.SQL("COPY {} FROM STDIN (FORMAT csv, NULL 'no null')").format(table)
                with connection.cursor().copy(command) as copy:
                    copy.write(file.read())
            key = sql.Identifier(next(c for c in columns if c in ("account_id", "subscription_id")))
            connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(table, key))
        connection.execute("CREATE INDEX ON subscriptions (account_id)")
        for view in VIEWS.split(";"):
            connection.execute(view)  # type: ignore[call-overload] # as it stands
        connection.execute("ANALYZE")
        connection.commit()
    database = CustomerDatabase(url).check()
    agrees(await all_facts(database, list(counted)), counted)
    database.close()
