"""SIGKILL at every durable step of an upgrade, on a graph that an earlier release wrote.

Until main is upgraded, which is the last step, this release refuses the graph and the older one reads it;
afterwards it is the other way round. In either case nothing is lost, and the next upgrade finishes the work.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.base.errors import FormatTooNew, FormatTooOld
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.manifest.formats import FORMAT
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.store import GraphStore
from tests.formats.make_graph import document
from tests.formats.test_old_graphs import differing
from tests.support.death import Options, die_on_copies, dying_at, noting_points
from tests.support.formats import ARCHIVE, OLDER, answers, older_release, stamps, unpack
from tests.support.places import Copies, Place
from tests.support.stores import location

pytestmark = pytest.mark.xdist_group("crash")

PARTS = 6  # the registry, four branches, main
THIRDS = [[1, 2], [3, 4], [5, PARTS]]  # of the passages of a point: each a test of a bearable length
POINTS = ["upgrade.before", "upgrade.after", "head_sync.before", "head_sync.after"]
QUICK = (
    "branches",
    "tags",
    "commits",
    "schema",
    "nodes",
    "edges",
    "feed",
)  # questions that decide, and are short
COUNT = "query q() { match { $d: Document } return { count($d) as n } }"


def old_graph(copies: Copies, folder: Path) -> Place:
    """Put the graph of the archive where it can be copied from."""
    place, files = copies.empty(), unpack(ARCHIVE, folder)
    objects = location(place).objects
    for file in sorted(path for path in files.rglob("*") if path.is_file()):
        assert objects.create(file.relative_to(files).as_posix(), file.read_bytes())
    return place


def upgrade_until(address: str, options: Options, point: str, passage: int) -> None:
    """Upgrade a graph and die at the n-th passage of a point."""
    with dying_at(point, passage):
        og.upgrade(address, storage_options=options)


def check_left(place: Place) -> bool:
    """Look at what an upgrade that was killed has left; say whether it was all done."""
    formats = stamps(place)
    done = formats[MANIFEST] == FORMAT
    assert done is (set(formats.values()) == {FORMAT}), "main is the last"
    assert formats[REFS] == FORMAT or set(formats.values()) == {OLDER}, "the registry is the first"
    if done:
        with older_release(), pytest.raises(FormatTooNew):
            GraphStore.open(place.address, **place.kwargs)
    else:
        with pytest.raises(FormatTooOld):
            og.connect(place.address, **place.kwargs)
        with older_release(), GraphStore.open(place.address, **place.kwargs) as store:
            assert store.snapshot().state.pins
    return done


def check_finished(place: Place) -> None:
    """Upgrade again: the graph says what it said, is sound, and can be written to."""
    og.upgrade(place.address, **place.kwargs)
    assert set(stamps(place).values()) == {FORMAT}
    asked = [question for question in answers(ARCHIVE) if question["call"] in QUICK]
    with og.connect(place.address, durability="os", **place.kwargs) as graph:
        assert differing(graph, asked) == []
        assert [finding for finding in graph.doctor().findings if finding.severity != "info"] == []
        for branch in ("main", "grown"):
            before = graph.query(COUNT, branch=branch).rows[0]["n"]
            graph.load([document(20, "New on a lake")], mode="append", branch=branch)
            assert graph.query(COUNT, branch=branch).rows[0]["n"] == before + 1


def check_killed(copies: Copies, base: Place, point: str, passages: list[int]) -> None:
    """Let upgrades die, each at a passage of a point, and go on from what they left."""
    deaths = die_on_copies(
        upgrade_until,
        partial(copies.copy, base),
        passages,
        lambda place, passage: (place.address, place.options, point, passage),
    )
    for place, passage in deaths:
        assert check_left(place) is (passage == PARTS and point != "upgrade.before")
        check_finished(place)


def test_an_upgrade_passes_its_points_once_for_each_part(local_copies: Copies, tmp_path: Path) -> None:
    """Otherwise dying there would prove less than it seems to."""
    place = old_graph(local_copies, tmp_path)
    with noting_points() as passed:
        og.upgrade(place.address)
    assert passed == ["upgrade.before", "upgrade.after", "head_sync.before", "head_sync.after"] * PARTS


@pytest.mark.parametrize(("point", "passages"), [("upgrade.before", [PARTS]), ("upgrade.after", [3])])
def test_death_during_an_upgrade_loses_nothing_and_the_next_one_finishes_it(
    local_copies: Copies, tmp_path: Path, point: str, passages: list[int]
) -> None:
    check_killed(local_copies, old_graph(local_copies, tmp_path), point, passages)


@pytest.mark.full
@pytest.mark.parametrize("copies", ["local_copies", pytest.param("s3_copies", marks=pytest.mark.s3)])
@pytest.mark.parametrize("passages", THIRDS, ids=str)
@pytest.mark.parametrize("point", POINTS)
def test_death_at_every_step_of_an_upgrade_loses_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, copies: str, point: str, passages: list[int]
) -> None:
    made: Copies = request.getfixturevalue(copies)
    check_killed(made, old_graph(made, tmp_path), point, passages)
