"""An import brings the database in step with an export, whole or not at all, on every database."""

import csv
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from support import NOW

from followup_agent.customers.database import CustomerDatabase, sqlite_url
from followup_agent.customers.importing import Export, Imported, import_export
from followup_agent.customers.load import replace_all
from followup_agent.customers.sample import make_company
from followup_agent.customers.tables import READ_RELATIONS
from followup_agent.service.errors import CustomerDataError

CUSTOMERS = "customer_id,name,segment,signed_up_at\n"
EVENTS = "customer_id,occurred_at,kind\n"
ORDERS = "order_id,customer_id,placed_at,paid_at,amount,currency,status\n"
TICKETS = "ticket_id,customer_id,opened_at,closed_at,priority,kind,subject,body\n"
CONTENT = {
    "customers": CUSTOMERS
    + "c1,晨光,business,2025-01-01\nc2,O'Neil; DROP TABLE orders,vip,2025-02-01\n",
    "activity_events": EVENTS + "c1,2026-02-01,login\n" * 2 + "c2,2026-02-02,feature\n",
    "orders": ORDERS
    + "o1,c1,2026-01-01,2026-01-02,10.5,CNY,paid\no2,c2,2026-01-03,,7,USD,placed\n",
    "tickets": TICKETS + 't1,c1,2026-02-01,,urgent,bug,登录后空白,"第一行\n第二行"\n',
}


@pytest.fixture
def database(new_url: str) -> Iterator[CustomerDatabase]:
    """A new database."""
    made = CustomerDatabase(new_url)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The four files."""
    for relation, content in CONTENT.items():
        (tmp_path / f"{relation}.csv").write_text(content, encoding="utf-8")
    return tmp_path


def load(database: CustomerDatabase, folder: Path, *only: str, **options: Any) -> Imported:
    """Import the files."""
    files = {name: folder / f"{name}.csv" for name in only or CONTENT}
    return import_export(database, Export(files=files), **options)


def held(database: CustomerDatabase) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all relations."""
    with database.reader.connect() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(table.select())), key=repr)
            for table in READ_RELATIONS
        }


def add(folder: Path, relation: str, *lines: str) -> None:
    """More lines in a file."""
    with (folder / f"{relation}.csv").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_a_second_import_of_the_same_files_changes_nothing(
    database: CustomerDatabase, folder: Path
) -> None:
    first = load(database, folder)
    assert first.rows == {"customers": 2, "activity_events": 3, "orders": 2, "tickets": 1}
    assert {name: tuple(change) for name, change in first.changes.items()} == {
        "customers": (2, 0, 0),
        "activity_events": (3, 0, 0),
        "orders": (2, 0, 0),
        "tickets": (1, 0, 0),
    }
    before = held(database)
    assert before["tickets"][0][-1] == "第一行\n第二行"
    assert "DROP TABLE" in before["customers"][1][1]
    assert {tuple(change) for change in load(database, folder).changes.values()} == {(0, 0, 0)}
    assert held(database) == before


def test_an_updated_export_updates(database: CustomerDatabase, folder: Path) -> None:
    load(database, folder)
    orders = folder / "orders.csv"
    orders.write_text(
        orders.read_text("utf-8").replace("2026-01-03,,7", "2026-01-03,2026-01-04,7"), "utf-8"
    )
    add(folder, "orders", "o3,c1,2026-02-03,,1.234,CNY,placed")
    add(folder, "activity_events", "c1,2026-02-01,login", "c1,2026-02-05,login")
    add(folder, "customers", "c3,New,general,2026-02-05")
    changes = load(database, folder).changes
    assert tuple(changes["customers"]) == (1, 0, 0)
    assert tuple(changes["orders"]) == (1, 1, 0)
    assert tuple(changes["activity_events"]) == (2, 0, 0)
    assert tuple(changes["tickets"]) == (0, 0, 0)
    after = held(database)
    assert len(after["activity_events"]) == 5  # the same event three times is three events
    assert after["orders"][1][3] is not None


def test_what_an_export_no_longer_has_is_removed_up_to_a_half(
    database: CustomerDatabase, folder: Path
) -> None:
    add(folder, "tickets", "t2,c1,2026-02-01,,low,bug,,", "t3,c1,2026-02-01,,low,bug,,")
    load(database, folder)
    before = held(database)
    tickets = (folder / "tickets.csv").read_text("utf-8").splitlines(keepends=True)
    (folder / "tickets.csv").write_text("".join([TICKETS, tickets[-1]]), "utf-8")
    add(folder, "customers", "c9,New,general,2026-02-05")
    with pytest.raises(
        CustomerDataError, match=r"2 of the 3 tickets .*is it a part of one.*--replace"
    ):
        load(database, folder)
    assert held(database) == before
    assert tuple(load(database, folder, replace_held=True).changes["tickets"]) == (0, 0, 2)
    (folder / "tickets.csv").write_text(
        TICKETS + "t3,c1,2026-02-01,,low,bug,,\nt4,c1,2026-02-01,,low,bug,,\n", "utf-8"
    )
    assert tuple(load(database, folder).changes["tickets"]) == (1, 0, 0)


