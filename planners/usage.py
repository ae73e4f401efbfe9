"""What a model's calls cost: tokens as the server counts them, and money by a price table."""

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from followup_agent.service.errors import ConfigurationError
from followup_agent.state import Usage
from followup_agent.tools.definition import explain


class Price(BaseModel):
    """Of one model, for a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0)
    cached_input: float | None = Field(None, ge=0)
    """None: cached input costs as much as any."""
    output: float = Field(ge=0)

    def cost(self, input_tokens: int, cached_input_tokens: int, output_tokens: int) -> float:
        """For so many tokens, the cached ones being among the input."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = max(0, input_tokens - cached_input_tokens)
        total = fresh * self.input + cached_input_tokens * cached + output_tokens * self.output
        return total / 1_000_000


class PriceTable(BaseModel):
    """Prices by model name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: str = Field(min_length=1)
    models: dict[str, Price]

    def price_of(self, model: str) -> Price | None:
        """Of the model, or of the one whose dated version it is (`gpt-4o-mini-2024-07-18`)."""
        names = sorted(self.models, key=len, reverse=True)
        for name in names:
            if model == name or model.startswith((f"{name}-20", f"{name}@")):
                return self.models[name]
        return None


def load_prices(path: Path | None) -> PriceTable:
    """The table at `path`, or the one shipped; ConfigurationError for what is none."""
    if path is None:
        return _shipped()
    try:
        return PriceTable.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the price table {path} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        why = explain(error) if isinstance(error, ValidationError) else str(error)
        raise ConfigurationError(f"{path} is no price table: {why}") from error


@cache
def _shipped() -> PriceTable:
    text = resources.files(__package__).joinpath("prices.toml").read_text(encoding="utf-8")
    return PriceTable.model_validate(tomllib.loads(text))


def usage_of(reported: Any, price: Price | None) -> Usage:
    """One call's usage from what the server reports; what it does not report counts as 0."""
    input_tokens = _count(reported, "prompt_tokens")
    details = reported.get("prompt_tokens_details") if isinstance(reported, dict) else None
    # DeepSeek names the cached part at the top.
    cached = _count(details, "cached_tokens") or _count(reported, "prompt_cache_hit_tokens")
    cached, output_tokens = min(cached, input_tokens), _count(reported, "completion_tokens")
    return Usage(
        model_calls=1,
        input_tokens=input_tokens,
        cached_input_tokens=cached,
        output_tokens=output_tokens,
        cost=price.cost(input_tokens, cached, output_tokens) if price else 0.0,
    )


def _count(reported: Any, key: str) -> int:
    value = reported.get(key) if isinstance(reported, dict) else None
    return value if type(value) is int and value > 0 else 0


def added(first: Usage, second: Usage) -> Usage:
    """Both together."""
    return Usage(
        model_calls=first["model_calls"] + second["model_calls"],
        input_tokens=first["input_tokens"] + second["input_tokens"],
        cached_input_tokens=first["cached_input_tokens"] + second["cached_input_tokens"],
        output_tokens=first["output_tokens"] + second["output_tokens"],
        cost=first["cost"] + second["cost"],
    )
