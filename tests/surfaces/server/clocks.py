"""A clock that tests move, and that never moves by itself."""

from __future__ import annotations

from omnigraph.base.ids import SystemClock

STARTED_US = 1_800_000_000_000_000  # 2027-01-15T08:00:00Z


class HandClock(SystemClock):
    """Stands still until it is told how many seconds have passed."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return STARTED_US + int(self.seconds * 1_000_000)

    def monotonic(self) -> float:
        """Seconds since it was made."""
        return self.seconds
