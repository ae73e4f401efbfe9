"""`data map` proposes a mapping that can be imported as it stands, and says what a person must look at."""

from pathlib import Path

import pytest

from followup_agent.cli.start import _run as main
from followup_agent.customers.database import CustomerDatabase, sqlite_url
from followup_agent.customers.importing import Export, Imported, import_export
from followup_agent.customers.mapping import read_mapping
from followup_agent.customers.propose import Proposal, propose_mapping
from followup_agent.service.errors import CustomerDataError

CHINESE = {
    "客户表.csv": "客户编号;客户名称;客户等级;注册时间\nK001;晨光文旅;企业;2025/1/5\nK002;远山教育;个人;2025/2/6\n",
    "登录日志.csv": "客户编号;登录时间;事件类型\nK001;2026年2月1日 10:00;登录\nK002;2026年2月2日 11:30;浏览\n",
    "订单.csv": "订单编号;客户编号;下单时间;支付时间;金额;订单状态\n"
    "D1;K001;2026-02-01 10:00;2026-02-01 10:05;¥1,234.50;已支付\nD2;K002;2026-02-02 10:00;;¥88.00;待支付\n",
    "工单.csv": "工单编号;客户编号;提交时间;关闭时间;优先级;标题;内容\n"
    "G1;K001;2026-02-01 10:00;;紧急;打不开;第一句\nG2;K002;2026-02-01 10:00;2026-02-03 09:00;普通;发票;改抬头\n",
}
GERMAN = {
    "clients.csv": "id;company;tier;created_at\n17;Müller GmbH;gold;05.01.2025\n18;Grün AG;basic;06.02.2025\n",
    "visits.csv": "session_key;visited_at\ns1;31/01/2026 10:00\ns2;28/02/2026 11:30\n",
    "sessions.csv": "session_key;client_id\ns1;17\ns2;18\n",
    "invoices.csv": "invoice_no;client_id;invoice_date;total\nR1;17;01.02.2026;1.234,50 €\nR2;18;02.02.2026;99,00 €\n",
}

MEMBERS = {
    "会员.csv": "会员号,姓名,会员等级,入会日期,手机\nM1,甲,金卡,2025/11/25,1\nM2,乙,普通,2025/10/20,2\n",
    "到店记录.csv": "会员号,到店时间,门店\nM1,2026/09/30 06:22,东门\nM2,2026/09/29 16:22,西门\n",
    "消费单.csv": "消费单号,会员号,消费时间,实付金额,单据状态\nX1,M1,2026/09/30 07:00,￥88.00,已支付\nX2,M2,2026/09/30 08:00,￥9.00,待支付\n",
    "投诉.csv": '投诉编号,会员号,登记时间,办结时间,紧急程度,投诉标题,详情\nT1,M1,2026/10/22 09:00,,紧急,"等太久,没人理",请回复\n',
}

COMPANIES = {
    "companies.csv": "\ufeffCompany ID;Company;Plan;Customer since\n1;Alder;Team;May 04, 2026\n2;Birch;Starter;Aug 17, 2026\n",
    "users.csv": "user_id;company_id\n1;2\n2;1\n3;1\n",
    "logins.csv": "user_id;login_ts\n1;1793955507516\n3;1795399744599\n9;1795399744599\n",
    "invoices.csv": "Invoice No.;Company ID;Invoice date;Paid on;Amount;State\nR1;1;21.08.2026 01:12;28.08.2026 03:31;$2,207.79;paid\nR2;2;23.08.2026 01:12;;$9.00;credited\n",
    "helpdesk.csv": 'Case #;Company ID;Opened;Closed;Severity;Subject;Text\n51;2;25.11.2026 03:47;;S1;Slow;"One;\ntwo"\n52;2;25.11.2026 04:47;;S4;Slow;x\n',
}


def write(folder: Path, files: dict[str, str], encoding: str = "utf-8") -> list[Path]:
    for name, content in files.items():
        (folder / name).write_bytes(content.encode(encoding))
    return [folder / name for name in files]


def load(folder: Path, proposal: Proposal) -> tuple[Imported, CustomerDatabase]:
    path = folder / "mapping.toml"
    path.write_text(proposal.text, encoding="utf-8")
    mapping = read_mapping(path)
    database = CustomerDatabase(sqlite_url(folder / "c.db"))
    return import_export(
        database, Export(mapping=(mapping, path), reading=mapping.reading())
    ), database


