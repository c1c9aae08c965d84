"""Where writers meet faults: copies of one base graph, and what each writer shows and passes without any.

Room    tests. The base of a writer is made once and copied for each cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError
from tests.faults.cells import Store
from tests.faults.oracle import ADD, PEOPLE, Exported, Known, View, exported_at, look_at
from tests.faults.writers import RACER, Writer, make_base, sweep
from tests.support.death import noting_points, position
from tests.support.places import Copies, Place
from tests.support.proxy import S3Proxy

AGE_S = 7200.0  # of the base graph, where a test can say it; a copy keeps it


@dataclass(frozen=True)
class Sight:
    """What a graph shows, and what is beside it: None where there is nothing whole, or where nobody looks."""

    graph: View
    beside: View | Exported | None = None


@dataclass(frozen=True)
class Course:
    """A writer that met no fault: what was there before and after it, and the points it passed."""

    before: Sight
    after: Sight
    passed: list[str]

    def lands_at(self, visible: str, point: str, passage: int) -> bool:
        """Say whether whoever is stopped at this passage of a point has made its change visible."""
        return position(self.passed, point, passage) >= self.passed.index(f"{visible}.after")


@dataclass(frozen=True)
class Rivalry:
    """What a writer and its rival leave when one comes after the other: any race of them must end alike."""

    alone: Sight  # the rival
    first: Sight  # the rival, then the writer
    last: Sight  # the writer, then the rival
    refused: str | None  # what the writer is told after its rival


@dataclass
class Ground:
    """One kind of store."""

    copies: Copies
    store: Store
    _bases: dict[str, Place] = field(default_factory=dict)
    _courses: dict[str, Course] = field(default_factory=dict)
    _rivalries: dict[str, Rivalry] = field(default_factory=dict)

    def fresh(self, writer: Writer) -> Place:
        """Return a place with the graph that a writer starts from."""
        return self._copy(self._base(writer))

    def course(self, writer: Writer) -> Course:
        """Return how the writer goes when nothing happens to it."""
        if writer.name not in self._courses:
            place = self.fresh(writer)
            before = see(place, writer)
            with og.connect(place.address, **place.kwargs) as graph, noting_points() as passed:
                writer.run(graph)
            self._courses[writer.name] = Course(before, see(place, writer), passed)
        return self._courses[writer.name]

    def rivalry(self, writer: Writer) -> Rivalry:
        """Return how the writer and its rival go, one after the other."""
        if writer.name not in self._rivalries:
            place, other = self.fresh(writer), self.fresh(writer)
            rival(place, writer)
            alone = see(place, writer)
            refused = _in_turn(place, writer.run)
            _in_turn(other, writer.run)
            rival(other, writer)
            self._rivalries[writer.name] = Rivalry(alone, see(place, writer), see(other, writer), refused)
        return self._rivalries[writer.name]

    def _base(self, writer: Writer) -> Place:
        name = writer.name if writer.prepare else ""
        if name not in self._bases:
            if writer.prepare is None:
                place = self._empty()
                make_base(place.address, place.options)
            else:
                place = self._copy(self._base(_PLAIN))
                with og.connect(place.address, **place.kwargs) as graph:
                    writer.prepare(graph)
            if self.store == "local":
                _age(Path(place.address))
            self._bases[name] = place
        return self._bases[name]

    # A graph on local disk has a folder for itself and what is beside it, on S3 a bucket.

    def _empty(self) -> Place:
        return self._inside(self.copies.empty())

    def _copy(self, place: Place) -> Place:
        if self.store == "s3":
            return self.copies.copy(place)
        return self._inside(self.copies.copy(Place(place.address.rpartition("/")[0], {})))

    def _inside(self, place: Place) -> Place:
        return place if self.store == "s3" else Place(f"{place.address}/g", {})


def _age(folder: Path) -> None:
    """Make the files of a graph old: versions that come of age while a cell runs would be another's work."""
    for path in folder.rglob("*"):
        if path.is_file():
            written_at = path.stat().st_mtime - AGE_S
            os.utime(path, (written_at, written_at))


_PLAIN = Writer("", lambda _: None, ())


def beside(place: Place) -> Place:
    """Return where a writer puts what it makes beside its graph."""
    return Place(f"{place.address.rpartition('/')[0]}/other", place.options)


def see(place: Place, writer: Writer, known: Known | None = None) -> Sight:
    """Read everything there is, with handles that know nothing."""
    shown = look_at(place, known)
    assert shown is not None
    if writer.beside is None:
        return Sight(shown)
    return Sight(shown, (look_at if writer.beside == "graph" else exported_at)(beside(place)))


def race(place: Place) -> None:
    """Be another writer: publish one row on main, and leave."""
    with og.connect(place.address, durability="os", **place.kwargs) as other:
        other.mutate(ADD, name=RACER, message=RACER)


def rival(place: Place, writer: Writer) -> None:
    """Be the rival of a writer, and leave; it may be refused, as it is where the writer came first."""
    assert writer.rival is not None
    _in_turn(place, writer.rival)


def clean(place: Place) -> None:
    """Be a cleanup without a grace period."""
    with og.connect(place.address, durability="os", **place.kwargs) as other:
        sweep(other)


def _in_turn(place: Place, run: Callable[[Graph], object]) -> str | None:
    """Run somebody; return the code of the error that it is told."""
    with og.connect(place.address, durability="os", **place.kwargs) as graph:
        try:
            run(graph)
        except GraphError as error:
            return error.code
    return None


@contextmanager
def opened(place: Place, proxy: S3Proxy | None = None) -> Iterator[tuple[Graph, Graph]]:
    """Yield a handle for the writer, through the proxy if there is one, and another that has read things."""
    options = place.options if proxy is None else {**place.options, "aws_endpoint": proxy.endpoint}
    with (
        og.connect(place.address, **place.kwargs) as stale,
        og.connect(place.address, storage_options=options or None) as graph,
    ):
        stale.tags.list()
        for branch in stale.branches.list():
            stale.query(PEOPLE, branch=branch.name)
        yield graph, stale
