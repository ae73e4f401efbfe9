"""The nodes of the graph: one file a node, one function of the node's name in it."""

# Whichever of the two packages is imported first, `graph` is loaded before any node: it needs all
# of them, and they need its context.
import followup_agent.graph  # noqa: F401
