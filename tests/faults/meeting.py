"""How a writer meets each kind of fault.

Room    tests. Spawned children import this module by name; no pytest here.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import omnigraph as og
from omnigraph.engine.export.files import MANIFEST
from omnigraph.storage.durability import FailpointHit, armed
from tests.faults.cells import HALVES, ON_REQUESTS, RACES, Action, Cell
from tests.faults.ground import Ground, clean, opened, race, rival
from tests.faults.judge import Left, Met, Outcome, attempt, gave_up
from tests.faults.writers import BY_NAME, Options
from tests.support.death import KILLED, die_at
from tests.support.faults import Match
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.proxy import Fault, S3Proxy
from tests.support.workers import once

FOREVER = 1_000_000
READS = ("GET", "HEAD", "LIST")
TIME_LIMIT_S = 300.0  # a Spark of its own takes its time to start
FAULTS = {
    Action.FAILED: Fault.ERROR_503,
    Action.CUT: Fault.CUT_BEFORE,
    Action.CUT_AFTER: Fault.CUT_AFTER,
    Action.TWICE: Fault.TWICE,
}


def run_cell(ground: Ground, cell: Cell, proxy: Callable[[], S3Proxy]) -> None:
    """Let the writer of a cell meet its fault, and judge what is left."""
    writer, course = cell.writer, ground.course(cell.writer)
    away = cell.action is Action.KILL or (cell.action is Action.READ_ONLY and cell.store == "local")
    at_points = cell.action in (Action.EXCEPTION, Action.KILL)
    total = course.passed.count(cell.window)
    for passage in sorted({1, total}) if at_points else [1]:
        place = ground.fresh(writer)
        running = proxy() if _on_requests(cell) else None
        with opened(place, running) as (graph, stale):
            if away:
                outcome = _in_a_process(cell, place, passage)
            else:
                with _fault(cell, place, passage, running):
                    outcome = attempt(writer.run, graph)
            landed = course.lands_at(writer.visible.value, cell.window, passage) if at_points else None
            rivalry = ground.rivalry(writer) if cell.action is Action.RIVAL else None
            left = Left(writer, course, place, graph, stale, outcome, landed, _met(cell), rivalry)
            left.judge()


def _met(cell: Cell) -> Met:
    if cell.action in (Action.RACE, Action.DELAYED):
        return Met.RACER
    return Met.OTHERS if cell.action in RACES else Met.NOBODY


def _on_requests(cell: Cell) -> bool:
    return cell.action in ON_REQUESTS or (cell.action is Action.READ_ONLY and cell.store == "s3")


@contextmanager
def _fault(cell: Cell, place: Place, passage: int, proxy: S3Proxy | None) -> Iterator[None]:
    """Let the fault of a cell happen to whatever runs inside."""
    if cell.action is Action.EXCEPTION:
        happening = armed({cell.window: _raising_at(passage)})
    elif cell.action in RACES:
        others: dict[Action, Callable[[Place], None]] = {
            Action.RACE: race,
            Action.SWEEP: clean,
            Action.RIVAL: partial(rival, writer=cell.writer),
        }
        happening = armed({cell.window: once(partial(others[cell.action], place))})
    elif cell.action is Action.DISK_FULL:
        happening = _full_disk(cell.window)
    else:
        assert proxy is not None
        happening = _requests(cell, place, proxy)
    with happening:
        yield


def _raising_at(passage: int) -> Callable[[], None]:
    passed = 0

    def count() -> None:
        nonlocal passed
        passed += 1
        if passed == passage:
            raise FailpointHit(f"passage {passage}")

    return count


@contextmanager
def _full_disk(point: str) -> Iterator[None]:
    """From a point on, no file of this process can grow; the system refuses it, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    fill = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with armed({point: fill}):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# -- requests ----------------------------------------------------------------------------------------


