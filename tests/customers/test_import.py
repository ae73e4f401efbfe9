"""Business data from files: every fault is named by file, line and column, and none half-loads."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from followup_agent.customers.database import CustomerDatabase, sqlite_url
from followup_agent.customers.importing import Export, _tables
from followup_agent.customers.load import Rows, replace_all
from followup_agent.customers.mapping import read_mapping as read_mapping_file
from followup_agent.customers.rows import Reading, Rejects, typed_rows
from followup_agent.customers.sample import make_company
from followup_agent.service.errors import CustomerDataError

GOOD = {
    "customers": """customer_id,name,segment,signed_up_at
user_1,晨光文旅,business,2025-01-01
user_2,"Alder, Labs",consumer,2025-02-01T08:00:00+08:00
""",
    "activity_events": """customer_id,occurred_at,kind
user_1,2026-02-01 10:00:00,login
user_1,2026-02-01T10:00:00Z,feature
user_1,2026-02-01T10:00:00Z,feature
""",
    "orders": """order_id,customer_id,placed_at,paid_at,amount,currency,status
O1,user_1,2026-02-01 10:00:00,2026-02-01 10:12:00,680.5,CNY,paid
O2,user_1,2026-02-02 10:00:00,,49,USD,placed
""",
    "tickets": """ticket_id,customer_id,opened_at,closed_at,priority,kind,subject,body
T1,user_1,2026-02-01 10:00:00,,urgent,bug,登录后页面空白,"第一行
第二行"
T2,user_2,2026-02-01 10:00:00,2026-02-02 10:00:00,low,question,How?,
""",
}
LINE = {
    "customers": "user_3,C,business,2025-01-01\n",
    "activity_events": "user_1,2026-02-01,login\n",
    "orders": "O3,user_1,2026-02-01,,1,CNY,placed\n",
    "tickets": "T3,user_1,2026-02-01,,low,bug,s,b\n",
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The four good files."""
    paths = {relation: tmp_path / f"{relation}.csv" for relation in GOOD}
    for relation, path in paths.items():
        path.write_text(GOOD[relation], encoding="utf-8")
    return paths


def read(export: Export) -> Rows:
    """The typed rows; the first bad one is raised."""
    known: set[str] = set()
    with Rejects() as rejects, _tables(export, rejects, lambda _, table: table) as tables:
        rows = Rows(
            **{
                relation: list(typed_rows(relation, *source, export.reading, rejects, known))
                for relation, source in tables.items()
            }
        )
    if rejects.shown:
        raise CustomerDataError(str(rejects.shown[0]))
    return rows


def read_files(files: Mapping[str, Path], reading: Reading | None = None) -> Rows:
    return read(Export(files=files, reading=reading or Reading()))


def read_mapping(path: Path, folder: Path | None = None) -> Rows:
    mapping = read_mapping_file(path)
    return read(Export(mapping=(mapping, path), folder=folder, reading=mapping.reading()))


def refusal(files: Mapping[str, Path]) -> str:
    with pytest.raises(CustomerDataError) as refused:
        read_files(files)
    return str(refused.value)


def test_files_with_our_columns_become_typed_rows(files: dict[str, Path]) -> None:
    rows = read_files(files)
    assert rows.counts() == {"customers": 2, "activity_events": 3, "orders": 2, "tickets": 2}
    assert rows.customers[0] == {
        "customer_id": "user_1",
        "name": "晨光文旅",
        "segment": "business",
        "signed_up_at": datetime(2025, 1, 1, tzinfo=UTC),
    }
    assert rows.customers[1]["name"] == "Alder, Labs"
    assert rows.customers[1]["signed_up_at"] == datetime(2025, 2, 1, tzinfo=UTC)
    assert rows.orders[0]["amount"] == 680.5
    assert rows.orders[1]["paid_at"] is None
    assert rows.tickets[0]["body"] == "第一行\n第二行"
    assert rows.tickets[1]["body"] == ""
    assert {row["occurred_at"] for row in rows.activity_events} == {
        datetime(2026, 2, 1, 10, tzinfo=UTC)
    }


