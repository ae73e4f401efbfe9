"""The tools of one agent, by name."""

from collections.abc import Iterable, Iterator

from followup_agent.tools.definition import DefinitionError, ToolDefinition, check_definition
from followup_agent.tools.outcome import Effect


class ToolRegistry:
    """Refuses what a planner could not choose well: duplicates, vague schemas, vague names."""

    def __init__(self, tools: Iterable[ToolDefinition] = ()) -> None:
        """Register each tool; DefinitionError for the first that may not be."""
        self._tools: dict[str, ToolDefinition] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: ToolDefinition) -> None:
        """Add one tool; DefinitionError when its name is taken or its declaration is vague."""
        if not isinstance(tool, ToolDefinition):
            raise DefinitionError(
                f"{tool!r} is no ToolDefinition; for a LangChain tool use from_langchain(tool, effect=…)"
            )
        check_definition(tool)
        if tool.name in self._tools:
            raise DefinitionError(f"tool {tool.name!r} is registered already")
        self._tools[tool.name] = tool

    def get(self, name: str) -> ToolDefinition | None:
        """The tool of exactly this name; near names are never guessed."""
        return self._tools.get(name)

    def names(self, effect: Effect | None = None) -> list[str]:
        """Names in the order of registration, of one effect or of all."""
        return [tool.name for tool in self if effect in (None, tool.effect)]

    def is_write(self, name: str) -> bool:
        """Whether this name is a tool that changes something."""
        tool = self._tools.get(name)
        return tool is not None and tool.effect != "read"

    def __iter__(self) -> Iterator[ToolDefinition]:
        """The definitions in the order of registration."""
        return iter(self._tools.values())
