"""What a call cost."""

from pathlib import Path
from typing import Any

import pytest

from followup_agent.planners.usage import Price, added, load_prices, usage_of
from followup_agent.service.errors import ConfigurationError
from followup_agent.state import NO_USAGE

PRICE = Price(input=2.0, cached_input=0.5, output=8.0)


def test_cached_input_is_cheaper_and_part_of_the_input() -> None:
    reported = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 800},
    }
    usage = usage_of(reported, PRICE)
    assert usage == {
        "model_calls": 1,
        "input_tokens": 1000,
        "cached_input_tokens": 800,
        "output_tokens": 100,
        "cost": pytest.approx((200 * 2.0 + 800 * 0.5 + 100 * 8.0) / 1e6),
    }


def test_deepseek_names_its_cache_at_the_top() -> None:
    assert (
        usage_of({"prompt_tokens": 9, "prompt_cache_hit_tokens": 8}, None)["cached_input_tokens"]
        == 8
    )


@pytest.mark.parametrize(
    "reported", [None, {}, [], "x", {"prompt_tokens": "9"}, {"prompt_tokens": -1}, {"prompt_tokens": True}]
)  # fmt: skip
def test_what_a_server_does_not_report_counts_as_nothing(reported: Any) -> None:
    assert usage_of(reported, PRICE) == {**NO_USAGE, "model_calls": 1}


def test_usages_add_up() -> None:
    one = usage_of({"prompt_tokens": 10, "completion_tokens": 2}, PRICE)
    assert added(one, one) == {
        "model_calls": 2,
        "input_tokens": 20,
        "cached_input_tokens": 0,
        "output_tokens": 4,
        "cost": pytest.approx(2 * one["cost"]),
    }


def test_a_dated_version_has_its_models_price() -> None:
    table = load_prices(None)
    assert table.price_of("gpt-4o-mini-2024-07-18") == table.models["gpt-4o-mini"]
    assert table.price_of("gpt-4o-mini") != table.price_of("gpt-4o")
    assert table.price_of("qwen2.5") is None
    assert table.price_of("gpt-4o-audio") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("currency = 'EUR'\n[models.x]\ninput = 1\n", "output"),
        ("currency = 'EUR'\n[models.x]\ninput = -1\noutput = 1\n", "input"),
        ("x = ", "no price table"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_price_table_says_what_is_wrong(
    text: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=said):
        load_prices(path)