def test_a_byte_order_mark_and_windows_line_ends_are_no_matter(files: dict[str, Path]) -> None:
    plain = read_files(files)
    for relation, path in files.items():
        path.write_bytes(b"\xef\xbb\xbf" + GOOD[relation].replace("\n", "\r\n").encode())
    rows = read_files(files)
    rows.tickets[0]["body"] = rows.tickets[0]["body"].replace("\r\n", "\n")
    assert rows == plain


def test_columns_may_stand_in_any_order_beside_others(files: dict[str, Path]) -> None:
    files["activity_events"].write_text(
        "note,kind,occurred_at,customer_id\nx,login,2026-02-01,user_1\n", encoding="utf-8"
    )
    assert read_files(files).activity_events == [
        {"customer_id": "user_1", "occurred_at": datetime(2026, 2, 1, tzinfo=UTC), "kind": "login"}
    ]


def test_a_file_with_its_first_line_only_is_refused_with_what_to_do(files: dict[str, Path]) -> None:
    files["tickets"].write_text(GOOD["tickets"].splitlines()[0] + "\n", encoding="utf-8")
    assert "holds no row: leave tickets out" in refusal(files)


@pytest.mark.parametrize(
    ("relation", "line", "column", "says"),
    [
        ("customers", "user_3,C,business,yesterday", "signed_up_at", "is 'yesterday'"),
        ("customers", "user_3,C,business,", "signed_up_at", "is empty"),
        ("customers", ",C,business,2025-01-01", "customer_id", "is empty"),
        ("customers", "user_3,C,business,2025-02-30", "signed_up_at", "is '2025-02-30'"),
        ("customers", f"{'x' * 201},C,business,2025-01-01", "customer_id", "up to 64"),
        ("activity_events", "user_1,,login", "occurred_at", "is empty"),
        ("activity_events", ",2026-02-01,login", "customer_id", "is empty"),
        ("activity_events", "user_1,17723232001,login", "occurred_at", "is '17723232001'"),
        ("activity_events", "user_1,03/04/2026,login", "occurred_at", "day first or month first"),
        ("orders", "O3,user_1,2026-02-01,,1,CNY,done", "status", "is 'done'"),
        ("orders", "O3,user_1,2026-02-01,,1,cny,paid", "currency", "is 'cny'"),
        ("orders", "O3,user_1,2026-02-01,,1.000 €,EUR,paid", "amount", "thousands or a fraction"),
        ("orders", "O3,user_1,2026-02-01,,nan,CNY,paid", "amount", "is 'nan'"),
        ("orders", "O3,user_1,2026-02-01,,,CNY,paid", "amount", "is empty"),
        ("orders", "O3,user_1,,,1,CNY,paid", "placed_at", "is empty"),
        ("orders", "O3,user_1,2026-02-01,soon,1,CNY,paid", "paid_at", "is 'soon'"),
        ("orders", ",user_1,2026-02-01,,1,CNY,paid", "order_id", "is empty"),
        ("tickets", "T3,user_1,2026-02-01,,medium,bug,s,b", "priority", "is 'medium'"),
        ("tickets", "T3,user_1,2026-02-01,,,bug,s,b", "priority", "is empty"),
        ("tickets", "T3,,2026-02-01,,low,bug,s,b", "customer_id", "is empty"),
        ("tickets", "T3,user_1,2026-02-01,never,low,bug,s,b", "closed_at", "is 'never'"),
    ],
)
def test_the_first_bad_row_is_named_with_file_line_and_column(
    files: dict[str, Path], relation: str, line: str, column: str, says: str
) -> None:
    path = files[relation]
    path.write_text(GOOD[relation] + LINE[relation] + line + "\n", encoding="utf-8")
    number = (GOOD[relation] + LINE[relation]).count("\n") + 1
    said = refusal(files)
    assert f"{path}, line {number}: {column}" in said
    assert says in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("relation", "key"),
    [("customers", "customer_id"), ("orders", "order_id"), ("tickets", "ticket_id")],
)
def test_a_second_row_of_the_same_key_is_refused(
    files: dict[str, Path], relation: str, key: str
) -> None:
    path = files[relation]
    path.write_text(GOOD[relation] + LINE[relation] * 2, encoding="utf-8")
    number = GOOD[relation].count("\n") + 2
    said = refusal(files)
    assert f"{path}, line {number}: {key}" in said
    assert "already" in said
    assert str(number - 1) in said