def rows(database: CustomerDatabase, query: str) -> list[tuple[object, ...]]:
    with database.reader.connect() as connection:
        found = [tuple(row) for row in connection.exec_driver_sql(query)]
    database.close()
    return found


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_chinese_headers_and_words_become_ours(tmp_path: Path, encoding: str) -> None:
    proposal = propose_mapping(write(tmp_path, CHINESE, encoding), tmp_path)
    assert {relation: Path(path).name for relation, path in proposal.relations.items()} == {
        "customers": "客户表.csv",
        "activity_events": "登录日志.csv",
        "orders": "订单.csv",
        "tickets": "工单.csv",
    }
    done, database = load(tmp_path, proposal)
    assert (done.rejected, done.rows) == (
        0,
        {"customers": 2, "activity_events": 2, "orders": 2, "tickets": 2},
    )
    query = "SELECT o.amount, o.currency, o.status, t.priority, t.subject, e.kind FROM orders o JOIN tickets t USING (customer_id) JOIN activity_events e USING (customer_id) ORDER BY 1 DESC"
    assert rows(database, query) == [
        (1234.5, "CNY", "paid", "urgent", "打不开", "login"),
        (88, "CNY", "placed", "normal", "发票", "浏览"),
    ]
    assert any(remark.startswith("timezone") for remark in proposal.open)
    assert any("orders.currency: CNY, by the sign ¥" in remark for remark in proposal.open)


def test_words_that_are_not_in_any_list_are_put_together(tmp_path: Path) -> None:
    """A gym's export: 会员号, 到店时间, 消费单号, 登记时间, 办结时间."""
    proposal = propose_mapping(write(tmp_path, MEMBERS, "gb18030"), tmp_path)
    done, database = load(tmp_path, proposal)
    assert (done.rejected, sum(done.rows.values())) == (0, 7)
    query = "SELECT o.status, o.paid_at IS NULL, t.priority, t.subject, t.closed_at FROM orders o LEFT JOIN tickets t USING (customer_id) ORDER BY 1"
    assert rows(database, query) == [
        ("paid", 0, "urgent", "等太久,没人理", None),
        ("placed", 1, None, None, None),
    ]


def test_companies_are_the_customers_and_not_their_users(tmp_path: Path) -> None:
    """Both are numbered from 1; a login is of the company of its user, and none is lost silently."""
    proposal = propose_mapping(write(tmp_path, COMPANIES), tmp_path)
    assert any("S1 as urgent, S4 as low; is that so?" in remark for remark in proposal.open)
    done, database = load(tmp_path, proposal)
    assert done.rows == {"customers": 2, "activity_events": 2, "orders": 2, "tickets": 2}
    assert [str(problem) for problem in done.problems] == [
        f"{tmp_path / 'logins.csv'}, line 4: customer_id is empty: it is needed"
    ]
    query = "SELECT c.customer_id, c.name, c.segment, e.occurred_at, o.amount, o.currency, o.status, (SELECT group_concat(priority) FROM tickets t WHERE t.customer_id = c.customer_id) FROM customers c JOIN activity_events e USING (customer_id) JOIN orders o USING (customer_id) ORDER BY 1"
    found = [row[:3] + row[4:] for row in rows(database, query)]
    assert found == [
        ("1", "Alder", "Team", 2207.79, "USD", "paid", None),
        ("2", "Birch", "Starter", 9.0, "USD", "refunded", "urgent,low"),
    ]


@pytest.mark.parametrize(
    ("words", "priorities"),
    [
        ("P0 P1 P2 P3", "urgent high normal low"),
        ("P1 P2 P3 P4", "urgent high normal low"),
        ("Sev 1,SEV-2,s5", "urgent high low"),
    ],
)
def test_levels_are_put_in_order_and_asked_about(
    tmp_path: Path, words: str, priorities: str
) -> None:
    said = words.split(",") if "," in words else words.split()
    lines = "".join(f"t{n},c1,2026-01-01,{word}\n" for n, word in enumerate(said))
    files = {
        "customers.csv": "customer_id,name,signup_date\nc1,A,2025-01-01\n",
        "tickets.csv": f"ticket_id,customer_id,created_at,priority\n{lines}",
    }
    proposal = propose_mapping(write(tmp_path, files), tmp_path)
    assert any(f"{said[0]} as urgent" in remark for remark in proposal.open)
    _, database = load(tmp_path, proposal)
    found = rows(database, "SELECT priority FROM tickets ORDER BY ticket_id")
    assert [priority for (priority,) in found] == priorities.split()


