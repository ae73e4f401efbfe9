"""A company's own policy: what differs, per segment too; and how a score arose."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import NOW, fill

from followup_agent import FollowupAgent
from followup_agent.cli.start import _run as main
from followup_agent.judgement.explain import explain
from followup_agent.judgement.judge import SOURCES, priority_of, segment_of, signals_of
from followup_agent.judgement.policy import load_policy
from followup_agent.service.errors import ConfigurationError, PolicyError
from followup_agent.tools.outcome import Fact

OWN = """
version = "acme-1"

[priorities]
medium = 30

[signals.inactive]
full = 10

[sources]
orders = 100

[segments.VIP]
inactive = { start = 1, full = 5 }
priorities = { high = 40, medium = 20, low = 10 }
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_only_what_differs_is_written_down(own: Path) -> None:
    policy, shipped = load_policy(own), load_policy()
    assert policy.version == "acme-1"
    assert (policy.priorities.medium, policy.priorities.high) == (30, shipped.priorities.high)
    assert policy.signals.inactive.full == 10
    assert policy.signals.inactive.points == shipped.signals.inactive.points
    assert (policy.sources.orders, policy.sources.tickets) == (100, shipped.sources.tickets)
    assert policy.ramp("inactive", "Vip").full == 5
    assert policy.ramp("unpaid", "vip") == policy.ramp("unpaid", None)
    assert policy.lines("vip").medium == 20
    assert policy.lines("enterprise").medium == 30
    assert policy.ramp("inactive", "enterprise") == shipped.ramp("inactive", "enterprise")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('version = "acme-1"', "", "has no version"),
        ("medium = 30", "medium = 70", r"priorities: 0 < low < medium < high <= 100 must hold"),
        ("medium = 30", "medum = 30", "priorities.medum: Extra inputs"),
        ("full = 10", "full = 1", "signals.inactive: full must be over start"),
        ("full = 10", "full = 'ten'", "signals.inactive.full: Input should be a valid number"),
        ("[signals.inactive]", "[signals.sleepy]", "signals.sleepy"),
        ("orders = 100", "orders = 0", "sources.orders"),
        ("start = 1, full = 5", "start = 1", "segments.vip.inactive.full: Field required"),
        ("[priorities]", "[priorities", "is not TOML text"),
        ("[segments.VIP]", "segments = 3\n[x]", "segments|x"),
    ],
)
def test_a_fault_is_named_by_its_key(own: Path, old: str, new: str, says: str) -> None:
    own.write_text(OWN.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PolicyError, match=says) as error:
        load_policy(own)
    assert "\n" not in str(error.value)


def test_an_agent_judges_by_it_and_refuses_a_wrong_one(tmp_path: Path, own: Path) -> None:
    fill(tmp_path / "customers.db").close()
    options: dict[str, Any] = {"home": tmp_path, "planner": "rules", "clock": lambda: NOW}

    def score(**more: Any) -> int:
        with FollowupAgent.open(**options, **more) as agent:
            verdict = agent.ask("Does user_123 need follow-up? Last 7 days").verdict
        assert verdict is not None
        return verdict["score"]

    assert score(policy=own) > score()
    own.write_text(OWN.replace("medium = 30", "medium = 99"), encoding="utf-8")
    with (
        pytest.raises(ConfigurationError, match="priorities"),
        FollowupAgent.open(**options, policy=own),
    ):
        pass


# --- explain ---

DAYS = st.one_of(st.none(), st.integers(0, 400))


def fact(value: Any) -> Fact:
    return Fact(value=value, unit="days", window_days=None, call_id="c1", as_of="2026-03-01")


FACTS = st.fixed_dictionaries(
    {
        "segment": st.sampled_from(["business", "Enterprise", "seasonal", "?"]).map(fact),
        "days_since_signup": st.integers(0, 900).map(fact),
        "days_since_last_active": DAYS.map(fact),
        "days_since_last_paid": DAYS.map(fact),
        "urgent_ticket_count": st.integers(0, 8).map(fact),
        "oldest_open_ticket_days": DAYS.map(fact),
        "open_ticket_count": st.integers(0, 9).map(fact),
    }
)


