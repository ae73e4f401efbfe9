"""A case: one line of behaviour that a customer team relies on, as data."""

from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator
from typing_extensions import override

from followup_agent.evals.worlds import Closed, FaultKind, World, worlds
from followup_agent.goals.limits import DEFAULT_MAX_STEPS, MAX_STEPS_CEILING
from followup_agent.service.errors import InvalidOption
from followup_agent.state import Priority, Status, StopReason
from followup_agent.tools.definition import explain
from followup_agent.tools.outcome import Language

Match = Literal["exact_order", "any_order", "subset", "superset"]
"""exact_order: these calls in this order. any_order: these calls. subset: no other calls than
these. superset: these calls, and perhaps more."""
Tier = Literal["baseline", "frontier"]


def _each_once(tags: list[str]) -> list[str]:
    if len(set(tags)) != len(tags):
        raise ValueError("a tag stands twice")
    return tags


def _text(text: str) -> str:
    text.encode()  # UnicodeEncodeError, a ValueError, for half a surrogate pair
    return text


class Turn(Closed):
    """What a person does next on the thread: exactly one thing."""

    answer: str | None = None
    """To the question that is open."""
    approve: Literal[True] | None = None
    edit: dict[str, JsonValue] | None = None
    """Approve with these arguments changed."""
    reject: str | None = None
    """Turn the write down, and why."""
    cancel: Literal[True] | None = None
    goal: str | None = None
    """A new goal on the same thread."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("a turn does exactly one thing")
        return self

    @property
    def kind(self) -> str:
        """Which of them."""
        (kind,) = self.model_fields_set
        return kind


class Case(Closed):
    """What is asked, of which company, and what must be true. What is not stated is not asked."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=80)
    input: Annotated[str, AfterValidator(_text)]
    language: Language
    """Of the answer: that of the goal."""
    tags: Annotated[list[str], AfterValidator(_each_once)] = Field(min_length=1)
    tier: Tier = "baseline"
    """`baseline` may not regress; `frontier` may."""
    why: str = ""
    """Where it is not plain: what the case is about."""
    world: str | World = "known"
    """The company: one of `worlds.yaml`, or one of its own."""
    faults: dict[str, FaultKind] = Field(default_factory=dict)
    """On top of the world's."""
    max_steps: int = Field(DEFAULT_MAX_STEPS, ge=1, le=MAX_STEPS_CEILING)
    as_of: str | None = None
    """As `--as-of`."""
    turns: list[Turn] = Field(default_factory=list)

    expected_tools: list[str] | None = None
    """Tool names of the calls, in order; calls that were blocked or turned down count."""
    tools_match: Match = "exact_order"
    expected_args: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Tool name to arguments of one of its calls; null: the argument must be left out."""
    expected_status: Status | None = None
    expected_stop_reason: StopReason | None = None
    expected_needs_followup: bool | Literal["undetermined"] | None = None
    expected_priority: Priority | None = None
    expected_must_contain: list[str] = Field(default_factory=list)
    """Texts of the last answer, or of the question while one is open."""
    must_not_contain: list[str] = Field(default_factory=list)
    expected_question: list[str] | None = None
    """Texts of the first question asked."""
    expected_approval: dict[str, JsonValue] | None = None
    """Arguments of the first write that was put before a person."""
    expected_tasks: list[dict[str, JsonValue]] | None = None
    """The follow-up tasks in the database at the end, in order, by some of their columns."""

    paraphrases: list[str] = Field(default_factory=list)
    """The same question in other words: the verdict must stay."""
    translations: list[str] = Field(default_factory=list)
    """The same question in the other language: the verdict must stay."""

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        lists = (self.expected_must_contain, self.must_not_contain, self.expected_args)
        single = (
            getattr(self, name)
            for name in Case.model_fields
            if name.startswith("expected_")
            and name not in ("expected_must_contain", "expected_args")
        )
        if not any(lists) and all(one is None for one in single):
            raise ValueError("the case expects nothing")
        return self

    def company(self) -> World:
        """The world, with the case's faults."""
        if isinstance(self.world, str) and self.world not in worlds():
            raise InvalidOption(f"case {self.name}: there is no world {self.world!r}")
        world = worlds()[self.world] if isinstance(self.world, str) else self.world
        if not self.faults:
            return world
        return world.model_copy(update={"faults": {**world.faults, **self.faults}})


def own_cases() -> Path:
    """The folder of the cases that come with the package."""
    return Path(str(resources.files(__package__).joinpath("cases")))


def load_cases(folder: Path | None = None) -> list[Case]:
    """The cases of every YAML file in the folder; InvalidOption names the file, case and key."""
    folder = folder or own_cases()
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise InvalidOption(f"there are no cases (*.yaml) in {folder}")
    cases = [case for path in files for case in _read(path)]
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise InvalidOption(f"two cases are named {case.name!r}: a name is an identity")
        seen.add(case.name)
        case.company()
    return cases


class _Strict(yaml.SafeLoader):
    """YAML in which a key may stand once: of two, one would be lost without a word."""

    @override
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.YAMLError(f"{twice[0]!r} stands twice{node.start_mark}")
        return super().construct_mapping(node, deep)


def _read(path: Path) -> list[Case]:
    try:
        rows: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_Strict)  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError, OSError) as error:  # ValueError: a date that is none
        raise InvalidOption(
            f"{path} cannot be read as YAML: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(rows, list):
        raise InvalidOption(f"{path} holds no list of cases")
    cases = []
    for number, row in enumerate(rows, start=1):
        try:
            cases.append(Case.model_validate(row))
        except ValidationError as error:
            name = (
                row.get("name", f"number {number}") if isinstance(row, dict) else f"number {number}"
            )
            raise InvalidOption(f"{path.name}, case {name}: {explain(error)}") from error
    return cases


def select(
    cases: Iterable[Case], *, tags: Sequence[str] = (), names: Sequence[str] = ()
) -> list[Case]:
    """The cases that have every one of these tags (language and tier count as tags) and one of
    these names, when any are given; InvalidOption when none has."""
    cases = list(cases)
    if not cases:
        raise InvalidOption("there are no cases: the files hold empty lists")
    known = sorted({tag for case in cases for tag in tags_of(case)})
    for tag in tags:
        if tag not in known:
            raise InvalidOption(f"no case has the tag {tag!r}; the tags are: {', '.join(known)}")
    for name in names:
        if name not in {case.name for case in cases}:
            raise InvalidOption(f"there is no case {name!r}; `followup eval list` lists them")
    found = [
        case
        for case in cases
        if set(tags) <= set(tags_of(case)) and (not names or case.name in names)
    ]
    if not found:
        raise InvalidOption(f"no case has all of the tags {', '.join(tags)}")
    return found


def tags_of(case: Case) -> list[str]:
    """Tags, language and tier."""
    return [*case.tags, case.language, case.tier]


def case_schema() -> dict[str, Any]:
    """JSON Schema of a file of cases, for editors (`cases.schema.json`)."""
    schema = Case.model_json_schema()
    definitions = schema.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A file of eval cases",
        "type": "array",
        "items": schema,
        "$defs": definitions,
    }
