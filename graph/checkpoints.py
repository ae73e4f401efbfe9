"""How runs are stored: LangGraph's SQLite saver, strict about what may be read back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiosqlite
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


def strict_serializer() -> JsonPlusSerializer:
    """Plain JSON and LangChain's messages only: any other class is refused, never guessed."""
    return JsonPlusSerializer(allowed_msgpack_modules=[])


@asynccontextmanager
async def open_sqlite_saver(path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    """A saver on this file, open until the block ends. WAL: several processes may read and write.

    synchronous=FULL is SQLite's default in WAL mode and is kept: a finished step survives a power
    cut, not only a killed process.
    """
    async with aiosqlite.connect(path) as connection:
        saver = AsyncSqliteSaver(connection, serde=strict_serializer())
        await saver.setup()
        yield saver
