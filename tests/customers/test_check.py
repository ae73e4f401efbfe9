"""`data check` names what is wrong, how many rows have it, and what to do."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from business import AS_OF, Business, opened
from sqlalchemy import text
from support import fill

from followup_agent.cli.start import _run as main
from followup_agent.customers.check import DataReport, check_data
from followup_agent.customers.database import CustomerDatabase, sqlite_url

LIMITS = {"activity_events": 7, "orders": 45, "tickets": 45}


def check(business: Business) -> DataReport:
    database = business.database
    database.stale_after_days.update(LIMITS)
    return check_data(database, AS_OF, UTC)


def said(report: DataReport) -> set[tuple[str, str | None, int | None]]:
    return {(problem.relation, problem.column, problem.rows) for problem in report.problems}


@pytest.fixture
def sound(business: Business) -> Business:
    """One customer with a bit of everything."""
    business.event("2026-03-01 10:00:00")
    business.order("2026-02-20 10:00:00", "2026-02-20 10:10:00")
    business.ticket("T1", "2026-02-20 10:00:00", "2026-02-21 10:00:00", "high")
    return business


def test_sound_data_have_no_problem(sound: Business) -> None:
    report = check(sound)
    assert report.problems == []
    assert report.ok
    assert [(s.relation, s.rows, s.without) for s in report.sources] == [
        ("customers", 1, None),
        ("activity_events", 1, 0.0),
        ("orders", 1, 0.0),
        ("tickets", 1, 0.0),
    ]
    assert report.sources[1].newest == datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("spoil", "relation", "column", "rows", "says"),
    [
        (lambda b: b.event("2026-03-01", customer="nobody"), "activity_events", "customer_id", 1, "not among the customers"),
        (lambda b: b.order("2026-02-20", customer="nobody"), "orders", "customer_id", 1, "not among the customers"),
        (lambda b: b.event("2026-03-05 10:00:00"), "activity_events", "occurred_at", 1, "is later than 2026-03-01 23:30 UTC"),
        (lambda b: b.ticket("T2", "1850-01-01 00:00:00"), "tickets", "opened_at", 1, "impossible time"),
        (lambda b: b.ticket("T2", "2026-02-20", "2026-02-19"), "tickets", "closed_at", 1, "is before opened_at"),
        (lambda b: b.order("2026-02-20", "2026-02-19"), "orders", "paid_at", 1, "is before placed_at"),
        (lambda b: b.ticket("T2", "2026-02-20", priority="P1"), "tickets", "priority", 1, "none of low, normal, high, urgent"),
        (lambda b: b.order("2026-02-20", status="done"), "orders", "status", 1, "none of placed, paid"),
    ],
)  # fmt: skip
def test_each_fault_is_named_with_its_rows(
    sound: Business,
    spoil: Callable[[Business], None],
    relation: str,
    column: str,
    rows: int,
    says: str,
) -> None:
    spoil(sound)
    (problem,) = check(sound).problems
    assert (problem.relation, problem.column, problem.rows) == (relation, column, rows)
    assert says in problem.message


def test_empty_sources_are_not_connected(business: Business) -> None:
    assert said(check(business)) == {
        ("activity_events", None, None),
        ("orders", None, None),
        ("tickets", None, None),
    }


def test_customers_without_any_activity_may_not_be_connected(sound: Business) -> None:
    sound.insert("customers", *((f"c{n}", "", "b", "2025-03-02 00:00:00") for n in range(3)))
    sound.insert("customers", ("new", "", "b", "2026-02-25 00:00:00"))
    (problem,) = check(sound).problems
    assert (problem.relation, problem.rows) == ("activity_events", 3)
    assert problem.message.startswith("75% of the customers who signed up over 30 days ago")


def test_a_stale_source_is_named(sound: Business) -> None:
    for n in range(3):
        sound.insert("customers", (f"c{n}", "", "b", "2025-03-02 00:00:00"))
        sound.event("2026-02-28 10:00:00", customer=f"c{n}")
    sound.database.stale_after_days["activity_events"] = 7
    report = check_data(sound.database, AS_OF + timedelta(days=10), UTC)
    assert ("activity_events", "occurred_at", None) in said(report)


def test_a_missing_index_comes_with_its_statement(sound: Business) -> None:
    with sound.database.engine.begin() as connection:
        on = " ON activity_events" if connection.dialect.name == "mysql" else ""
        connection.exec_driver_sql(f"DROP INDEX ix_activity_events_customer{on}")
    (problem,) = check(sound).problems
    assert (problem.relation, problem.column) == ("activity_events", "customer_id, occurred_at")
    statement = problem.message.removeprefix("has no index: ")
    with sound.database.engine.begin() as connection:
        connection.execute(text(statement.rstrip(";")))
    assert check(sound).ok


def test_a_missing_key_comes_with_its_statement(tmp_path: Path) -> None:
    with opened(sqlite_url(tmp_path / "c.db")) as business:
        business.event("2026-03-01")
        business.order("2026-02-20")
        business.ticket("T1", "2026-02-20")
        with business.database.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE customers RENAME TO base")
            connection.exec_driver_sql("CREATE TABLE customers AS SELECT * FROM base")
        (problem,) = check(business).problems
        assert (problem.relation, problem.column) == ("customers", "customer_id")
        statement = problem.message.removeprefix("has no key: ").rstrip(";")
        assert statement.startswith("CREATE UNIQUE INDEX")
        with business.database.engine.begin() as connection:
            connection.exec_driver_sql(statement)
        assert check(business).ok


def test_keys_that_a_view_has_twice_are_counted(tmp_path: Path) -> None:
    with opened(sqlite_url(tmp_path / "c.db")) as business:
        business.event("2026-03-01")
        business.order("2026-02-20")
        business.ticket("T1", "2026-02-20")
        with business.database.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE orders RENAME TO base")
            connection.exec_driver_sql(
                "CREATE VIEW orders AS SELECT * FROM base UNION ALL SELECT * FROM base"
            )
        (problem,) = check(business).problems
    assert (problem.relation, problem.column, problem.rows) == ("orders", "order_id", 1)
    assert "more than once" in problem.message


def test_the_command_prints_it_and_its_exit_code_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "customers.db", customers=20).close()
    as_of = ["--as-of", "2026-03-01T23:30:00Z", "--home", str(tmp_path)]
    assert main(["data", "check", *as_of]) == 0
    assert "✓ no problem found" in capsys.readouterr().out
    database = CustomerDatabase(sqlite_url(tmp_path / "customers.db"))
    with database.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE tickets SET priority = '紧急' WHERE ticket_id = 'T-000001'"
        )
    database.close()
    assert main(["data", "check", "--json", *as_of]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["problems"] == [
        {
            "relation": "tickets",
            "column": "priority",
            "rows": 1,
            "message": "is none of low, normal, high, urgent: never counted as urgent",
        }
    ]
    assert [source["relation"] for source in document["sources"]] == [
        "customers", "activity_events", "orders", "tickets",
    ]  # fmt: skip


def test_a_missing_database_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", "--home", str(tmp_path / "none")]) == 2
    assert "followup data import" in capsys.readouterr().err


def test_a_database_of_another_version_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "customers.db").close()
    database = CustomerDatabase(sqlite_url(tmp_path / "customers.db"))
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE tickets DROP COLUMN kind")
        connection.exec_driver_sql("DROP TABLE orders")
    database.close()
    assert main(["data", "check", "--home", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "relation 'tickets' lacks kind" in out
    assert "no relation 'orders'" in out
