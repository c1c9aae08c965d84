"""Upgrade: a graph of the format before is refused, and upgraded in place beside writers of its own release.

The older release is this code, serving format 1 alone (tests/support/formats.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.base.errors import (
    DestinationRefused,
    FormatTooNew,
    FormatTooOld,
    GraphNotFound,
    IntegrityError,
)
from omnigraph.engine.backup import back_up
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.manifest.formats import FORMAT, STEPS
from omnigraph.storage.manifest.upgrade import UpgradeReport
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Upsert
from tests.storage.bare import change_map
from tests.support.formats import OLDER, older_release, stamps
from tests.support.graphs import PERSON, chain_of, make_graph, people, persons, upsert_person, write
from tests.support.places import Copies, Place
from tests.support.stores import again, check_error, location, nothing_written

pytestmark = pytest.mark.s3_when_full

OLD_STAMPS, NEW_STAMPS = {OLDER}, {FORMAT}


def make_older(place: Place) -> Place:
    """Make a graph as the older release does: a branch, a tag, and a branch that was deleted."""
    with older_release(), make_graph(place.address, durability="os", **place.kwargs) as store:
        write(store, {PERSON: Upsert(people(["a", "b"], age=1))})
        store.branches.create("dev", "main")
        upsert_person(store, "on dev", branch="dev")
        store.branches.create("ended", "main")
        upsert_person(store, "on ended", branch="ended")
        store.branches.delete("ended")
        store.tags.create("v1", store.snapshot(at=1).state)
    return place


@pytest.fixture
def older(place: Place) -> Place:
    """Where a graph of the older format is."""
    return make_older(place)


def upgrade(place: Place, **options: Any) -> UpgradeReport:
    return og.upgrade(place.address, **options, **place.kwargs)


def formats_of(place: Place) -> set[int]:
    return set(stamps(place).values())


def check_usable(place: Place) -> None:
    """Every branch can be read and written, and forked from."""
    assert formats_of(place) == NEW_STAMPS
    with again(place) as store:
        for branch in ("main", *(ref.name for ref in store.branches.list())):
            upsert_person(store, "next", branch=branch)
            assert "next" in persons(store, branch)
        store.branches.create("later", "main")
        assert formats_of(place) == NEW_STAMPS


# -- the graph ---------------------------------------------------------------------------------------


def test_every_older_format_has_a_step_to_the_next() -> None:
    assert sorted(STEPS) == list(range(OLDER, FORMAT))


def test_a_graph_of_an_older_format_is_refused_with_the_command_that_upgrades_it(older: Place) -> None:
    with nothing_written(older), pytest.raises(FormatTooOld) as caught:
        again(older)
    check_error(caught.value, "format_too_old", location(older).uri)
    assert caught.value.fields == {"number": OLDER, "supported": FORMAT}
    uri = location(older).uri
    assert f"'omnigraph upgrade {uri}', or og.upgrade({uri!r})" in str(caught.value)


def test_the_command_can_be_pasted_whatever_the_address(local_place: Place) -> None:
    place = make_older(Place(f"{local_place.address} of Ann's", {}))
    with pytest.raises(FormatTooOld) as caught:
        again(place)
    quoted = place.address.replace("'", "'\"'\"'")
    assert f"omnigraph upgrade '{quoted}'" in str(caught.value)


def test_an_upgrade_keeps_every_commit_and_answer_and_the_older_release_is_refused(older: Place) -> None:
    with older_release(), again(older) as store:
        before = {name: (chain_of(store, name), persons(store, name)) for name in ("main", "dev")}
        first = persons(store, at=1)
    shown: list[tuple[int, int]] = []

    report = upgrade(older, progress=lambda *now: shown.append(now))

    assert (report.from_format, report.to_format, report.dry_run, report.needed) == (
        OLDER,
        FORMAT,
        False,
        True,
    )
    told = [(branch.name, branch.from_format, branch.commit_id) for branch in report.branches]
    assert told == [(name, OLDER, before[name][0][-1]) for name in ("main", "dev")]
    assert shown == [(done, 3) for done in (1, 2, 3)]
    assert formats_of(older) == NEW_STAMPS
    with again(older) as store:
        assert {name: (chain_of(store, name), persons(store, name)) for name in before} == before
        assert persons(store, at=1) == first
        assert [tag.name for tag in store.tags.list()] == ["v1"]
    with older_release(), pytest.raises(FormatTooNew):
        again(older)
    check_usable(older)


def test_a_dry_run_says_the_same_and_writes_nothing(older: Place) -> None:
    with nothing_written(older):
        planned = upgrade(older, dry_run=True)
    done = upgrade(older)
    assert planned.dry_run
    assert (planned.branches, planned.from_format) == (done.branches, done.from_format)


def test_a_graph_of_this_format_is_left_alone(older: Place) -> None:
    upgrade(older)
    with nothing_written(older):
        report = upgrade(older)
    assert not report.needed
    assert (report.from_format, report.to_json()["upgraded"]) == (FORMAT, False)
    assert {branch.from_format for branch in report.branches} == NEW_STAMPS


def test_where_there_is_no_graph_the_upgrade_says_so(place: Place) -> None:
    with nothing_written(place), pytest.raises(GraphNotFound):
        upgrade(place)


@pytest.mark.parametrize("stamp", ["3", "0", None])
def test_a_graph_that_no_step_leads_from_is_refused_before_anything_is_changed(
    older: Place, stamp: str | None
) -> None:
    options: Any = older.kwargs
    change_map(lance.dataset(location(older).join(MANIFEST), **options), {"omnigraph.format": stamp})
    code = {"3": "format_too_new", "0": "format_too_old", None: "format_unreadable"}[stamp]
    with nothing_written(older), pytest.raises(og.GraphError) as caught:
        upgrade(older)
    check_error(caught.value, code, MANIFEST)


def test_if_a_branch_cannot_be_read_nothing_is_changed(older: Place) -> None:
    options: Any = older.kwargs
    (dev,) = (path for path in stamps(older) if "/tree/" in path)
    change_map(lance.dataset(location(older).join(dev), **options), {"graph_commit": "damaged"})
    with nothing_written(older), pytest.raises(IntegrityError) as caught:
        upgrade(older)
    check_error(caught.value, "integrity", dev)


def test_a_branch_that_is_left_behind_is_refused_and_the_next_upgrade_takes_it_along(older: Place) -> None:
    """As a copy that was cut off may leave it."""
    upgrade(older)
    options: Any = older.kwargs
    (dev,) = (path for path in stamps(older) if "/tree/" in path)
    change_map(lance.dataset(location(older).join(dev), **options), {"omnigraph.format": "1"})
    with again(older) as store, pytest.raises(FormatTooOld):
        store.snapshot("dev")
    told = {branch.name: branch.from_format for branch in upgrade(older).branches}
    assert told == {"main": FORMAT, "dev": OLDER}
    check_usable(older)


def test_a_chain_that_has_ended_is_read_in_its_format(older: Place) -> None:
    """Merges and copies go by the chains of deleted branches, which nobody upgrades."""
    with older_release(), again(older) as store:
        store.branches.create("brief", "main")
        brief = store.branches.list()[0].incarnation
        upsert_person(store, "merged", branch="brief")
        taken = store.snapshot("brief").state
        store.branches.delete("brief")
    upgrade(older)
    with again(older) as store:
        chain = store.branches.chain(brief)
        assert chain.latest().tombstone is not None
        assert chain.at(taken.version) == taken


def test_an_unfinished_init_of_the_older_release_is_taken_over(place: Place) -> None:
    with (
        older_release(),
        armed({"genesis.before": "raise"}),
        pytest.raises(RuntimeError),
    ):
        make_graph(place.address, durability="os", **place.kwargs)
    make_graph(place.address, durability="os", force=True, **place.kwargs).close()
    check_usable(place)


def test_a_copy_of_the_older_format_follows_its_graph_or_goes_its_own_way(
    older: Place, local_copies: Copies
) -> None:
    follows, apart, restored = (local_copies.empty() for _ in range(3))
    with older_release(), again(older) as store:
        back_up(store, follows.address)
        back_up(store, apart.address)
    with pytest.raises(FormatTooOld):
        og.restore(apart.address, restored.address)
    upgrade(older)
    upgrade(apart)
    with again(older) as store:
        back_up(store, follows.address)
        with pytest.raises(DestinationRefused):
            back_up(store, apart.address)
    og.restore(apart.address, restored.address)
    for place in (follows, restored):
        check_usable(place)


def test_what_a_cleanup_keeps_is_read_whatever_its_format(older: Place) -> None:
    with older_release(), again(older) as store:
        for age in range(5):
            upsert_person(store, "a", age=age)
        first = persons(store, at=1)
    upgrade(older)
    with again(older) as store:
        store.cleanup(Retention(1, grace_us=0), dry_run=False)
        assert 1 in store.snapshot().state.kept
    with again(older) as store:
        assert persons(store, at=1) == first
    check_usable(older)


# -- others at the same time -------------------------------------------------------------------------


def test_several_upgrades_at_once_do_no_harm(older: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: upgrade(older), range(4)))
    assert {report.to_format for report in reports} == NEW_STAMPS
    with again(older) as store:
        versions = [store.snapshot(name).state for name in ("main", "dev")]
        assert all(state.version == state.commit.manifest_version + 1 for state in versions)
    check_usable(older)


@pytest.mark.parametrize("passage", [1, 2, 3])
def test_a_lost_reply_is_read_back(local_place: Place, passage: int) -> None:
    make_older(local_place)
    passed = 0

    def lose() -> None:
        nonlocal passed
        passed += 1
        if passed == passage:
            raise OSError("the reply was lost")

    with armed({"upgrade.after": lose}):
        report = upgrade(local_place)
    assert {branch.from_format for branch in report.branches} == OLD_STAMPS
    check_usable(local_place)


@dataclass(frozen=True)
class OlderWrite:
    """Something that a process of the older release does, and how one sees that it did."""

    name: str
    do: Callable[[GraphStore], object]
    done: Callable[[GraphStore], bool]

    def __str__(self) -> str:
        return self.name


def branches(store: GraphStore) -> set[str]:
    return {ref.name for ref in store.branches.list()}


OLDER_WRITES = (
    OlderWrite("write", lambda s: upsert_person(s, "late"), lambda s: "late" in persons(s)),
    OlderWrite(
        "write-on-branch",
        lambda s: upsert_person(s, "late", branch="dev"),
        lambda s: "late" in persons(s, "dev"),
    ),
    OlderWrite("fork", lambda s: s.branches.create("late", "main"), lambda s: "late" in branches(s)),
    OlderWrite("fork-of-branch", lambda s: s.branches.create("late", "dev"), lambda s: "late" in branches(s)),
    OlderWrite("delete", lambda s: s.branches.delete("dev"), lambda s: "dev" not in branches(s)),
    OlderWrite("rename", lambda s: s.branches.rename("dev", "late"), lambda s: {"late"} == branches(s)),
    OlderWrite(
        "tag",
        lambda s: s.tags.create("late", s.snapshot().state),
        lambda s: "late" in {tag.name for tag in s.tags.list()},
    ),
    OlderWrite("floor", lambda s: s.raise_floor("main", 2), lambda s: s.snapshot().state.floor == 2),
)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def copies(request: pytest.FixtureRequest) -> Copies:
    """Where copies of a graph can be made."""
    found: Copies = request.getfixturevalue(f"{request.param}_copies")
    return found


WINDOWS = [(side, passage) for side in ("before", "after") for passage in (1, 2, 3)]
DECIDING = {
    "write": 3,
    "write-on-branch": 2,
    "fork": 1,
    "delete": 2,
    "rename": 2,
}  # the passage that it meets


@pytest.mark.parametrize("name", DECIDING)
def test_what_the_older_release_writes_meanwhile_is_kept_or_refused(local_copies: Copies, name: str) -> None:
    """By a process that has the graph open, just before and just after what it writes to is upgraded."""
    base = make_older(local_copies.empty())
    (write,) = (one for one in OLDER_WRITES if one.name == name)
    for side in ("before", "after"):
        done = _meanwhile(local_copies.copy(base), write, f"upgrade.{side}", DECIDING[name], warm=True)
        assert done is (side == "before" and name not in ("delete", "rename"))  # which need the registry, too


@pytest.mark.full
@pytest.mark.parametrize("warm", [True, False], ids=["open", "opens"])
@pytest.mark.parametrize("write", OLDER_WRITES, ids=str)
def test_at_every_moment_the_older_release_is_served_or_refused(
    copies: Copies, write: OlderWrite, warm: bool
) -> None:
    """By a process that had the graph open, or by one that opens it then."""
    base = make_older(copies.empty())
    done = [
        _meanwhile(copies.copy(base), write, f"upgrade.{side}", passage, warm) for side, passage in WINDOWS
    ]
    assert done[0], "before anything was upgraded the older release is served"
    assert not done[-1], "when all is upgraded it is refused"


def _meanwhile(place: Place, write: OlderWrite, point: str, passage: int, warm: bool) -> bool:
    """Let a process of the older release write at a point of an upgrade; say whether it could."""
    acknowledged: list[bool] = []
    passed = 0
    with older_release():
        open_store = again(place)
        open_store.snapshot("dev")

    def at_point() -> None:
        nonlocal passed
        passed += 1
        if passed == passage:
            with older_release():
                acknowledged.append(_try(place, open_store if warm else None, write))

    with open_store, armed({point: at_point}):
        upgrade(place)
    with again(place) as store:
        assert [write.done(store)] == acknowledged
    check_usable(place)
    return acknowledged[0]


def _try(place: Place, store: GraphStore | None, write: OlderWrite) -> bool:
    try:
        if store is not None:
            write.do(store)
        else:
            with again(place) as opened:
                write.do(opened)
    except FormatTooNew:
        return False
    return True