def test_relations_that_an_export_does_not_have_are_left_as_they_are(
    database: CustomerDatabase, folder: Path
) -> None:
    load(database, folder)
    before = held(database)
    add(
        folder,
        "tickets",
        "t2,c2,2026-02-03,,low,question,,",
        "t3,nobody,2026-02-03,,low,question,,",
    )
    done = load(database, folder, "tickets")
    assert tuple(done.changes["tickets"]) == (1, 0, 0)
    assert [str(p) for p in done.problems] == [
        f"{folder / 'tickets.csv'}, line 5: customer_id 'nobody' is not among the customers"
    ]
    after = held(database)
    assert {name: after[name] for name in ("customers", "activity_events", "orders")} == {
        name: before[name] for name in ("customers", "activity_events", "orders")
    }


def test_bad_rows_are_left_out_told_and_kept(database: CustomerDatabase, folder: Path) -> None:
    add(folder, "orders", "o3,c1,soon,,1,CNY,paid", "o1,c1,2026-01-01,,1,CNY,paid", "o4,c1")
    add(folder, "orders", "o5,c1,2026-01-09,,1,CNY,paid")
    rejects = folder / "rejects.csv"
    done = load(database, folder, rejects=rejects)
    path = folder / "orders.csv"
    assert done.rejected == 3
    assert [(p.file, p.line, p.column) for p in done.problems] == [
        (str(path), 4, "placed_at"),
        (str(path), 5, "order_id"),
        (str(path), 6, ""),
    ]
    assert len(held(database)["orders"]) == 3
    with rejects.open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    assert [row["line"] for row in kept] == ["4", "5", "6"]
    assert json.loads(kept[0]["row"])["placed_at"] == "soon"
    assert "names 7 columns, this one has 2" in kept[2]["reason"]


def test_strict_refuses_all_for_one_bad_row(database: CustomerDatabase, folder: Path) -> None:
    load(database, folder)
    before = held(database)
    add(folder, "customers", "c3,New,general,2026-02-05")
    add(folder, "tickets", "t9,c1,2026-02-30,,low,bug,,")
    with pytest.raises(CustomerDataError, match="1 bad rows, and --strict: nothing was changed"):
        load(database, folder, strict=True)
    assert held(database) == before


def test_a_file_without_one_good_row_refuses_all(database: CustomerDatabase, folder: Path) -> None:
    path = folder / "activity_events.csv"
    path.write_text(EVENTS + "c1,03/04/2026,login\n" * 3, "utf-8")
    with pytest.raises(
        CustomerDataError, match=r"no row is good; .* line 2: occurred_at .*--time-format"
    ):
        load(database, folder)
    if database.is_file:
        assert not Path(str(database.url.database)).exists()