@pytest.mark.parametrize("relation", list(GOOD))
def test_a_missing_column_is_named_with_all_that_are_needed(
    files: dict[str, Path], relation: str
) -> None:
    first = GOOD[relation].splitlines()[0]
    files[relation].write_text(GOOD[relation].replace("customer_id", "client", 1), encoding="utf-8")
    said = refusal(files)
    assert f"{files[relation]}: no column 'customer_id'" in said
    assert first.split(",")[-1] in said


def test_a_wrong_first_line_is_refused_without_any_row_too(files: dict[str, Path]) -> None:
    files["tickets"].write_text("id,client\n", encoding="utf-8")
    assert f"{files['tickets']}: no column 'ticket_id'" in refusal(files)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters_are_found_out(files: dict[str, Path], delimiter: str) -> None:
    plain = read_files(files)
    for path in (files["orders"], files["activity_events"]):
        path.write_text(path.read_text("utf-8").replace(",", delimiter), encoding="utf-8")
    assert read_files(files) == plain


@pytest.mark.parametrize("line", ["user_1,2026-02-01", "user_1,2026-02-01,login,more"])
def test_a_row_with_more_or_fewer_columns_is_named(files: dict[str, Path], line: str) -> None:
    files["activity_events"].write_text(GOOD["activity_events"] + line + "\n", encoding="utf-8")
    said = refusal(files)
    assert f"{files['activity_events']}, line 5" in said
    assert "3 columns" in said


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "utf-8-sig", "utf-16"])
def test_encodings_of_spreadsheets_are_found_out(files: dict[str, Path], encoding: str) -> None:
    plain = read_files(files)
    for relation in ("customers", "tickets"):
        files[relation].write_bytes(GOOD[relation].encode(encoding))
    assert read_files(files) == plain


def test_text_of_another_encoding_is_never_taken_for_chinese(files: dict[str, Path]) -> None:
    text = GOOD["customers"].replace("晨光文旅", "Café Grün, à côté d'Orléans".replace(",", ""))
    files["customers"].write_bytes(text.encode("cp1252"))
    assert "--encoding cp1252" in refusal(files)
    export = Export(files={"customers": files["customers"]}, encoding="cp1252")
    assert read(export).customers[0]["name"] == "Café Grün à côté d'Orléans"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b'customer_id,name,segment,signed_up_at\nuser_1,"A,business,2025-01-01\n', "not a CSV"),
        (b"customer_id\0name", "is a binary file"),
        (b"PK\x03\x04 and so on", "is a spreadsheet"),
        (b"\x1f\x8b and so on", "is compressed"),
        (b"SQLite format 3\0 and so on", "FOLLOWUP_CUSTOMERS_URL"),
        (b"PAR1 and so on", "is a damaged Parquet file"),
        (b"a" * 10_000_002, "more than 10,000,000 characters"),
        (b"customer_id,name,name,signed_up_at\n", "'name' is named twice"),
    ],
)
def test_what_is_no_csv_file_is_refused(files: dict[str, Path], content: bytes, says: str) -> None:
    files["customers"].write_bytes(content)
    said = refusal(files)
    assert str(files["customers"]) in said
    assert says in said


def test_a_missing_file_is_named(files: dict[str, Path]) -> None:
    files["orders"].unlink()
    assert f"cannot read {files['orders']}: No such file" in refusal(files)


def test_a_folder_in_place_of_a_file_is_named(files: dict[str, Path], tmp_path: Path) -> None:
    assert f"cannot read {tmp_path}" in refusal(files | {"orders": tmp_path})


# --- into the database ---


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CustomerDatabase]:
    database = CustomerDatabase(sqlite_url(tmp_path / "customers.db"))
    yield database
    database.close()


