"""Laws of the judgement."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from followup_agent.judgement.judge import SOURCES, judge, number
from followup_agent.judgement.policy import Policy, load_policy
from followup_agent.state import Evidence, ToolCallRecord, Verdict
from followup_agent.tools.outcome import Fact

POLICY = load_policy()
DAYS = st.one_of(st.none(), st.integers(0, 400))
COUNTS = st.integers(0, 50)
SEGMENTS = st.sampled_from(["business", "enterprise", "seasonal", "consumer", "Basic", ""])


def facts_of(**values: Any) -> dict[str, Fact]:
    """Facts with these values."""
    return {
        key: Fact(value=value, unit="days", window_days=None, call_id="c1", as_of="now")
        for key, value in values.items()
    }


WORLDS = st.fixed_dictionaries(
    {
        "get_user_activity": st.fixed_dictionaries({"days_since_last_active": DAYS}),
        "get_user_orders": st.fixed_dictionaries({"days_since_last_paid": DAYS}),
        "get_open_tickets": st.builds(
            lambda urgent, other, age: {
                "urgent_ticket_count": urgent,
                "open_ticket_count": urgent + other,
                "oldest_open_ticket_days": age if urgent + other else None,
            },
            COUNTS,
            COUNTS,
            st.integers(0, 400),
        ),
    }
)


def verdict_on(
    world: dict[str, dict[str, Any]],
    segment: str = "business",
    failed: frozenset[str] = frozenset(),
    since_signup: int = 500,
) -> Verdict:
    """The verdict when these sources failed and the others answered."""
    history: list[ToolCallRecord] = []
    evidence: list[Evidence] = []
    known: dict[str, Any] = {}
    for index, source in enumerate(SOURCES, start=1):
        ok = source not in failed
        history.append(
            ToolCallRecord(
                call_id=f"c{index}", step=index, tool_name=source, args={"user_id": "u"},
                outcome="found" if ok else "failed", failure_kind=None if ok else "timeout",
                result_summary="", success=ok, attempts=1, duration_ms=1,
            )
        )  # fmt: skip
        if ok:
            known |= {**world[source], "segment": segment, "days_since_signup": since_signup}
            evidence.append(
                Evidence(
                    id=f"e{index}",
                    call_id=f"c{index}",
                    source=source,
                    summary=source,
                    confidence=0.9,
                )
            )
    return judge("u", facts_of(**known), evidence, history, POLICY, "en")


@given(WORLDS, SEGMENTS)
@settings(max_examples=150, deadline=None)
def test_one_more_urgent_ticket_never_lowers_the_score(world: Any, segment: str) -> None:
    before = verdict_on(world, segment)
    tickets = world["get_open_tickets"]
    tickets["urgent_ticket_count"] += 1
    tickets["open_ticket_count"] += 1
    tickets["oldest_open_ticket_days"] = tickets["oldest_open_ticket_days"] or 0
    after = verdict_on(world, segment)
    assert after["score"] >= before["score"]
    assert not (before["needs_followup"] and not after["needs_followup"])


@given(WORLDS, SEGMENTS)
@settings(max_examples=150, deadline=None)
def test_one_more_inactive_day_never_lowers_the_score(world: Any, segment: str) -> None:
    before = verdict_on(world, segment)
    for source, key in (
        ("get_user_activity", "days_since_last_active"),
        ("get_user_orders", "days_since_last_paid"),
        ("get_open_tickets", "oldest_open_ticket_days"),
    ):
        if world[source][key] is not None:
            world[source][key] += 1
    after = verdict_on(world, segment, since_signup=501)
    assert after["score"] >= before["score"]


@given(WORLDS, SEGMENTS, st.sets(st.sampled_from(SOURCES)))
@settings(max_examples=300, deadline=None)
def test_a_failed_source_may_unsettle_a_verdict_and_never_flips_it(
    world: Any, segment: str, failed: set[str]
) -> None:
    full = verdict_on(world, segment)
    less = verdict_on(world, segment, frozenset(failed))
    assert full["needs_followup"] is not None
    assert less["needs_followup"] in (None, full["needs_followup"])
    assert less["score"] <= full["score"]
    assert (less["priority"] == "undetermined") == (less["needs_followup"] is None)
    for source in failed:
        assert less["coverage"][source] == "failed"


@given(WORLDS, SEGMENTS)
@settings(max_examples=100, deadline=None)
def test_reasons_cite_evidence_and_the_score_is_within_range(world: Any, segment: str) -> None:
    verdict = verdict_on(world, segment)
    assert 0 <= verdict["score"] <= 100
    assert all(reason["evidence_ids"] for reason in verdict["reasons"])
    follow = verdict["priority"] in ("high", "medium")
    assert follow == verdict["needs_followup"]


def test_empty_and_failed_never_read_the_same() -> None:
    nothing = {
        "get_user_activity": {"days_since_last_active": 0},
        "get_user_orders": {"days_since_last_paid": 0},
        "get_open_tickets": {
            "urgent_ticket_count": 0, "open_ticket_count": 0, "oldest_open_ticket_days": None,
        },
    }  # fmt: skip
    assert verdict_on(nothing)["needs_followup"] is False
    for source in SOURCES:
        failed = verdict_on(nothing, failed=frozenset({source}))
        assert failed["coverage"][source] == "failed"
        # Orders alone can never carry a verdict over the line, so a "no" stands without them.
        assert failed["needs_followup"] is (False if source == "get_user_orders" else None)


def test_nothing_known_is_undetermined() -> None:
    verdict = judge("u", {}, [], [], POLICY, "zh")
    assert verdict["needs_followup"] is None
    assert set(verdict["coverage"].values()) == {"not_checked"}


def test_segments_have_their_own_rhythm() -> None:
    quiet = {
        "get_user_activity": {"days_since_last_active": 18},
        "get_user_orders": {"days_since_last_paid": 60},
        "get_open_tickets": {
            "urgent_ticket_count": 0, "open_ticket_count": 0, "oldest_open_ticket_days": None,
        },
    }  # fmt: skip
    assert verdict_on(quiet, "seasonal")["needs_followup"] is False
    assert verdict_on(quiet, "enterprise")["needs_followup"] is True


def test_a_policy_whose_lines_do_not_rise_is_refused() -> None:
    raw = POLICY.model_dump()
    raw["priorities"] = {"high": 30, "medium": 35, "low": 15}
    with pytest.raises(ValidationError, match="low < medium < high"):
        Policy.model_validate(raw)


def test_a_truth_value_is_no_number() -> None:
    assert number(facts_of(x=True), "x") is None
