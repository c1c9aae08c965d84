"""What one step of a test asked of storage, and how much memory the process held at most."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from omnigraph.storage.cost import measured

T = TypeVar("T")


@dataclass
class Measures:
    """Requests of steps by name; `report` prints them (`pytest -rP`)."""

    label: str
    requests: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, name: str, step: Callable[[], T]) -> T:
        """Run a step and note what it took; seconds are for people, no test judges them."""
        started = time.perf_counter()
        with measured() as meter:
            answer = step()
        self.seconds[name] = time.perf_counter() - started
        self.requests[name] = meter.cost.requests
        return answer

    def report(self) -> None:
        """Print a line for each step, and the peak of memory."""
        print(f"\n{self.label}: at most {peak_bytes() >> 20} MB")
        for name, requests in self.requests.items():
            print(f"  {name:<24} {requests:>8} requests {self.seconds[name]:>9.3f} s")


def peak_bytes() -> int:
    """Return the most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