def held(database: CustomerDatabase, relation: str = "customers") -> list[str]:
    with closing(sqlite3.connect(str(database.url.database))) as connection:
        return [str(row[0]) for row in connection.execute(f"SELECT * FROM {relation} ORDER BY 1")]


def rows_of(*ids: str) -> Rows:
    return Rows(
        customers=[
            {
                "customer_id": customer_id,
                "name": "",
                "segment": "general",
                "signed_up_at": datetime(2025, 1, 1, tzinfo=UTC),
            }
            for customer_id in ids
        ]
    )


def test_rows_are_put_into_a_new_database(
    files: dict[str, Path], database: CustomerDatabase
) -> None:
    replace_all(database, read_files(files), is_sample=False)
    assert database.check()
    assert held(database) == ["user_1", "user_2"]
    assert held(database, "tickets") == ["T1", "T2"]


def test_a_sample_is_replaced_without_a_word(database: CustomerDatabase) -> None:
    as_of = datetime(2026, 3, 1, tzinfo=UTC)
    replace_all(database, make_company(3, 1, as_of), is_sample=True)
    replace_all(database, make_company(5, 1, as_of), is_sample=True)
    assert len(held(database)) == 5
    replace_all(database, rows_of("c1"), is_sample=False)
    assert held(database) == ["c1"]
    assert held(database, "tickets") == []


@pytest.mark.parametrize("is_sample", [True, False])
def test_imported_data_are_not_replaced_unless_told(
    database: CustomerDatabase, is_sample: bool
) -> None:
    replace_all(database, rows_of("c1", "c2"), is_sample=False)
    with pytest.raises(CustomerDataError, match=r"2 (customers already|of the 2).*--replace"):
        replace_all(database, rows_of("c3"), is_sample=is_sample)
    assert held(database) == ["c1", "c2"]
    replace_all(database, rows_of("c3"), is_sample=is_sample, replace=True)
    assert held(database) == ["c3"]


def test_imported_data_stay_imported_data_after_a_refusal(database: CustomerDatabase) -> None:
    replace_all(database, rows_of("c1"), is_sample=False)
    for _ in range(2):
        with pytest.raises(CustomerDataError):
            replace_all(database, rows_of("c2"), is_sample=True)


def test_a_row_the_database_refuses_leaves_the_old_data_whole(
    files: dict[str, Path], database: CustomerDatabase
) -> None:
    replace_all(database, read_files(files), is_sample=True)
    bad = rows_of(*(f"c{number}" for number in range(6000)), "c1")
    with pytest.raises(CustomerDataError, match="nothing was changed"):
        replace_all(database, bad, is_sample=False)
    assert held(database) == ["user_1", "user_2"]
    assert held(database, "orders") == ["O1", "O2"]
    replace_all(database, rows_of("c1"), is_sample=True)  # it is still marked as made up


def test_follow_up_tasks_are_kept(database: CustomerDatabase) -> None:
    replace_all(database, rows_of("c1"), is_sample=False)
    with closing(sqlite3.connect(str(database.url.database))) as connection:
        connection.execute(
            "INSERT INTO followup_tasks VALUES ('t1', 'k', 'c1', 'r', 'high', '2026-01-01', NULL, '[]', 'th', 'me', '2026-01-01')"
        )
        connection.commit()
    replace_all(database, rows_of("c2"), is_sample=False, replace=True)
    assert held(database, "followup_tasks") == ["t1"]


@pytest.mark.parametrize("replace", [True, False])
def test_nothing_is_loaded_into_a_database_of_views(
    database: CustomerDatabase, replace: bool
) -> None:
    replace_all(database, rows_of("c1"), is_sample=False)
    with closing(sqlite3.connect(str(database.url.database))) as connection:
        connection.executescript(
            "ALTER TABLE customers RENAME TO clients; CREATE VIEW customers AS SELECT * FROM clients"
        )
    with pytest.raises(CustomerDataError, match=r"customers in .* is a view"):
        replace_all(database, rows_of("c2"), is_sample=False, replace=replace)
    assert held(database, "clients") == ["c1"]