@given(FACTS)
def test_the_points_add_up_and_each_change_alters_the_verdict_while_a_smaller_one_does_not(
    facts: dict[str, Fact],
) -> None:
    policy = load_policy()
    explained = explain("c", facts, {}, policy)
    assert explained.least == explained.most
    assert min(100.0, sum(part.least for part in explained.parts)) == pytest.approx(explained.least)
    lines = policy.lines(segment_of(facts))
    assert priority_of(explained.least, explained.most, lines) == (
        explained.needs_followup,
        explained.priority,
    )

    def priority_with(key: str, value: int) -> Any:
        changed = {**facts, key: fact(value)}
        total = min(100.0, sum(signal.least for signal in signals_of(changed, policy)))
        return priority_of(total, total, lines)[1]

    for change in explained.changes:
        assert priority_with(change.fact, change.to) == change.priority != explained.priority
        start = 0 if change.value is None else int(change.value)
        nearer = range(abs(change.to - start))
        for distance in nearer:
            for value in (start - distance, start + distance):
                if value >= 0 and (change.value is not None or value != start):
                    assert priority_with(change.fact, value) == explained.priority
    assert [abs(c.moved) for c in explained.changes] == sorted(
        abs(c.moved) for c in explained.changes
    )


def test_what_is_not_known_gives_a_range_and_its_reason() -> None:
    facts = {
        "segment": fact("business"),
        "urgent_ticket_count": fact(0),
        "open_ticket_count": fact(0),
        "oldest_open_ticket_days": fact(None),
    }
    failures = dict.fromkeys(SOURCES[:2], "the source is stale")
    explained = explain("c", facts, failures, load_policy())
    assert (explained.needs_followup, explained.priority) == (None, "undetermined")
    assert (explained.least, explained.most) == (0, 60)
    assert [part.basis for part in explained.parts[:2]] == ["the source is stale"] * 2
    assert explained.changes == []


def test_the_commands(
    tmp_path: Path, own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ["--home", str(tmp_path)]
    fill(tmp_path / "customers.db", customers=20).close()
    assert main(["policy", "show", *home]) == 0
    assert "inactive        up to 40 points, from 3 to 21 days" in capsys.readouterr().out
    assert main(["policy", "show", "--segment", "Enterprise", *home]) == 0
    assert "inactive        up to 40 points, from 2 to 10 days" in capsys.readouterr().out
    assert main(["policy", "show", "--segment", "nobody", *home]) == 2
    assert "names no segment 'nobody'" in capsys.readouterr().err

    assert main(["policy", "check", str(own), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert {"key": "priorities.medium", "shipped": 35.0, "value": 30.0} in document["differences"]
    monkeypatch.setenv("FOLLOWUP_POLICY", str(own))
    assert main(["policy", "check", *home]) == 0
    assert "version acme-1" in capsys.readouterr().out
    own.write_text("version = 1", encoding="utf-8")
    assert main(["policy", "check", *home]) == 2
    assert f"policy {own}, version" in capsys.readouterr().err
    monkeypatch.delenv("FOLLOWUP_POLICY")

    as_of = ["--as-of", NOW.isoformat(), *home]
    assert main(["policy", "explain", "user_123", *as_of]) == 0
    out = capsys.readouterr().out
    assert "user_123: follow-up needed, priority high, score" in out
    assert "days_since_last_active 9: counts from 3 days, fully at 21" in out
    assert "→ urgent_ticket_count 0 instead of 1" in out
    assert main(["policy", "explain", "user_456", "--json", *as_of]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["needs_followup"] is False
    assert document["changes"][0]["fact"] in {c["fact"] for c in document["changes"]}
    assert main(["policy", "explain", "user_404", *as_of]) == 2
    assert "no customer 'user_404'" in capsys.readouterr().err
    assert main(["policy", "explain", "x; DROP TABLE customers", *as_of]) == 2
    assert "user_id" in capsys.readouterr().err


def test_it_explains_the_very_verdict_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "customers.db", customers=30).close()
    with FollowupAgent.open(home=tmp_path, planner="rules", clock=lambda: NOW) as agent:
        for number in range(1001, 1016):
            verdict = agent.ask(f"Does user_{number} need follow-up? Last 7 days").verdict
            assert verdict is not None
            main(["policy", "explain", f"user_{number}", "--json", "--as-of", NOW.isoformat(), "--home", str(tmp_path)])  # fmt: skip
            explained = json.loads(capsys.readouterr().out)
            assert round(explained["least"]) == verdict["score"]
            assert explained["priority"] == verdict["priority"]
