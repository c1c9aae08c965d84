"""Cost: what an operation asked of storage, counted always and cheaply.

Every logical operation runs inside `measured()`; each step that must wait for the one before it calls
`stage()`.

Counts with Lance's own process-wide request counters (complete, LIST included) plus the few requests made
through our object client. A look at those counters takes ~10 us and lets the interpreter go, at which small
reads of several threads would queue: so whoever asks Lance for something says so first (`asks_lance`), and an
operation during which nobody did does not look.

A receipt gets a frozen `Cost`, metrics `process_totals()`. Lance cannot attribute requests to threads: when
operations overlap in one process, their requests are counted in each of them, and `shared` says so.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token

from lance.lance import register_lance_metrics_recorder, snapshot_lance_metrics

from omnigraph.base.dataclass import dataclass

REQUESTS = "lance_object_store_requests_total"
BYTES = "lance_object_store_request_bytes_total"
WRITES = ("put", "copy", "rename")  # the operations whose bytes travel towards the store


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests to storage, sequential stages, and bytes in each direction."""

    requests: int = 0
    stages: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    shared: bool = False

    def __str__(self) -> str:
        """Render for people.

        >>> str(Cost(requests=9, stages=5, bytes_read=120, bytes_written=3400))
        '9 requests in 5 stages, 120 B read, 3400 B written'
        """
        shared = " (shared with concurrent operations)" if self.shared else ""
        return (
            f"{self.requests} requests in {self.stages} stages, "
            f"{self.bytes_read} B read, {self.bytes_written} B written{shared}"
        )


NOTHING = Cost()


@dataclass(slots=True, eq=False)
class Meter:
    """A running measurement; `cost` is filled in when the block ends."""

    stages: int = 0
    shared: bool = False
    cost: Cost = NOTHING


def process_totals() -> Cost:
    """Return everything this process has asked of storage since it started."""
    requests, read, written = map(sum, zip(_lance_totals(), _objects, strict=True))
    return Cost(requests=requests, bytes_read=read, bytes_written=written)


class measured:
    """Measure one logical operation; a nested block joins the outer measurement.

    A class, not a generator: it stands around every operation.
    """

    _token: Token[Meter | None] | None = None  # set in the outermost block only

    def __enter__(self) -> Meter:
        outer = _current.get()
        if outer is not None:
            return outer
        self._meter = meter = Meter()
        self._token = _current.set(meter)
        _active.append(meter)  # without a lock, at which small reads of several threads would queue
        if len(_active) > 1:
            for active in tuple(_active):
                active.shared = True
        self._objects = tuple(_objects)
        totals, asked = _known[0]
        self._lance = totals if asked == _asked[0] else _lance_totals()
        self._asked = _asked[0]
        return meter

    def __exit__(self, *_: object) -> None:
        if self._token is None:
            return
        lance = self._lance if self._asked == _asked[0] else _lance_totals()
        meter = self._meter
        _active.remove(meter)
        _current.reset(self._token)
        requests, read, written = (
            now - then + count - counted
            for now, then, count, counted in zip(lance, self._lance, _objects, self._objects, strict=True)
        )
        meter.cost = Cost(requests, meter.stages, read, written, meter.shared)


def stage(*, of_lance: bool = True) -> None:
    """Note that the current operation begins a step that had to wait for the one before."""
    if of_lance:
        asks_lance()
    meter = _current.get()
    if meter is not None:
        meter.stages += 1


def asks_lance() -> None:
    """Note that Lance is about to be asked for something that may not be in memory."""
    _asked[0] += 1


def count_object_request(*, read: int = 0, written: int = 0) -> None:
    """Count one request made through the object client, which Lance's counters do not see."""
    with _lock:
        _objects[0] += 1
        _objects[1] += read
        _objects[2] += written


def _lance_totals() -> tuple[int, int, int]:
    """Look at Lance's counters: requests, bytes read and bytes written."""
    asked = _asked[0]
    requests = read = written = 0
    for point in snapshot_lance_metrics():
        name = point.name
        if name == REQUESTS:
            requests += int(point.value or 0)
        elif name == BYTES:
            if point.attributes["operation"] in WRITES:
                written += int(point.value or 0)
            else:
                read += int(point.value or 0)
    totals = requests, read, written
    _known[0] = totals, asked
    return totals


_lock = threading.Lock()
_active: list[Meter] = []
_objects = [0, 0, 0]
_asked = [0]  # how often Lance was asked; a count that is lost between threads does no harm
_known = [((0, 0, 0), -1)]  # Lance's totals as last seen, and how often it had been asked then
_current: ContextVar[Meter | None] = ContextVar("omnigraph_cost", default=None)
register_lance_metrics_recorder()