def test_a_file_that_is_no_database_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n" * 200, encoding="utf-8")
    database = CustomerDatabase(sqlite_url(path))
    with pytest.raises(CustomerDataError, match="not a database"):
        replace_all(database, rows_of("c1"), is_sample=True, replace=True)
    database.close()
    assert path.read_text(encoding="utf-8") == "my notes\n" * 200


# --- mapping files ---

MAPPING = """
timezone = "Asia/Shanghai"

[files]
accounts = "accounts.csv"
subs = "subs.csv"
visits = "visits.csv"
cases = "cases.csv"

[relations]
customers = '''
SELECT account AS customer_id, title AS name, lower(tier) AS segment,
       parse_time(joined, '%d/%m/%Y') AS signed_up_at
FROM accounts'''
activity_events = '''
SELECT s.account AS customer_id, v.at AS occurred_at, 'feature' AS kind
FROM visits v JOIN subs s ON s.sub = v.sub'''
orders = '''
SELECT sub AS order_id, account AS customer_id, parse_time(start, '%Y%m%d %H%M') AS placed_at,
       CASE gone WHEN 'TRUE' THEN NULL ELSE parse_time(start, '%Y%m%d %H%M') END AS paid_at,
       price AS amount, 'USD' AS currency,
       CASE gone WHEN 'TRUE' THEN 'cancelled' ELSE 'paid' END AS status
FROM subs'''
tickets = '''
SELECT nr AS ticket_id, account AS customer_id, opened AS opened_at, closed AS closed_at,
       CASE level WHEN 'P1' THEN 'urgent' ELSE 'normal' END AS priority,
       'question' AS kind, '' AS subject, '' AS body
FROM cases'''
"""
SOURCE = {
    "accounts.csv": 'account,title,tier,joined\nA-1,"Alder ""AL"" Labs",PRO,31/12/2024\nA-2,晨光,Basic,01/02/2025\n',
    "subs.csv": "sub,account,start,gone,price\nS1,A-1,20260105 0830,FALSE,12.5\nS2,A-2,20260106 0000,TRUE,3\n",
    "visits.csv": "sub,at\nS1,2026-02-01\nS1,2026-02-01 07:30\nS2,2026-02-01T07:30:00Z\nS9,2026-02-02\n",
    "cases.csv": "nr,account,opened,closed,level\nT1,A-1,2026-02-01,,P1\nT2,A-2,2026-02-01,2026-02-03,P3\n",
}


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    for name, content in SOURCE.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    path = tmp_path / "map.toml"
    path.write_text(MAPPING, encoding="utf-8")
    return path


def mapping_refusal(mapping: Path, folder: Path | None = None) -> str:
    with pytest.raises(CustomerDataError) as refused:
        read_mapping(mapping, folder)
    said = str(refused.value)
    assert "\n" not in said
    return said


def change(path: Path, old: str, new: str) -> Path:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_a_mapping_renames_joins_and_reads_times_in_its_zone(mapping: Path) -> None:
    rows = read_mapping(mapping)
    assert rows.customers == [
        {
            "customer_id": "A-1",
            "name": 'Alder "AL" Labs',
            "segment": "pro",
            "signed_up_at": datetime(2024, 12, 30, 16, tzinfo=UTC),
        },
        {
            "customer_id": "A-2",
            "name": "晨光",
            "segment": "basic",
            "signed_up_at": datetime(2025, 1, 31, 16, tzinfo=UTC),
        },
    ]
    assert [(e["customer_id"], e["occurred_at"], e["kind"]) for e in rows.activity_events] == [
        ("A-1", datetime(2026, 1, 31, 16, tzinfo=UTC), "feature"),
        ("A-1", datetime(2026, 1, 31, 23, 30, tzinfo=UTC), "feature"),
        ("A-2", datetime(2026, 2, 1, 7, 30, tzinfo=UTC), "feature"),
    ]
    placed = datetime(2026, 1, 5, 0, 30, tzinfo=UTC)
    assert rows.orders[0] == {
        "order_id": "S1",
        "customer_id": "A-1",
        "placed_at": placed,
        "paid_at": placed,
        "amount": 12.5,
        "currency": "USD",
        "status": "paid",
    }
    assert (rows.orders[1]["status"], rows.orders[1]["paid_at"]) == ("cancelled", None)
    assert [(t["priority"], t["closed_at"]) for t in rows.tickets] == [
        ("urgent", None),
        ("normal", datetime(2026, 2, 2, 16, tzinfo=UTC)),
    ]


