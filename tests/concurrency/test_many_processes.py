"""Many processes commit to one branch at once: every write lands, once, in one line (X-01, X-18, X-19).

Each race is run once for the module; the tests below each hold one promise against what it left behind.
On S3 the race of 8 x 25 takes more than a minute and is marked `full`; 4 x 8 runs always.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from omnigraph.storage.store import GraphStore
from tests.concurrency.conftest import NewPlace
from tests.support import workers
from tests.support.graphs import PERSON, chain_of, make_graph, persons
from tests.support.places import Place
from tests.support.processes import Outcome, run_processes
from tests.support.workers import Done

FRAGMENTS = 16  # "keep fragments under about 16": the bound that reads and key probes rely on
SIZES = [
    pytest.param(("local", 8, 25), id="local-8x25"),
    pytest.param(("s3", 4, 8), id="s3-4x8", marks=pytest.mark.s3),
    pytest.param(("s3", 8, 25), id="s3-8x25", marks=[pytest.mark.s3, pytest.mark.full]),
]
pytestmark = [pytest.mark.xdist_group("many-processes"), pytest.mark.timeout(420)]


@dataclass(frozen=True)
class Race:
    """A finished race."""

    processes: int
    commits: int
    outcomes: list[Outcome[tuple[list[Done], int]]]
    store: GraphStore

    @property
    def acknowledged(self) -> list[str]:
        """Ids of all commits that were acknowledged to anybody."""
        return [done.commit_id for outcome in self.outcomes if outcome.value for done in outcome.value[0]]


def run(place: Place, tables: list[str], commits: int) -> Race:
    """Let one process for each entry of `tables` commit rows to that table."""
    store = make_graph(place.address, extra_tables=8, **place.kwargs)
    jobs = [
        (place.address, place.options, table, f"p{number}", commits) for number, table in enumerate(tables)
    ]
    return Race(len(tables), commits, run_processes(workers.commit_people, jobs, timeout_s=400), store)


@pytest.fixture(scope="module", params=SIZES)
def one_table(request: pytest.FixtureRequest, new_place: NewPlace) -> Iterator[Race]:
    """All processes write to one table."""
    kind, processes, commits = request.param
    race = run(new_place(kind), [PERSON] * processes, commits)
    yield race
    race.store.close()


@pytest.fixture(scope="module", params=SIZES)
def own_tables(request: pytest.FixtureRequest, new_place: NewPlace) -> Iterator[Race]:
    """Each process writes to a table of its own."""
    kind, processes, commits = request.param
    race = run(new_place(kind), [f"t-extra-{number:03d}" for number in range(processes)], commits)
    yield race
    race.store.close()


# -- one table -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_write_to_one_table_is_acknowledged(one_table: Race) -> None:
    assert [outcome.error_text for outcome in one_table.outcomes if not outcome.ok] == []
    assert len(one_table.acknowledged) == one_table.processes * one_table.commits


@pytest.mark.slow
def test_one_table_holds_every_row_once(one_table: Race) -> None:
    table = one_table.store.table(one_table.store.snapshot(), PERSON).to_table(columns=["id"])
    expected = [f"p{p}-{n}" for p in range(one_table.processes) for n in range(one_table.commits)]
    assert sorted(table["id"].to_pylist()) == sorted(expected)


@pytest.mark.slow
def test_commits_to_one_table_form_one_line_and_nothing_else_is_on_it(one_table: Race) -> None:
    _, *rest = chain_of(one_table.store)
    assert sorted(rest) == sorted(one_table.acknowledged)


@pytest.mark.slow
def test_each_process_finds_its_commits_in_the_order_in_which_it_made_them(one_table: Race) -> None:
    place = {commit: at for at, commit in enumerate(chain_of(one_table.store))}
    for outcome in one_table.outcomes:
        assert outcome.value is not None
        mine = [place[done.commit_id] for done in outcome.value[0]]
        assert mine == sorted(mine)


@pytest.mark.slow
def test_fragments_stay_bounded_under_concurrent_small_commits(one_table: Race) -> None:
    handle = one_table.store.table(one_table.store.snapshot(), PERSON)
    assert len(handle.get_fragments()) <= FRAGMENTS


# -- disjoint tables -------------------------------------------------------------------------------


@pytest.mark.slow
def test_writers_of_different_tables_all_land(own_tables: Race) -> None:
    assert [outcome.error_text for outcome in own_tables.outcomes if not outcome.ok] == []
    snapshot = own_tables.store.snapshot()
    rows = [snapshot.pin(f"t-extra-{number:03d}").rows for number in range(own_tables.processes)]
    assert rows == [own_tables.commits] * own_tables.processes


@pytest.mark.slow
def test_commits_to_different_tables_form_one_line(own_tables: Race) -> None:
    _, *rest = chain_of(own_tables.store)
    assert sorted(rest) == sorted(own_tables.acknowledged)


@pytest.mark.slow
def test_writers_of_different_tables_never_stage_twice(own_tables: Race) -> None:
    """A lost race on another table is published again as it was staged."""
    staged = [outcome.value[1] for outcome in own_tables.outcomes if outcome.value]
    assert staged == [own_tables.commits] * own_tables.processes


@pytest.mark.slow
def test_writers_of_different_tables_did_race(own_tables: Race) -> None:
    """Without a single lost swap the test before this one would prove nothing."""
    attempts = [
        done.attempts for outcome in own_tables.outcomes if outcome.value for done in outcome.value[0]
    ]
    assert max(attempts) > 1


# -- processes and threads at once -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.full])])
def test_threads_of_several_processes_all_commit(new_place: NewPlace, kind: str) -> None:
    processes, threads, commits = 4, 6, 3
    place = new_place(kind)
    with make_graph(place.address, **place.kwargs) as store:
        jobs = [(place.address, place.options, f"p{number}", threads, commits) for number in range(processes)]

        outcomes = run_processes(workers.commit_from_threads, jobs, timeout_s=300)

        assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
        assert len(persons(store)) == processes * threads * commits
        assert len(chain_of(store)) == processes * threads * commits + 1
