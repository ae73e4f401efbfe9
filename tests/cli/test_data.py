"""`followup data` as a user runs it: bad input is one or two lines, exit code 2, nothing changed."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer

pytestmark = pytest.mark.slow

FILES = {
    "customers": "customer_id,name,segment,signed_up_at\nc1,晨光,business,2025-01-01\nc2,B,business,2025-01-02\n",
    "activity": "customer_id,occurred_at,kind\nc1,2026-02-28 10:00,login\n",
    "orders": "order_id,customer_id,placed_at,paid_at,amount,currency,status\no1,c1,2026-02-01,2026-02-01,10,CNY,paid\n",
    "tickets": "ticket_id,customer_id,opened_at,closed_at,priority,kind,subject,body\nt1,c1,2026-02-01,,urgent,bug,s,b\n",
}


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The four files, as options."""
    given = []
    for name, content in FILES.items():
        (tmp_path / f"{name}.csv").write_text(content, encoding="utf-8")
        given += [f"--{name}", f"{name}.csv"]
    return given


def test_import_check_and_ask_in_one_sitting(followup, options: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    first = followup("data", "import", *options, "--timezone", "Asia/Shanghai", "--json")
    assert (first.code, first.err) == (0, "")
    assert first.json["rows"] == {"customers": 2, "activity_events": 1, "orders": 1, "tickets": 1}
    assert first.json["changes"]["customers"] == {"added": 2, "changed": 0, "removed": 0}
    assert (first.json["rejected"], first.json["problems"]) == (0, [])
    again = followup("data", "import", *options, "--timezone", "Asia/Shanghai")
    assert again.code == 0
    assert again.out.count("nothing changed") == 4
    assert "left out" not in again.err
    checked = followup("data", "check", "--as-of", "2026-03-01", "--json")
    assert (checked.code, checked.json["ok"]) == (0, True)
    run = followup("ask", "c1 要跟进吗", "--as-of", "2026-03-01", "--json")
    assert run.code == 0
    assert run.json["verdict"]["needs_followup"] is True


def test_the_zone_is_the_teams_and_another_one_is_told(followup, options: list[str]) -> None:  # type: ignore[no-untyped-def]
    """A zone in which times are read is not the one in which days begin, unless it is said."""
    zone = {"FOLLOWUP_TIMEZONE": "Asia/Shanghai"}
    team = followup("data", "import", *options, env=zone)
    assert "were read in Asia/Shanghai, where days begin too (FOLLOWUP_TIMEZONE)" in team.err
    again = followup("data", "import", *options, "--timezone", "Asia/Shanghai")
    assert again.out.count("nothing changed") == 4  # the same instants
    assert "days begin in UTC: " in again.err
    assert again.err.rstrip().endswith("set FOLLOWUP_TIMEZONE=Asia/Shanghai")
    checked = followup("data", "check", "--as-of", "2026-03-01", env=zone)
    assert "as of 2026-03-01T23:59+08:00 (days in Asia/Shanghai)" in checked.out
    proposed = followup("data", "map", "customers.csv", env=zone)
    assert 'timezone = "Asia/Shanghai"' in proposed.out


def test_bad_rows_are_reported_and_kept(followup, options: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with (tmp_path / "orders.csv").open("a", encoding="utf-8") as file:
        file.writelines(f"o{n},c1,2026-02-31,,1,CNY,paid\n" for n in range(2, 32))
    done = followup("data", "import", *options, "--rejects", "bad.csv")
    assert done.code == 0
    assert (
        "left out: orders.csv, line 3: placed_at is '2026-02-31': not a day of the calendar"
        in done.err
    )
    assert done.err.count("left out: orders.csv") == 20
    assert "… and 10 more" in done.err
    assert "30 bad rows were left out: all are in bad.csv" in done.err
    assert len((tmp_path / "bad.csv").read_text("utf-8").splitlines()) == 31
    strict = followup("data", "import", *options, "--strict")
    assert strict.code == 2
    assert "30 bad rows, and --strict: nothing was changed" in strict.err


@pytest.fixture
def filled(followup, options: list[str]) -> list[str]:  # type: ignore[no-untyped-def]
    """A database with the four files in it."""
    assert followup("data", "import", *options).code == 0
    return options


def content(path: Path) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return [
            connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in ("customers", "activity_events", "orders", "tickets")
        ]


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("orders.csv", b"", "is empty: the first line must name the columns"),
        (
            "orders.csv",
            b"order_id,customer_id,placed_at,paid_at,amount,currency,status\n",
            "holds no row",
        ),
        ("orders.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is a binary file"),
        ("orders.csv", bytes(range(256)) * 10, "binary"),
        ("orders.csv", b"%PDF-1.7 and what follows", "no column 'order_id'"),
        ("orders.csv", b"PK\x03\x04spreadsheet", "is a spreadsheet"),
        ("orders.csv", b"order_id,order_id,b\n1,2,3\n", "column 'order_id' is named twice"),
        ("orders.csv", b'order_id,"customer\n', "is not a CSV file"),
    ],
)
def test_what_is_no_export_changes_nothing(  # type: ignore[no-untyped-def]
    followup, filled: list[str], tmp_path: Path, name: str, raw: bytes, says: str
) -> None:
    before = content(tmp_path / "home" / "customers.db")
    (tmp_path / name).write_bytes(raw)
    done = followup("data", "import", *filled)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert str(name) in done.err
    assert done.err.count("\n") <= 2
    assert "Traceback" not in done.err
    assert content(tmp_path / "home" / "customers.db") == before


