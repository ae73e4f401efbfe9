"""The forms of the built-in tools."""

import pytest

from followup_agent.planners.forms import Forms
from followup_agent.tools import BUILT_IN
from followup_agent.tools.registry import ToolRegistry


@pytest.fixture(scope="session")
def forms() -> Forms:
    """What a model may reply with the built-in tools."""
    return Forms(ToolRegistry(BUILT_IN))
