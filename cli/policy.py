"""`followup policy`: the policy itself, and how one customer's score arose."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from followup_agent.cli.data import moment_of
from followup_agent.cli.output import console, print_json
from followup_agent.goals.limits import DEFAULT_DAYS
from followup_agent.judgement.judge import SOURCES
from followup_agent.judgement.policy import Policy, load_policy
from followup_agent.service.data import customer_database
from followup_agent.service.errors import UsageError
from followup_agent.service.settings import Settings, load_settings
from followup_agent.tools import BUILT_IN
from followup_agent.tools.definition import ToolContext
from followup_agent.tools.outcome import Fact, Failed
from followup_agent.tools.registry import ToolRegistry
from followup_agent.tools.runner import ToolRunner

if TYPE_CHECKING:
    from followup_agent.judgement.explain import Explanation

RAMPS = ("inactive", "unpaid", "open_tickets")


def show(*, segment: str | None, as_json: bool, home: Path | None) -> int:
    """Signals, points and thresholds; for one segment, as they hold there."""
    policy = load_policy(load_settings(home=home).policy)
    if segment is not None and segment.strip().lower() not in policy.segments:
        named = ", ".join(sorted(policy.segments))
        raise UsageError(
            f"the policy names no segment {segment!r}: it is judged as everybody; named are {named}"
        )
    if as_json:
        print_json(policy.model_dump(exclude_none=True))
        return 0
    out = console()
    out.print(f"policy {policy.version}" + (f", segment {segment}" if segment else ""))
    for line in _lines(policy, segment):
        out.print(f"  {line}")
    if segment is None:
        for name in sorted(policy.segments):
            out.print(f"segment {name}")
            for line in _differences(policy, name):
                out.print(f"  {line}")
    return 0


def _lines(policy: Policy, segment: str | None) -> list[str]:
    signals, lines = policy.signals, policy.lines(segment)
    urgent = signals.urgent_tickets
    shown = [
        f"{name:<15} up to {getattr(signals, name).points:g} points, "
        f"from {policy.ramp(name, segment).start:g} to {policy.ramp(name, segment).full:g} days"
        for name in RAMPS
    ]
    shown.insert(
        2,
        f"{'urgent_tickets':<15} up to {urgent.points:g} points: {urgent.first:g} for the first, "
        f"{urgent.each_more:g} for each more",
    )
    return [
        *shown,
        f"{'priority':<15} high from {lines.high:g}, medium from {lines.medium:g} (follow-up is "
        f"needed), low from {lines.low:g}",
        f"{'stale after':<15} "
        + ", ".join(f"{name} {days} days" for name, days in policy.sources.model_dump().items()),
    ]


def _differences(policy: Policy, segment: str) -> list[str]:
    general, special = _lines(policy, None), _lines(policy, segment)
    return [line for line, other in zip(special, general, strict=True) if line != other]


def check(file: Path | None, *, as_json: bool, home: Path | None) -> int:
    """Whether a policy file can be used, and where it differs; PolicyError names what is wrong."""
    path = file or load_settings(home=home).policy
    policy, shipped = load_policy(path), load_policy()
    differences = [
        {"key": key, "shipped": before, "value": after}
        for key, (before, after) in _compared(shipped.model_dump(), policy.model_dump()).items()
    ]
    if as_json:
        print_json({"ok": True, "version": policy.version, "differences": differences})
        return 0
    out = console()
    out.print(f"{path or 'the policy of the package'} can be used: version {policy.version}")
    for one in differences:
        out.print(f"  {one['key']}: {one['value']} instead of {one['shipped']}")
    return 0


def _compared(
    one: dict[str, Any], other: dict[str, Any], above: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Dotted key to the two values, where they differ."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in {**one, **other}:
        before, after = one.get(key), other.get(key)
        if isinstance(before, dict) or isinstance(after, dict):
            found |= _compared(before or {}, after or {}, f"{above}{key}.")
        elif before != after:
            found[f"{above}{key}"] = (before, after)
    return found


def explain(user: str, *, as_of: str | None, as_json: bool, home: Path | None) -> int:
    """Every point of one customer's score, and the smallest change that alters the verdict."""
    import asyncio

    settings = load_settings(home=home)
    explanation = asyncio.run(_explained(settings, user, moment_of(as_of, settings)))
    if as_json:
        print_json(explanation.as_json())
        return 0
    out = console()
    score = f"{explanation.least:.0f}"
    if explanation.least != explanation.most:
        score += f" to {explanation.most:.0f}"
    needed = {True: "needed", False: "not needed", None: "undetermined"}[explanation.needs_followup]
    out.print(
        f"{user}: follow-up {needed}, priority {explanation.priority}, score {score} "
        f"(segment {explanation.segment or 'unknown'}, policy {explanation.policy_version})"
    )
    for part in explanation.parts:
        points = f"{part.least:.1f}"
        if part.least != part.most:
            points += f" to {part.most:.1f}"
        out.print(f"  {part.signal:<15} {points:>12} of {part.points:g}  {part.basis}")
    for change in explanation.changes:
        out.print(f"→ {change.text}")
    if not explanation.changes:
        out.print(
            "→ what is missing would decide"
            if explanation.needs_followup is None
            else "→ no change of a single fact alters this verdict"
        )
    return 0


async def _explained(settings: Settings, user: str, as_of: datetime) -> "Explanation":
    """The three reads, as a run makes them, and what they come to."""
    from followup_agent.judgement.explain import explain as explained

    policy = load_policy(settings.policy)
    database = customer_database(settings, policy).check()
    runner = ToolRunner(ToolRegistry(BUILT_IN), lambda *_: None)
    context = ToolContext(as_of=as_of, timezone=settings.zone, now=as_of, customers=database)
    facts: dict[str, Fact] = {}
    failures: dict[str, str] = {}
    try:
        for name in SOURCES:
            raw: dict[str, Any] = {"user_id": user}
            if "days" in runner.registry.get(name).args.model_fields:  # type: ignore[union-attr] # built in
                raw["days"] = DEFAULT_DAYS
            call = runner.prepare(name, raw)
            if isinstance(call, Failed):
                raise UsageError(call.message)
            outcome = (await runner.run(call, context)).outcome
            if isinstance(outcome, Failed):
                if outcome.failure_kind == "not_found":
                    raise UsageError(f"{outcome.message}; `followup data check` looks at the data")
                failures[name] = outcome.message
                continue
            result = call.tool.result.model_validate_json(to_json(outcome.result))
            for key, draft in call.tool.facts(call.args, result).items():
                facts[key] = Fact(
                    value=draft.value,
                    unit=draft.unit,
                    window_days=draft.window_days,
                    call_id=name,
                    as_of=as_of.isoformat(),
                )
    finally:
        database.close()
    return explained(user, facts, failures, policy)
