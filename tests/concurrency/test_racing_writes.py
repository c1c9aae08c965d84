"""Processes that mutate and load at once, with constraints in force: one winner, or all of them.

Eight processes take their time to start, so the default run has one race, on local disk.
"""

from __future__ import annotations

import pytest

import omnigraph as og
from tests.support import writers
from tests.support.contents import check_whole, read
from tests.support.graphs import chain_of
from tests.support.people import SCHEMA, ages
from tests.support.places import Place
from tests.support.processes import run_processes

PROCESSES = 8
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("many-processes"), pytest.mark.timeout(300)]


@pytest.fixture(params=["local", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.full])])
def place(request: pytest.FixtureRequest) -> Place:
    """Local disk, and in the full run the S3 API too."""
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


def test_one_process_gets_the_value_that_all_want_and_all_get_what_is_their_own(place: Place) -> None:
    count = 3
    with og.init(place.address, SCHEMA, **place.kwargs) as graph:
        jobs = [(place.address, place.options, f"p{number}", "x", count) for number in range(PROCESSES)]

        outcomes = run_processes(writers.take_and_upsert, jobs, timeout_s=280)

        assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
        answers = [outcome.value for outcome in outcomes if outcome.value is not None]
        said = [word for word, _ in answers]
        assert sorted(said) == ["ok"] + ["unique"] * (PROCESSES - 1)
        own = {f"p{process}-{number}" for process in range(PROCESSES) for number in range(count)}
        found = {row["name"]: row["email"] for row in read(graph, "Person")}
        assert found == {f"p{said.index('ok')}": "x", **{name: name for name in own}}
        commits = [str(commit) for _, done in answers for commit in done]
        chain = chain_of(graph.store)[1:]
        assert set(commits) < set(chain)
        assert len(chain) == len(commits) + 1
        check_whole(graph)


@pytest.mark.full
def test_of_processes_that_append_one_id_exactly_one_does(place: Place) -> None:
    with og.init(place.address, SCHEMA, **place.kwargs) as graph:
        jobs = [(place.address, place.options, "x", number) for number in range(PROCESSES)]

        outcomes = run_processes(writers.append_person, jobs)

        assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
        said = [outcome.value for outcome in outcomes]
        assert sorted(map(str, said)) == ["key_conflict"] * (PROCESSES - 1) + ["ok"]
        assert ages(graph) == {"x": said.index("ok")}
