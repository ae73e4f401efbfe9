"""One company for all whole runs: read by most, written by none but the tests with `own_company`."""

from collections.abc import Iterator

import pytest
from support import fill

from followup_agent.customers.database import CustomerDatabase


@pytest.fixture(scope="session")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CustomerDatabase]:
    """The three known customers, as of the tests' clock."""
    database = fill(tmp_path_factory.mktemp("company") / "customers.db")
    yield database
    database.close()
