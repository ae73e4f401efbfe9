"""Calls and tokens a minute, in order, without a poll."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from followup_agent.planners.limiter import RateLimiter


class Clock:
    """Time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def test_without_limits_nobody_waits() -> None:
    limiter = RateLimiter(None, None)
    assert [limiter.take(1e9, within_s=0) for _ in range(100)] == [0.0] * 100


def test_a_minutes_worth_goes_at_once_and_the_next_waits_its_turn() -> None:
    clock = Clock()
    limiter = RateLimiter(60, None, monotonic=clock)
    waits = [limiter.take(1, within_s=100) for _ in range(63)]
    assert waits == [0.0] * 60 + [1.0, 2.0, 3.0]
    clock.now = 3.0
    assert limiter.take(1, within_s=100) == 1.0


def test_tokens_are_counted_as_well() -> None:
    clock = Clock()
    limiter = RateLimiter(None, 6000, monotonic=clock)
    assert limiter.take(5000, within_s=60) == 0.0
    assert limiter.take(2000, within_s=60) == 10.0  # 1000 short, 100 a second
    assert limiter.take(100, within_s=60) == 11.0


def test_a_turn_that_comes_too_late_is_not_taken() -> None:
    clock = Clock()
    limiter = RateLimiter(1, None, monotonic=clock)
    assert limiter.take(1, within_s=1) == 0.0
    assert limiter.take(1, within_s=59) is None
    assert limiter.take(1, within_s=60) == 60.0  # nothing was taken by the one before


def test_a_call_larger_than_a_minute_gets_through() -> None:
    limiter = RateLimiter(None, 1000, monotonic=Clock())
    assert limiter.take(50_000, within_s=1) == 0.0


def test_many_threads_share_one_budget() -> None:
    limiter = RateLimiter(60, None, monotonic=Clock())
    waits: list[float | None] = []

    def take() -> None:
        for _ in range(20):
            waits.append(limiter.take(1, within_s=1000))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(round(w or 0, 6) for w in waits) == [0.0] * 60 + [float(n) for n in range(1, 61)]


@given(
    limit=st.integers(1, 600),
    steps=st.lists(st.floats(0, 30), min_size=1, max_size=80),
)
def test_in_no_minute_more_calls_start_than_two_minutes_worth(
    limit: int, steps: list[float]
) -> None:
    """A full bucket and what fills up meanwhile; in the long run the limit."""
    clock = Clock()
    limiter = RateLimiter(limit, None, monotonic=clock)
    starts = []
    for step in steps:
        clock.now += step
        wait = limiter.take(1, within_s=1e9)
        assert wait is not None
        starts.append(clock.now + wait)
    for first in starts:
        assert sum(first <= start < first + 60 for start in starts) <= 2 * limit
    elapsed = max(starts)
    assert len(starts) <= limit + elapsed * limit / 60 + 1