def test_parquet_is_read_as_csv_is(database: CustomerDatabase, folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv as pa_csv
    from pyarrow import parquet

    load(database, folder)
    for relation in CONTENT:
        options = pa_csv.ConvertOptions(strings_can_be_null=True)
        table = pa_csv.read_csv(
            folder / f"{relation}.csv",
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        )
        if relation == "orders":  # typed, as warehouses write it
            table = table.set_column(4, "amount", table["amount"].cast(pa.decimal128(12, 2)))
        parquet.write_table(table, folder / f"{relation}.csv")
    assert {tuple(change) for change in load(database, folder).changes.values()} == {(0, 0, 0)}


def test_ids_that_a_column_with_gaps_has_made_numbers_are_ids_all_the_same(tmp_path: Path) -> None:
    """As data frames write them: 1.0 is customer 1. A row is named by its number."""
    import pyarrow as pa
    from pyarrow import parquet

    signed_up = pa.array([None, "2025-01-01", "2025-01-02"])
    customers = {"customer_id": [None, 1.0, 2.0], "name": ["", "A", "B"], "segment": ["b"] * 3}
    parquet.write_table(
        pa.table({**customers, "signed_up_at": signed_up}), tmp_path / "customers.csv"
    )
    events = {"customer_id": [1, 2], "occurred_at": ["2026-01-01"] * 2, "kind": ["login"] * 2}
    parquet.write_table(pa.table(events), tmp_path / "activity_events.csv")
    database = CustomerDatabase(sqlite_url(tmp_path / "c.db"))
    done = load(database, tmp_path, "customers", "activity_events")
    assert done.rows == {"customers": 2, "activity_events": 2}
    assert [str(problem) for problem in done.problems] == [
        f"{tmp_path / 'customers.csv'}, row 1: customer_id is empty: it is needed"
    ]
    assert [row[0] for row in held(database)["customers"]] == ["1", "2"]
    database.close()


def test_nothing_of_ones_own_is_put_among_made_up_customers(
    database: CustomerDatabase, folder: Path
) -> None:
    replace_all(database, make_company(3, 1, NOW), is_sample=True)
    (folder / "tickets.csv").write_text(TICKETS + "t1,user_123,2026-01-01,,low,bug,,\n", "utf-8")
    with pytest.raises(
        CustomerDataError, match="made-up customers: import your own customers first"
    ):
        load(database, folder, "tickets")
    load(database, folder, "customers", "orders")
    assert [len(rows) for rows in held(database).values()] == [2, 0, 2, 0]


def test_what_customers_write_may_be_long(database: CustomerDatabase, folder: Path) -> None:
    add(folder, "tickets", f"t2,c1,2026-02-01,,low,bug,{'题' * 100_000},{'x' * 300_000}")
    assert load(database, folder).rejected == 0
    assert {len(row[-1]) for row in held(database)["tickets"]} == {7, 300_000}


def test_two_imports_at_once_leave_one_of_them(database: CustomerDatabase, folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    load(database, folder)
    other = CustomerDatabase(database.url.render_as_string(hide_password=False))
    add(folder, "orders", *(f"n{i},c1,2026-01-01,,1,CNY,paid" for i in range(500)))
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(load, each, folder) for each in (database, other)]
        came = []
        for one in done:
            with suppress(CustomerDataError):  # MariaDB may make one of them give way
                came.append(one.result())
    other.close()
    assert came
    assert len(held(database)["orders"]) == 502


KILLED = """
import os, sys
from pathlib import Path
from followup_agent.customers import load as loading
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.importing import Export, import_export

def at(number, function):
    calls = [0]
    def counted(*arguments, **named):
        if calls[0] == number:
            os.kill(os.getpid(), 9)
        calls[0] += 1
        return function(*arguments, **named)
    return counted

url, folder, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
for name, where in (("_insert", number), ("_count", number - 4)):
    setattr(loading, name, at(where, getattr(loading, name)))
files = {name: folder / f"{name}.csv" for name in ("customers", "activity_events", "orders", "tickets")}
import_export(CustomerDatabase(url), Export(files=files))
"""


@pytest.mark.slow
def test_a_killed_import_changes_nothing_and_the_next_one_does_all(
    database: CustomerDatabase, folder: Path
) -> None:
    """SIGKILL while staging, and between the statements of the one transaction."""
    load(database, folder)
    before = held(database)
    add(folder, "customers", "c3,New,general,2026-02-05")
    add(folder, "orders", "o3,c3,2026-02-03,,1,CNY,placed")
    add(folder, "activity_events", "c3,2026-02-06,login")
    add(folder, "tickets", "t2,c3,2026-02-06,,low,bug,,")
    url = database.url.render_as_string(hide_password=False)
    killed = 0
    for number in (1, 3, 5, 8, 11, 14):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, url, str(folder), str(number)],
            check=False, capture_output=True, timeout=60,
        )  # fmt: skip
        if done.returncode == 0:  # it had fewer statements
            break
        assert done.returncode == -9, done.stderr.decode()
        killed += 1
        assert held(database) == before
    assert killed >= 4
    load(database, folder)
    assert [len(rows) for rows in held(database).values()] == [3, 4, 3, 2]


@pytest.mark.slow
def test_a_full_disk_changes_nothing(tmp_path: Path, folder: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], check=False, capture_output=True
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    database = CustomerDatabase(sqlite_url(disk / "customers.db"))
    try:
        load(database, folder)
        before = held(database)
        add(folder, "orders", *(f"x{i},c1,2026-01-01,,1,CNY,paid" for i in range(20_000)))
        with pytest.raises(CustomerDataError, match=r"no room left.*nothing was changed"):
            load(database, folder)
        assert held(database) == before
    finally:
        database.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_locked_database_is_said_in_a_line(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("followup_agent.customers.database.BUSY_TIMEOUT_S", 0.05)
    database = CustomerDatabase(sqlite_url(tmp_path / "customers.db"))
    load(database, folder)
    add(folder, "customers", "c3,New,general,2026-02-05")
    with database.engine.connect() as other:
        other.execute(text("DELETE FROM customers"))
        began = time.monotonic()
        with pytest.raises(
            CustomerDataError, match=r"is locked by another program.*nothing was changed"
        ):
            load(database, folder)
        assert time.monotonic() - began < 5
        other.rollback()
    assert len(held(database)["customers"]) == 2
    database.close()
