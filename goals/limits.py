"""What a caller may ask for: the limits of one run's input."""

MAX_GOAL_CHARS = 4000
"""A question is a few sentences; more is a paste in the wrong place."""
DEFAULT_DAYS = 7
"""Lookback when the user names none (seed document, section 2: 近 7 天)."""
MAX_DAYS = 365
DEFAULT_MAX_STEPS = 8
"""Three sources, a question asked twice, a write and a finish are seven; one to spare."""
MAX_STEPS_CEILING = 100
"""The most steps a caller may allow."""
