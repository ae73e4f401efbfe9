"""The page 'Use your own data': its commands, its mapping, its policy and its views are run."""

import json
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from docs_pages import blocks, commands
from postgres_server import PostgresServer
from warm import Warm

from followup_agent import FollowupAgent
from followup_agent.customers.check import check_data
from followup_agent.customers.database import CustomerDatabase
from followup_agent.customers.importing import Export, import_export
from followup_agent.customers.mapping import read_mapping
from followup_agent.judgement.policy import load_policy

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")
NOW = datetime.now(UTC).replace(microsecond=0)

pytestmark = pytest.mark.slow


def ago(days: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (NOW - timedelta(days=days)).strftime(form)


def exports(folder: Path) -> None:
    """An export as the page has it."""
    rows = {
        "clients.csv": f"client_id,company,plan,since\nC-17,晨光,Pro,{ago(400, '%d/%m/%Y')}\nC-18,Alder,Basic,25/12/2024\n",
        "logins.csv": f"client_id;at\nC-17;{ago(20)}\nC-18;{ago(1)}\n",
        "invoices.csv": f'invoice_no,client_id,invoice_date,total\nR1,C-17,{ago(50)},"1.234,50 €"\nR2,C-18,{ago(5)},"99,00 €"\n',
        "cases.csv": f"case_no,client_id,opened,closed,priority,title\nG1,C-17,{ago(3)},,urgent,打不开\n",
    }
    for name, text in rows.items():
        (folder / name).write_text(text, encoding="utf-8")


def test_the_commands_lead_from_files_to_a_verdict(warm: Warm, tmp_path: Path) -> None:
    exports(tmp_path)
    (tmp_path / "policy.toml").write_text(blocks("toml", PAGE)[1], encoding="utf-8")
    ran = commands(PAGE)
    assert len(ran) == 6
    for command in ran:
        done = warm.run(
            shlex.split(command)[1:], {"FOLLOWUP_HOME": str(tmp_path / "home")}, tmp_path
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    asked = shlex.split(next(command for command in ran if " ask " in command))
    done = warm.run([*asked[1:], "--json"], {"FOLLOWUP_HOME": str(tmp_path / "home")}, tmp_path)
    assert json.loads(done.stdout)["verdict"]["needs_followup"] is True


def test_the_mapping_of_the_page_loads(tmp_path: Path) -> None:
    exports(tmp_path)
    path = tmp_path / "mapping.toml"
    path.write_text(blocks("toml", PAGE)[0], encoding="utf-8")
    mapping = read_mapping(path)
    database = CustomerDatabase(f"sqlite:///{tmp_path / 'c.db'}")
    done = import_export(database, Export(mapping=(mapping, path), reading=mapping.reading()))
    database.close()
    assert (done.rejected, done.rows) == (0, {"customers": 2, "activity_events": 2})


def test_the_policy_of_the_page_is_one(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(blocks("toml", PAGE)[1], encoding="utf-8")
    policy = load_policy(path)
    assert (policy.sources.orders, policy.lines("enterprise").medium) == (120, 25)


SCHEMAS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "subscription": (
        """
        CREATE TABLE accounts (id int, company text, plan text, created_on timestamp);
        CREATE TABLE subscriptions (id int, account_id int, started_on timestamp, ended_on timestamp, monthly_fee numeric);
        CREATE TABLE usage_log (subscription_id int, used_at timestamp, feature varchar(20));
        CREATE TABLE support_cases (id int, account_id int, opened timestamp, closed timestamp, severity int, area varchar(20), title text, description text);
        INSERT INTO accounts SELECT n, 'Company ' || n, 'Pro', now() - interval '400 days' FROM generate_series(1, 5) n;
        INSERT INTO subscriptions SELECT n, n, now() - interval '40 days', NULL, 99.5 FROM generate_series(1, 5) n;
        INSERT INTO usage_log SELECT n, now() - n * interval '3 days', 'export' FROM generate_series(1, 5) n;
        INSERT INTO support_cases VALUES (1, 5, now() - interval '3 days', NULL, 1, 'login', 'Blank page', NULL)
        """,
        "A-5",
        {"urgent_ticket_count": 1, "days_since_last_active": 15, "paid_amount_90d": {"EUR": 99.5}},
    ),
    "shop": (
        """
        CREATE TABLE shop_user (id bigint, login varchar(50), display_name text, is_wholesale boolean, registered timestamptz);
        CREATE TABLE page_view (user_id bigint, epoch_ms bigint, path text);
        CREATE TABLE shop_order (number bigint, user_id bigint, created timestamptz, total_cents bigint, currency char(3), cancelled boolean);
        CREATE TABLE payment (order_number bigint, captured timestamptz, refunded timestamptz);
        CREATE TABLE contact_request (id uuid, user_id bigint, received timestamptz, answered timestamptz, escalated boolean, topic varchar(20), subject text, message text);
        INSERT INTO shop_user SELECT n, 'shopper_' || n, NULL, n = 1, now() - interval '400 days' FROM generate_series(1, 5) n;
        INSERT INTO page_view SELECT n, (extract(epoch FROM now() - n * interval '3 days') * 1000)::bigint, '/login' FROM generate_series(1, 5) n;
        INSERT INTO shop_order SELECT n, n, now() - interval '41 days', 12345, 'CHF', false FROM generate_series(1, 5) n;
        INSERT INTO payment SELECT n, now() - interval '40 days', CASE n WHEN 4 THEN now() END FROM generate_series(1, 5) n;
        INSERT INTO contact_request VALUES (gen_random_uuid(), 5, now() - interval '3 days', NULL, true, 'delivery', 'Where is it', NULL)
        """,
        "shopper_5",
        {"urgent_ticket_count": 1, "days_since_last_active": 15, "paid_amount_90d": {"CHF": 123.45}},
    ),
    "crm": (
        """
        CREATE TABLE 客户 (客户编号 varchar(20), 客户名称 text, 等级 text, 建档时间 timestamp);
        CREATE TABLE 拜访记录 (客户编号 varchar(20), 时间 timestamp, 方式 text);
        CREATE TABLE 合同 (合同号 varchar(20), 客户编号 varchar(20), 签订时间 timestamp, 回款时间 timestamp, 金额 numeric(12, 2), 状态 text);
        CREATE TABLE 工单 (工单号 int, 客户编号 varchar(20), 提交时间 timestamp, 关闭时间 timestamp, 紧急程度 text, 分类 text, 标题 text, 内容 text);
        INSERT INTO 客户 SELECT 'K' || n, '客户' || n, '普通', now() - interval '400 days' FROM generate_series(1, 5) n;
        INSERT INTO 拜访记录 SELECT 'K' || n, now() - n * interval '3 days', '登录' FROM generate_series(1, 5) n;
        INSERT INTO 合同 SELECT 'H' || n, 'K' || n, now() - interval '41 days', now() - interval '40 days', 888, '已回款' FROM generate_series(1, 5) n;
        INSERT INTO 工单 VALUES (1, 'K5', now() - interval '3 days', NULL, '紧急', '故障', '打不开', NULL)
        """,
        "K5",
        {"urgent_ticket_count": 1, "days_since_last_active": 15, "paid_amount_90d": {"CNY": 888.0}},
    ),
}  # fmt: skip


@pytest.fixture
def statements(postgres: PostgresServer) -> Iterator[Callable[[str, str], None]]:
    """Runs statements, and forgets the role they made."""
    urls = []

    def run(url: str, text: str) -> None:
        urls.append(url)
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            for statement in text.split(";"):
                if statement.strip():
                    connection.execute(statement)  # type: ignore[call-overload] # as it stands

    yield run
    with psycopg.connect(urls[0].replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("DROP OWNED BY followup_agent")
        connection.execute("DROP ROLE followup_agent")


@pytest.mark.parametrize("number", range(3), ids=list(SCHEMAS))
def test_the_views_over_a_typical_schema_give_a_verdict(
    postgres: PostgresServer,
    statements: Callable[[str, str], None],
    tmp_path: Path,
    number: int,
) -> None:
    """With the very account of the page, which owns nothing and may read nothing else."""
    tables, customer, wanted = list(SCHEMAS.values())[number]
    tasks, *views = blocks("sql", PAGE)
    assert len(views) == 3
    url = postgres.database()
    statements(url, tables)
    statements(url, tasks)
    statements(url, views[number])
    own = url.replace("followup@", "followup_agent:PASSWORD@")
    database = CustomerDatabase(own, stale_after_days=load_policy().sources.model_dump())
    assert check_data(database.check(), datetime.now(UTC), UTC).problems == []
    database.close()
    with FollowupAgent.open(home=tmp_path, planner="rules", customers_url=own) as agent:
        run = agent.ask(f"给 {customer} 建一个跟进任务，看近90天", thread_id="t")
        assert run.waiting_for == "approval", (run.answer, run.last_error)
        facts = {key: fact["value"] for key, fact in run.facts[customer].items()}
        assert {key: facts[key] for key in wanted} == wanted
        done = agent.approve("t")
    assert done.status == "completed"
    assert done.verdict is not None
    assert done.verdict["needs_followup"] is True
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM followup.followup_tasks"
        ).fetchone() or (0,)
    assert count == 1