def test_an_empty_text_of_a_query_is_empty(mapping: Path) -> None:
    change(mapping, "closed AS closed_at", "coalesce(closed, ' ') AS closed_at")
    assert read_mapping(mapping).tickets[0]["closed_at"] is None
    change(mapping, "price AS amount", "'' AS amount")
    assert "amount is empty: it is needed" in mapping_refusal(mapping)


def test_a_mapping_without_zone_reads_times_in_utc(mapping: Path) -> None:
    change(mapping, 'timezone = "Asia/Shanghai"', "")
    assert read_mapping(mapping).customers[0]["signed_up_at"] == datetime(2024, 12, 31, tzinfo=UTC)


def test_the_files_may_be_in_another_folder(mapping: Path, tmp_path: Path) -> None:
    other = tmp_path / "maps"
    other.mkdir()
    moved = mapping.rename(other / "map.toml")
    assert read_mapping(moved, tmp_path).counts()["customers"] == 2
    assert str(other / "accounts.csv") in mapping_refusal(moved)


def test_a_query_without_any_row_is_refused(mapping: Path, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("nr,account,opened,closed,level\n", encoding="utf-8")
    assert "relations.tickets names columns and holds no row" in mapping_refusal(mapping)


def test_a_relation_may_be_left_out_of_a_mapping(mapping: Path) -> None:
    text = mapping.read_text(encoding="utf-8")
    mapping.write_text(text[: text.index("tickets = ")], encoding="utf-8")
    rows = read_mapping(mapping)
    assert (len(rows.orders), rows.tickets) == (2, [])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[files]", "[files", "is not TOML"),
        ("timezone", "timezne", "timezne: Extra inputs"),
        ("tickets = '''", "ticketz = '''", "relations.ticket"),
        ("cases = ", '"my cases" = ', "files"),
        ('"cases.csv"', '{ path = "cases.csv", encoding = "gb12345" }', "is no encoding"),
        ("FROM accounts", "FORM accounts", "relations.customers: near"),
        ("FROM accounts", "FROM acounts", "relations.customers: no such table: acounts"),
        ("lower(tier)", "lower(teir)", "relations.customers: no such column: teir"),
        ("'USD' AS currency", "'USD' AS curency", "relations.orders: no column 'currency'"),
        ('"cases.csv"', '"nocases.csv"', "nocases.csv: No such file"),
        ("'%d/%m/%Y'", "'%Y-%m-%d'", "relations.customers, row 1: signed_up_at is '31/12/2024'"),
        ("'USD'", "'usd'", "relations.orders, row 1: currency is 'usd'"),
        ("ELSE 'normal'", "ELSE level", "relations.tickets, row 2: priority is 'P3'"),
        ("nr AS ticket_id", "'T' AS ticket_id", "relations.tickets, row 2: ticket_id 'T' is there"),
        ("Asia/Shanghai", "Asia/Shanghia", "timezone"),
        ("SELECT nr", "DELETE FROM cases; SELECT nr", "relations.tickets"),
    ],
)
def test_a_fault_in_a_mapping_is_named(mapping: Path, old: str, new: str, says: str) -> None:
    assert says in mapping_refusal(change(mapping, old, new))


