"""What the agent can do: one import and one entry a tool."""

from followup_agent.tools import (
    get_open_tickets,
    get_user_activity,
    get_user_orders,
    send_followup_task,
)
from followup_agent.tools.definition import ToolDefinition

BUILT_IN: tuple[ToolDefinition, ...] = (
    get_user_activity.TOOL,
    get_user_orders.TOOL,
    get_open_tickets.TOOL,
    send_followup_task.TOOL,
)
"""In the order a planner sees them."""