def test_two_files_of_one_name_are_two_tables(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    text = "customer_id,name,signup_date\nc1,A,2025-01-01\n"
    paths = [
        *write(tmp_path, {"customers.csv": text}),
        *write(tmp_path / "old", {"customers.csv": text}),
    ]
    done, database = load(tmp_path, propose_mapping(paths, tmp_path))
    database.close()
    assert done.rows == {"customers": 1}


def test_customers_are_found_before_anything_else(tmp_path: Path) -> None:
    """A file that could be orders or tickets as well, in a language of which no word is known."""
    files = {"kunden.csv": "id;Firma;Stand\n7;Müller;1.2.2025\n8;B;2.2.2025\n"}
    assert set(propose_mapping(write(tmp_path, files), tmp_path).relations) == {"customers"}


def test_joins_other_notations_and_missing_columns(tmp_path: Path) -> None:
    proposal = propose_mapping(write(tmp_path, GERMAN), tmp_path)
    assert 'JOIN "sessions" USING ("session_key")' in proposal.text
    assert 'parse_time("visits"."visited_at", \'%d/%m/%Y %H:%M\')' in proposal.text
    done, database = load(tmp_path, proposal)
    assert done.rejected == 0
    query = "SELECT customer_id, amount, currency, status, placed_at = paid_at FROM orders ORDER BY order_id"
    assert rows(database, query) == [("17", 1234.5, "EUR", "paid", 1), ("18", 99, "EUR", "paid", 1)]
    assert any("no file looks like tickets" in remark for remark in proposal.open)
    assert any(remark.startswith("orders.paid_at") for remark in proposal.open)
    assert any(remark.startswith("orders.status") for remark in proposal.open)


def test_a_day_that_may_be_a_month_is_not_decided_without_a_word(tmp_path: Path) -> None:
    files = {"customers.csv": "customer_id,name,signup_date\nc1,A,03/04/2025\nc2,B,05/06/2025\n"}
    proposal = propose_mapping(write(tmp_path, files), tmp_path)
    (remark,) = (r for r in proposal.open if "signed_up_at" in r)
    assert "%d/%m/%Y or %m/%d/%Y" in remark
    assert f"# To be looked at: {remark}" in proposal.text


def test_words_that_are_not_known_are_asked_about(tmp_path: Path) -> None:
    tickets = "ticket_id,customer_id,created_at,priority\nt1,c1,2026-01-01,blazing\nt2,c1,2026-01-02,Medium\n"
    files = {
        "customers.csv": "customer_id,name,signup_date\nc1,A,2025-01-01\n",
        "tickets.csv": tickets,
    }
    proposal = propose_mapping(write(tmp_path, files), tmp_path)
    assert any("what is 'blazing'?" in remark for remark in proposal.open)
    assert "WHEN 'Medium' THEN 'normal'" in proposal.text
    done, database = load(tmp_path, proposal)
    database.close()
    assert [str(p).split(": ", 1)[1][:30] for p in done.problems] == [
        "priority is 'blazing': Input s"
    ]
    assert (done.problems[0].file, done.problems[0].line) == (str(tmp_path / "tickets.csv"), 2)


def test_files_without_customers_are_refused_and_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CustomerDataError, match=r"looks like the customers: name the one .* by hand"
    ):
        propose_mapping(write(tmp_path, {"a.csv": "x,y\n1,2\n"}), tmp_path)


def test_the_zone_of_the_team_is_proposed(tmp_path: Path) -> None:
    proposal = propose_mapping(write(tmp_path, CHINESE), tmp_path, "Asia/Shanghai")
    assert 'timezone = "Asia/Shanghai"' in proposal.text
    assert any("is it Asia/Shanghai?" in remark for remark in proposal.open)


def test_a_file_that_is_left_out_is_named_and_becomes_nothing_else(tmp_path: Path) -> None:
    """Complaints without an id of their own are no logins, and a price list is nothing."""
    files = {
        "customers.csv": "customer_id,name,signup_date\nc1,A,2025-01-01\nc2,B,2025-01-01\n",
        "complaints.csv": "customer_id,date,text\nc1,2026-01-01,slow\nc1,2026-01-02,slow\n",
        "prices.csv": "article,price\nx,1\n",
    }
    proposal = propose_mapping(write(tmp_path, files), tmp_path)
    assert set(proposal.relations) == {"customers"}
    assert (
        "complaints.csv is called like tickets, and which of its columns is ticket_id "
        "cannot be told: it is left out" in proposal.open
    )
    assert any(remark.startswith("prices.csv is left out") for remark in proposal.open)


def test_the_command_writes_a_file_that_the_import_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(path) for path in write(tmp_path, CHINESE, "gb18030")]
    out = tmp_path / "m.toml"
    assert main(["data", "map", *files, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert f"followup data import --map {out}" in said.out
    assert "to be looked at: timezone" in said.err
    assert main(["data", "import", "--map", str(out), "--home", str(tmp_path / "home")]) == 0
    assert "2 rows: 2 added" in capsys.readouterr().out
    assert main(["data", "map", *files, "--out", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["data", "map", *files]) == 0
    shown = capsys.readouterr().out
    assert (
        shown[shown.index("[relations]") :]
        == out.read_text("utf-8").partition("[files]")[2].partition("\n\n")[2]
    )