@contextmanager
def _requests(cell: Cell, place: Place, proxy: S3Proxy) -> Iterator[None]:
    """Let requests of whatever runs inside go wrong; afterwards none does."""
    try:
        if cell.action is Action.DELAYED:
            with _delay(cell.window, place, proxy):
                yield
        elif cell.action is Action.REPLY_LOST:
            lost = _LostSwap()
            with armed({cell.window: once(partial(lost.begin, proxy))}):
                yield
            assert lost.key, "no swap was sent"
        elif cell.action is Action.DENIED:
            with armed({cell.window: once(partial(proxy.fail, _any, Fault.DENY_403, FOREVER))}):
                yield
        elif cell.action is Action.READ_ONLY:
            proxy.fail(lambda method, _: method not in READS, Fault.DENY_403, FOREVER)
            yield
        elif cell.window in HALVES:
            proxy.fail(_every_second(HALVES.index(cell.window)), FAULTS[cell.action], FOREVER)
            yield
        else:
            with armed({cell.window: once(partial(proxy.fail, _any, FAULTS[cell.action]))}):
                yield
            assert proxy.pending_faults == 0, "no request was sent"
    finally:
        proxy.clear_faults()


def _any(method: str, key: str) -> bool:
    return True


def _every_second(first: int) -> Match:
    passed = -1

    def match(method: str, key: str) -> bool:
        nonlocal passed
        passed += 1
        return passed % 2 == first

    return match


@contextmanager
def _delay(point: str, place: Place, proxy: S3Proxy) -> Iterator[None]:
    """Hold the requests that follow a point until another writer has published, past the proxy."""
    failed: list[BaseException] = []

    def come_between() -> None:
        try:
            proxy.wait_parked()
            race(place)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread of the test
            failed.append(error)
        finally:
            proxy.resume()

    other = threading.Thread(target=come_between)

    def hold() -> None:
        proxy.pause(_any)
        other.start()

    with armed({point: once(hold)}):
        yield
    other.join()
    if failed:
        raise failed[0]


class _LostSwap:
    """The answer to a swap is lost, and whatever asks how it went is refused."""

    def __init__(self) -> None:
        self.key = ""

    def begin(self, proxy: S3Proxy) -> None:
        proxy.fail(self._swap, Fault.CUT_AFTER, 1)
        proxy.fail(self._question, Fault.DENY_403, FOREVER)

    def _swap(self, method: str, key: str) -> bool:
        decides = ("/_versions/" in key and "/tables/" not in key) or key.endswith(f"/{MANIFEST}")
        if method == "PUT" and decides and not self.key:
            self.key = key
            return True
        return False

    def _question(self, method: str, key: str) -> bool:
        """Match the repeated swap and the look at what is there; reading it as the newest version is fine."""
        return key == self.key and method in ("PUT", "HEAD")


# -- in a process of its own -------------------------------------------------------------------------


def _in_a_process(cell: Cell, place: Place, passage: int) -> Outcome:
    """Let a process die at a point, or find that it may write nothing."""
    where = (cell.writer.name, place.address, place.options)
    if cell.action is Action.KILL:
        (dead,) = run_processes(die, [(*where, cell.window, passage)], timeout_s=TIME_LIMIT_S)
        assert dead.exit_code == KILLED, f"it did not die: {dead.error_text}"
        return Outcome(died=True)
    with _read_only(place.address.rpartition("/")[0]):
        (met,) = run_processes(run_unprivileged, [where], timeout_s=TIME_LIMIT_S)
    assert met.ok or met.error_code is not None, f"an untyped error: {met.error_text}"
    return Outcome(error=met.error_code, gave_up=bool(met.value))


def die(name: str, address: str, options: Options, point: str, passage: int) -> None:
    """Run a writer and be killed at the n-th passage of a point."""
    die_at(BY_NAME[name].run, address, options, point, passage)


def run_unprivileged(name: str, address: str, options: Options) -> bool:
    """Run a writer as somebody who is bound by the modes of files: root is not, so it gives that up.

    Returns whether all it did was to report what is left to do.
    """
    give_up_privileges()
    with og.connect(address, storage_options=options or None) as graph:
        return gave_up(BY_NAME[name].run(graph))


def give_up_privileges() -> None:
    """Drop all capabilities of this thread and of those that it starts."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface, this thread
    nothing = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, each in two words
    if ctypes.CDLL(None, use_errno=True).capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


@contextmanager
def _read_only(root: str) -> Iterator[None]:
    _set_modes(root, 0o555, 0o444)
    try:
        yield
    finally:
        _set_modes(root, 0o755, 0o644)


def _set_modes(root: str, folder_mode: int, file_mode: int) -> None:
    for folder, _, files in os.walk(root):
        os.chmod(folder, folder_mode)
        for file in files:
            os.chmod(os.path.join(folder, file), file_mode)
