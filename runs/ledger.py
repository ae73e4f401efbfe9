"""The effect ledger: every write goes intent -> effect -> receipt, once for one business action.

The key is the action's business identity, not a call's id: tenant, customer, action, class of
reason, day. Two runs that come to the same action share one row, and so one effect.

    nothing ──begin──▶ intent ──receipt──▶ done          the result is kept
                         │  ▲
                         ▼  └──begin── not_done          it surely did not happen: may be tried again
                       not_done

An intent without a receipt means that the effect may have happened: `tools/once.py` asks downstream.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from pydantic import JsonValue
from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import override

from followup_agent.runs.database import RunsDatabase, effects, short
from followup_agent.runs.leases import Leases
from followup_agent.service.errors import StorageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ActionIdentity:
    """What makes two writes the same action of the business."""

    tenant: str
    customer_id: str | None
    action: str
    """The tool's name."""
    reason_class: str
    """What the action is for; not the words it is given in."""
    day: str
    """Local day of the judgement, ISO."""

    @property
    def key(self) -> str:
        """The idempotency key: SHA-256 of the identity, 64 hex digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class Intent(NamedTuple):
    """What a run is about to do."""

    identity: ActionIdentity
    args: Mapping[str, JsonValue]
    thread_id: str
    run_id: str
    approved_by: str
    at: datetime


class Standing(NamedTuple):
    """How an action stands when a run is about to carry it out."""

    state: Literal["new", "open", "done"]
    """new: go ahead. open: somebody's attempt has no receipt. done: there is a receipt."""
    mine: bool
    """The attempt, or the receipt, is this run's own."""
    result: dict[str, Any] | None = None
    """The receipt's result."""
    thread_id: str = ""
    """Of the run whose attempt or receipt it is."""


class Ledger(Protocol):
    """Where intents and receipts are kept. Both are durable when the call returns."""

    async def begin(self, intent: Intent) -> Standing:
        """Write the intent, unless the action stands already. LeaseLost when fenced out."""

    async def adopt(self, intent: Intent) -> None:
        """Make another run's open attempt this run's own, before it is made again."""

    async def receipt(self, intent: Intent, result: Mapping[str, Any], *, found: bool) -> None:
        """Note that the effect happened, and with what result."""

    async def not_done(self, intent: Intent) -> None:
        """Note that the effect surely did not happen."""

    def of_thread(self, thread_id: str) -> list[dict[str, Any]]:
        """The actions that this thread attempted, the oldest first. Blocks."""


class SqlLedger(Ledger):
    """The ledger in the runs database."""

    def __init__(self, database: RunsDatabase, leases: Leases | None = None) -> None:
        """`leases` None: the host (LangGraph's server) sees to one writer per thread."""
        self._database = database
        self._leases = leases

    @override
    async def begin(self, intent: Intent) -> Standing:
        return await self._call(intent, lambda: self._begin(intent))

    def _begin(self, intent: Intent) -> Standing:
        identity = intent.identity
        values = {
            "idempotency_key": identity.key,
            **asdict(identity),
            "state": "intent",
            "attempts": 1,
            "args": dict(intent.args),
            **_owner(intent),
        }
        with self._database.writing() as connection:
            self._check(connection, intent)
            insert = self._database.insert(effects).values(values).on_conflict_do_nothing()
            if connection.execute(insert).rowcount == 1:
                return Standing("new", mine=True)
            known = effects.c.idempotency_key == identity.key
            row = connection.execute(select(effects).where(known).with_for_update()).one()
            if row.state == "not_done":
                again = {
                    "state": "intent",
                    "attempts": row.attempts + 1,
                    "args": dict(intent.args),
                    "settled_at": None,
                    **_owner(intent),
                }
                connection.execute(effects.update().where(known).values(again))
                return Standing("new", mine=True)
            state: Literal["open", "done"] = "done" if row.state == "done" else "open"
            return Standing(state, row.run_id == intent.run_id, row.result, row.thread_id)

    @override
    async def adopt(self, intent: Intent) -> None:
        again = {"attempts": effects.c.attempts + 1, "args": dict(intent.args), **_owner(intent)}
        await self._update(intent, again)

    @override
    async def receipt(self, intent: Intent, result: Mapping[str, Any], *, found: bool) -> None:
        await self._update(
            intent,
            {"state": "done", "result": dict(result), "found": found, "settled_at": intent.at},
        )

    @override
    async def not_done(self, intent: Intent) -> None:
        await self._update(intent, {"state": "not_done", "settled_at": intent.at})

    async def _update(self, intent: Intent, values: Mapping[str, Any]) -> None:
        """Only an intent is settled; a receipt stands for ever."""
        open_one = (effects.c.idempotency_key == intent.identity.key) & (
            effects.c.state == "intent"
        )

        def update() -> None:
            with self._database.writing() as connection:
                self._check(connection, intent)
                connection.execute(effects.update().where(open_one).values(values))

        await self._call(intent, update)

    async def _call(self, intent: Intent, function: Callable[[], T]) -> T:
        """Run it in a thread; a ledger that fails stops the run where it is, to be resumed."""
        try:
            return await self._database.call(function)
        except SQLAlchemyError as error:
            raise StorageError(
                f"the effect ledger failed: {short(error)}; go on with "
                f"`followup resume {intent.thread_id}` once the runs database works"
            ) from error

    def _check(self, connection: Connection, intent: Intent) -> None:
        if self._leases is not None:
            self._leases.check(intent.thread_id, connection)

    def of_thread(self, thread_id: str) -> list[dict[str, Any]]:
        """The actions that this thread attempted, the oldest first. Blocks."""
        rows = (
            select(effects)
            .where(effects.c.thread_id == thread_id)
            .order_by(effects.c.intended_at, effects.c.idempotency_key)
        )
        with self._database.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(rows)]


def _owner(intent: Intent) -> dict[str, Any]:
    return {
        "thread_id": intent.thread_id,
        "run_id": intent.run_id,
        "approved_by": intent.approved_by,
        "intended_at": intent.at,
    }