def test_a_line_of_10_gigabytes_is_refused_without_reading_it(
    followup, filled: list[str], tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    sparse = tmp_path / "big.csv"
    with sparse.open("wb") as file:
        file.write(b"order_id,")
        for _ in range(60):
            file.write(b"a" * 1_000_000)
        file.truncate(10_000_000_000)
    filled[filled.index("orders.csv")] = "big.csv"
    done = followup("data", "import", *filled)
    assert done.code == 2
    assert "line 1 has more than 10,000,000 characters" in done.err


def test_wrong_options_are_named(followup, options: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for more, says in (
        (["--timezone", "Asia/Shangai"], "is not a time zone"),
        (["--decimal", ";"], "--decimal is ';'"),
        (["--encoding", "utf-9"], "is no encoding"),
        (["--delimiter", "||"], "one character"),
        (["--map", "m.toml"], "--map names the files itself"),
        (["--from", "."], "--from goes with --map"),
        (["--rejects", "none/bad.csv"], "cannot write none/bad.csv"),
    ):
        done = followup("data", "import", *options, *more)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
    assert "name the files" in followup("data", "import").err
    assert not (tmp_path / "home" / "customers.db").exists()


def test_databases_that_cannot_be_used(followup, filled: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for url, says in (
        ("no url at all", "is not a database URL"),
        ("postgresql+psycopg://a:s3cret@127.0.0.1:1/x", "is not there: check host, port and name"),
        ("oracle+nothing://a:s3cret@h/x", "is not a database URL"),
        (f"sqlite:///{tmp_path}", "cannot be used"),
        (f"sqlite:///{tmp_path / 'orders.csv'}", "is not a database, or it is damaged"),
    ):
        for command in (["data", "import", *filled], ["data", "check"], ["ask", "c1 要跟进吗"]):
            done = followup(*command, env={"FOLLOWUP_CUSTOMERS_URL": url})
            assert done.code == 2, (url, command)
            assert says in done.err, (url, command, done.err)
            assert "s3cret" not in done.err + done.out
            assert done.err.count("\n") <= 2
            assert "Traceback" not in done.err
    assert (tmp_path / "orders.csv").read_text("utf-8") == FILES["orders"]


def test_a_file_that_may_only_be_read(followup, filled: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Opened so, because who runs the tests may be root, whom no permission stops."""
    path = tmp_path / "home" / "customers.db"
    before = content(path)
    env = {"FOLLOWUP_CUSTOMERS_URL": f"sqlite:///file:{path}?mode=ro&uri=true"}
    with (tmp_path / "customers.csv").open("a", encoding="utf-8") as file:
        file.write("c3,New,general,2026-02-01\n")
    done = followup("data", "import", *filled, env=env)
    assert done.code == 2
    assert "may only be read: check its permissions" in done.err
    assert content(path) == before
    assert followup("ask", "c1 要跟进吗", "--as-of", "2026-03-01", env=env).code == 0


def test_the_whole_of_it_on_postgres(
    followup, options: list[str], postgres: PostgresServer
) -> None:  # type: ignore[no-untyped-def]
    env = {"FOLLOWUP_CUSTOMERS_URL": postgres.database()}
    assert followup("data", "import", *options, env=env).code == 0
    assert followup("data", "check", "--as-of", "2026-03-01", env=env).code == 0
    asked = followup(
        "ask", "给 c1 建一个跟进任务", "--thread", "t", "--as-of", "2026-03-01", env=env
    )
    assert asked.code == 3, asked.err
    assert followup("approve", "t", env=env).code == 0
    explained = followup("policy", "explain", "c1", "--as-of", "2026-03-01", "--json", env=env)
    assert explained.json["needs_followup"] is True
    doctor = followup("doctor", "--json", env=env)
    assert json.dumps(doctor.json).count("has the four relations") == 1
