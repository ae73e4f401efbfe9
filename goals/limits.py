"""What a caller may ask for: the limits of one run's input, and the choices there are."""

from typing import Literal

MAX_GOAL_CHARS = 4000
"""A question is a few sentences; more is a paste in the wrong place."""
DEFAULT_DAYS = 7
"""Lookback when the user names none (seed document, section 2: 近 7 天)."""
MAX_DAYS = 365
DEFAULT_MAX_STEPS = 8
"""Three sources, a question asked twice, a write and a finish are seven; one to spare."""
MAX_STEPS_CEILING = 100
"""The most steps a caller may allow."""
MAX_PROMPT_TOKENS = 12_000
"""Cap of one request to a model, by an upper estimate of its tokens. Twelve rounds of the built-in
tools take about half of it; a context of 16,000 leaves room for the reply."""

OutputMethod = Literal["json_schema", "function_calling", "json_object", "prompt"]
"""How a model is made to reply with one decision; the strictest first."""
Guidance = Literal["free", "narrow"]
"""free: any decision in any round. narrow: only what makes sense in this round is offered."""
