"""A limiter in front of a model: calls and tokens a minute, for one process.

Two token buckets that fill evenly and hold one minute's worth at most. A call takes its place at
once and waits until its turn has come, so those who wait are served in order, on any event loop
and in any thread. Retries take a place as well: they are no rate limiter.
"""

import threading
import time
from collections.abc import Callable


class RateLimiter:
    """Hands out turns."""

    def __init__(
        self,
        calls_per_minute: float | None,
        tokens_per_minute: float | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """None: no limit of that kind."""
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self._buckets = [
            _Bucket(limit, monotonic()) if limit is not None else None
            for limit in (calls_per_minute, tokens_per_minute)
        ]

    def take(self, tokens: float, *, within_s: float) -> float | None:
        """Seconds to wait for the turn of a call of so many tokens.

        None, and nothing is taken, when that is longer than `within_s`.
        """
        with self._lock:
            now = self._monotonic()
            amounts = [(b, a) for b, a in zip(self._buckets, (1.0, tokens), strict=True) if b]
            wait_s = max((bucket.wait_s(amount, now) for bucket, amount in amounts), default=0.0)
            if wait_s > within_s:
                return None
            for bucket, amount in amounts:
                bucket.take(amount, now)
            return wait_s


class _Bucket:
    def __init__(self, per_minute: float, now: float) -> None:
        self._size = per_minute
        self._level = per_minute
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """Until so much is there; more than the bucket holds counts as all it holds."""
        self._fill(now)
        return max(0.0, (min(amount, self._size) - self._level) / self._size * 60)

    def take(self, amount: float, now: float) -> None:
        """May go below zero: those who come later wait for it."""
        self._fill(now)
        self._level -= min(amount, self._size)

    def _fill(self, now: float) -> None:
        self._level = min(self._size, self._level + (now - self._at) * self._size / 60)
        self._at = now