def test_a_statement_that_is_no_query_is_refused(mapping: Path) -> None:
    text = mapping.read_text(encoding="utf-8")
    start = text.index("tickets = '''")
    mapping.write_text(text[:start] + "tickets = 'DELETE FROM cases'\n", encoding="utf-8")
    assert "relations.tickets" in mapping_refusal(mapping)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("cases.csv", b"nr,account,opened,closed,level\nT1\n", "cases.csv, line 2"),
        ("cases.csv", "nr,account\nCafé é,1\n".encode("cp1252"), "cases.csv is neither UTF-8"),
        ("cases.csv", b"", "cases.csv is empty"),
        ("cases.csv", b"nr,nr,account,opened,closed,level\n1,1,A,2026-02-01,,P1\n", "cases.csv"),
        (
            "visits.csv",
            b"sub,at\nS1,2026-02-30\n",
            "relations.activity_events, row 1: occurred_at is '2026-02-30'",
        ),
        (
            "visits.csv",
            b"sub,at\nS1,2026-02-01 25:00\n",
            "relations.activity_events, row 1: occurred_at is",
        ),
        ("visits.csv", b"sub,at\nS1,\n", "relations.activity_events, row 1: occurred_at is empty"),
        (
            "visits.csv",
            b"sub,at\nS1,soon\n",
            "relations.activity_events, row 1: occurred_at is 'soon'",
        ),
    ],
)
def test_a_fault_in_a_mapped_file_is_named(
    mapping: Path, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert says in mapping_refusal(mapping)


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '{folder}/evil.db' AS e",
        "SELECT 1 FROM pragma_database_list",
        "PRAGMA journal_mode = DELETE",
        "INSERT INTO cases SELECT * FROM cases",
        "CREATE TABLE more AS SELECT * FROM cases",
        "SELECT load_extension('x')",
        "VACUUM INTO '{folder}/evil.db'",
    ],
)
def test_a_mapping_from_somebody_else_can_only_read_its_files(
    mapping: Path, tmp_path: Path, statement: str
) -> None:
    text = mapping.read_text(encoding="utf-8")
    query = statement.format(folder=tmp_path)
    mapping.write_text(
        text[: text.index("tickets = ")] + f'tickets = "{query}"\n', encoding="utf-8"
    )
    assert "relations.tickets" in mapping_refusal(mapping)
    assert not (tmp_path / "evil.db").exists()


def test_a_pipe_is_refused_with_what_to_do(files: dict[str, Path], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe or a device: save it as a file" in refusal(
        files | {"orders": tmp_path / "pipe"}
    )


def test_a_column_name_may_hold_a_quote(mapping: Path, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(
        'nr,"a""b",account,opened,closed,level\nT1,x,A-1,2026-02-01,,P1\n', encoding="utf-8"
    )
    assert read_mapping(mapping).counts()["tickets"] == 1


@pytest.mark.parametrize(
    "cell", ["2026-02-01", " 2026-02-01 ", "20260201", "2026-02-01T00", "2026-02-01 00:00:00,0"]
)
def test_a_time_without_zone_is_in_the_mappings_zone_in_any_form(
    mapping: Path, tmp_path: Path, cell: str
) -> None:
    (tmp_path / "visits.csv").write_text(f'sub,at\nS1,"{cell}"\n', encoding="utf-8")
    assert read_mapping(mapping).activity_events[0]["occurred_at"] == datetime(
        2026, 1, 31, 16, tzinfo=UTC
    )


def test_a_missing_mapping_file_is_named(tmp_path: Path) -> None:
    assert f"cannot read mapping {tmp_path / 'no.toml'}" in mapping_refusal(tmp_path / "no.toml")


def test_a_mapping_that_is_not_utf_8_is_refused(mapping: Path) -> None:
    mapping.write_bytes(MAPPING.encode() + b"# \xff\n")
    assert "is not TOML text" in mapping_refusal(mapping)


@pytest.mark.parametrize("relation", ["activity_events", "orders", "tickets"])
def test_a_row_of_a_customer_who_is_not_there_is_refused(
    files: dict[str, Path], relation: str
) -> None:
    """A misspelled id would read as a customer with nothing."""
    with files[relation].open("a", encoding="utf-8") as file:
        file.write(LINE[relation].replace("user_1", "C-9999"))
    assert "C-9999" in refusal(files)
    assert "not among the customers" in refusal(files)
