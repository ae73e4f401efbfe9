"""The effect ledger: intent, effect, receipt; one row for one action of the business."""

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import NOW

from followup_agent.runs.database import RunsDatabase
from followup_agent.runs.leases import Leases
from followup_agent.runs.ledger import ActionIdentity, Intent, SqlLedger, Standing
from followup_agent.service.errors import ConfigurationError, LeaseLost, StorageError

IDENTITY = ActionIdentity("default", "user_123", "send_followup_task", "inactive", "2026-03-02")
INTENT = Intent(IDENTITY, {"user_id": "user_123"}, "t", "r1", "user", NOW)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RunsDatabase]:
    """A runs database in a file."""
    with closing(RunsDatabase(f"sqlite:///{tmp_path / 'runs.db'}")) as opened:
        yield opened


async def test_an_action_begins_once_and_its_receipt_stands(database: RunsDatabase) -> None:
    ledger = SqlLedger(database)
    assert (await ledger.begin(INTENT)).state == "new"
    assert await ledger.begin(INTENT) == Standing("open", mine=True, result=None, thread_id="t")
    await ledger.receipt(INTENT, {"task_id": "x"}, found=False)
    elsewhere = INTENT._replace(run_id="r2", thread_id="u")
    assert await ledger.begin(elsewhere) == Standing("done", False, {"task_id": "x"}, "t")
    await ledger.not_done(elsewhere)
    await ledger.adopt(elsewhere)
    assert (await ledger.begin(INTENT)).state == "done"
    (row,) = ledger.of_thread("t")
    assert (row["state"], row["customer_id"], row["attempts"]) == ("done", "user_123", 1)


async def test_what_was_surely_not_done_may_be_begun_again(database: RunsDatabase) -> None:
    ledger = SqlLedger(database)
    await ledger.begin(INTENT)
    await ledger.not_done(INTENT)
    assert (await ledger.begin(INTENT._replace(run_id="r2"))).state == "new"
    (row,) = ledger.of_thread("t")
    assert (row["attempts"], row["run_id"], row["state"]) == (2, "r2", "intent")


async def test_an_adopted_attempt_is_the_adopters(database: RunsDatabase) -> None:
    ledger = SqlLedger(database)
    await ledger.begin(INTENT)
    other = INTENT._replace(run_id="r2", thread_id="u")
    assert not (await ledger.begin(other)).mine
    await ledger.adopt(other)
    assert (await ledger.begin(other)).mine
    assert ledger.of_thread("t") == []


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "b"}, {"customer_id": "user_456"}, {"action": "x"}, {"reason_class": "y"},
        {"day": "2026-03-03"}, {"customer_id": None},
    ],
)  # fmt: skip
def test_each_part_of_the_identity_makes_another_key(other: dict[str, str | None]) -> None:
    assert dataclasses.replace(IDENTITY, **other).key != IDENTITY.key  # type: ignore[arg-type]
    assert len(IDENTITY.key) == 64


@given(
    st.lists(st.text(max_size=8), min_size=5, max_size=5),
    st.lists(st.text(max_size=8), min_size=5, max_size=5),
)
def test_two_identities_share_a_key_only_when_they_are_the_same(a: list[str], b: list[str]) -> None:
    assert (ActionIdentity(*a).key == ActionIdentity(*b).key) == (a == b)


async def test_a_fenced_out_writer_writes_no_row(database: RunsDatabase) -> None:
    with closing(Leases(database)) as leases:
        ledger = SqlLedger(database, leases)
        with pytest.raises(LeaseLost):
            await ledger.begin(INTENT)
        leases.acquire("t")
        await ledger.begin(INTENT)
        with database.writing() as connection:
            connection.exec_driver_sql("UPDATE followup_leases SET fence = fence + 1")
        with pytest.raises(LeaseLost):
            await ledger.receipt(INTENT, {}, found=False)
    assert (await SqlLedger(database).begin(INTENT)).state == "open"


async def test_a_ledger_that_fails_says_how_to_go_on(database: RunsDatabase) -> None:
    with database.writing() as connection:
        connection.exec_driver_sql("DROP TABLE followup_effects")
    with pytest.raises(StorageError, match="followup resume t"):
        await SqlLedger(database).begin(INTENT)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "adopt", "receipt", "not_done"]), st.sampled_from("abc")
        ),
        max_size=12,
    )
)
async def test_whatever_is_done_to_it_a_receipt_stands_and_there_is_one_row(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "runs.db"
    with closing(RunsDatabase(f"sqlite:///{path}")) as database:
        ledger, receipt = SqlLedger(database), None
        begun = False
        for number, (act, run) in enumerate(acts):
            intent = INTENT._replace(run_id=run, at=NOW + timedelta(seconds=number))
            match act:
                case "begin":
                    standing = await ledger.begin(intent)
                    begun = True
                    assert (standing.state == "done") == (receipt is not None)
                    assert standing.result == receipt
                case "receipt":
                    before = await ledger.begin(intent) if begun else None
                    await ledger.receipt(intent, {"n": number}, found=False)
                    if before is not None and before.state != "done":
                        receipt = {"n": number}
                case "adopt":
                    await ledger.adopt(intent)
                case _:
                    await ledger.not_done(intent)
        with database.reading() as connection:
            count = connection.exec_driver_sql("SELECT count(*) FROM followup_effects").scalar()
        assert count == (1 if begun else 0)


def test_a_database_of_another_version_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with closing(RunsDatabase(url)) as database, database.writing() as connection:
        connection.exec_driver_sql("UPDATE followup_meta SET value = '99'")
    with pytest.raises(ConfigurationError, match="of version 99"):
        RunsDatabase(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://a:s3cret@h/n", "names mysql"),
        ("sqlite://", "names no file"),
        ("postgresql://ann:s3cret@127.0.0.1:1/none", "cannot use the runs database"),
    ],
)
def test_a_runs_url_that_cannot_be_used_is_named_without_its_password(url: str, said: str) -> None:
    from followup_agent.runs.database import runs_url
    from followup_agent.service.settings import load_settings

    with pytest.raises(ConfigurationError, match=said) as refused:
        RunsDatabase(runs_url(load_settings(runs_url=url)))
    assert "s3cret" not in str(refused.value)
