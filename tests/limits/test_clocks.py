"""A clock that is off by an hour: the line of commits stays whole, and doctor says by how much it is off."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.ids import SystemClock
from omnigraph.engine.doctor.environment import clock_item
from omnigraph.storage.durability import armed
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore
from tests.support.places import Place
from tests.support.stores import Once

SCHEMA = "node Person { name: String @key  age: I32? }"
ADD = "query add($n: String) { insert Person { name: $n, age: 1 } }"
HOUR_S = 3_600


class Skewed(SystemClock):
    """The machine's clock, off by some seconds."""

    def __init__(self, seconds: int) -> None:
        self._us = seconds * 1_000_000

    def now_us(self) -> int:
        """Microseconds since the epoch, as this machine believes."""
        return super().now_us() + self._us


def opened(address: Path, seconds: int) -> Graph:
    """Open a graph on a machine whose clock is off."""
    return Graph(GraphStore.open(address, durability="os", clock=Skewed(seconds)))


def test_writers_whose_clocks_differ_make_one_line_of_commits(tmp_path: Path) -> None:
    og.init(tmp_path / "g.og", SCHEMA, durability="os").close()
    with opened(tmp_path / "g.og", HOUR_S) as ahead, opened(tmp_path / "g.og", -HOUR_S) as behind:
        ids = [(ahead, behind)[n % 2].mutate(ADD, n=f"p{n}").commit_id for n in range(6)]
        assert [commit.id for commit in behind.commits.list()][:6] == ids[::-1]
        for number, commit_id in enumerate(ids):
            assert len(ahead.nodes("Person", at=commit_id)) == number + 1
        assert ahead.doctor().ok


@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_a_cleaner_whose_clock_is_off_takes_nothing_that_is_needed_also_of_a_write_on_its_way(
    tmp_path: Path, seconds: int
) -> None:
    """By a clock that is ahead everything is past its grace period, what a writer has just staged as well."""
    freed: list[int] = []
    with (
        og.init(tmp_path / "g.og", SCHEMA, durability="os") as writer,
        opened(tmp_path / "g.og", seconds) as cleaner,
    ):
        for number in range(10):
            writer.mutate(ADD, n=f"p{number}")

        def clean() -> None:
            freed.append(cleaner.cleanup(keep=1, grace="5m", dry_run=False).files)

        for number in range(10, 14):
            with armed({"publish.before": Once(clean)}):
                attempts = writer.mutate(ADD, n=f"p{number}").attempts
            # Behind, all history is of the grace period: nothing is given up, nor announced.
            assert attempts == (2 if seconds > 0 else 1)
        assert len(writer.nodes("Person")) == 14
        assert writer.doctor(deep=True).ok
    assert len(freed) == 4
    assert all(files > 0 for files in freed) if seconds > 0 else not any(freed)


@pytest.mark.s3
def test_doctor_tells_by_how_much_the_clock_is_off(s3_place: Place) -> None:
    location = Location.parse(s3_place.address, s3_place.options)
    assert clock_item(location, Skewed(0)).state == "ok"
    for seconds, said in ((HOUR_S, "s ahead of the store's"), (-HOUR_S, "s behind the store's")):
        item = clock_item(location, Skewed(seconds))
        assert item.state == "low"
        assert said in item.what
    assert not list(location.objects.list())
