"""A company for graph tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import fill

from followup_agent.customers.database import CustomerDatabase


@pytest.fixture
def company_of_two(tmp_path: Path) -> Iterator[CustomerDatabase]:
    """The known customers."""
    database = fill(tmp_path / "customers.db")
    yield database
    database.close()
