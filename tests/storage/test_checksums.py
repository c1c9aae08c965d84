"""Every file of a table has a checksum; a flipped bit is harmless or noticed, and named."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.base.errors import GraphError, HistoryReclaimed, IntegrityError, InvalidRequest
from omnigraph.storage import checksums
from omnigraph.surfaces.cli.app import app
from tests.support.derived import derived_files, put, small_tiers

SCHEMA = """
node P { k: String @key  n: I64  f: F64?  t: String?  l: [I32]?  b: Blob? }
edge E: P -> P { w: F32? }
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A graph with data, blob, deletion and index files, a widened column and a branch."""
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as graph:
        nodes: list[dict[str, Any]] = [
            {"type": "P", "data": {"k": f"k{i}", "n": i * 7, "f": i / 3, "t": f"text {i}", "l": [i, i + 1]}}
            for i in range(200)
        ]
        nodes[3]["data"]["b"] = "base64:" + "QUJD" * 30_000
        graph.load(nodes, mode="append")
        edges = [{"edge": "E", "from": f"k{i}", "to": "k5", "data": {"w": i / 2}} for i in range(200)]
        graph.load(edges, mode="append")
        graph.mutate('query q() { delete P where k = "k7" }')
        graph.schema.apply(SCHEMA.replace("F32", "F64"))
        graph.ensure_indexes()
        graph.branches.create("b")
        graph.mutate('query q() { update P set { n: 1 } where k = "k9" }', branch="b")
    return tmp_path / "g.og"


def everything(place: Path, verify: Any = "off") -> list[Any]:
    with og.connect(place, verify=verify) as graph:
        gq = "query q($k: String) { match { $p: P { k: $k }  $q e $p } return { $p.n, $q.k } }"
        found: list[Any] = [graph.query(gq, {"k": "k5"}).rows, graph.entity("P", "k3").get()]
        for branch in ("main", "b"):
            found += [graph.nodes("P", branch=branch).to_arrow(), graph.edges("E", branch=branch).to_arrow()]
        return found


def files(place: Path) -> list[Path]:
    return sorted(path for path in (place / "tables").rglob("*") if path.is_file())


def flipped(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


@pytest.mark.parametrize("flips", [1, pytest.param(12, marks=pytest.mark.full)])
def test_a_flipped_bit_in_any_file_is_harmless_or_noticed(place: Path, flips: int) -> None:
    truth, rng = everything(place), random.Random(7)
    blamed: list[tuple[str, str]] = []
    for file in files(place):
        content = file.read_bytes()
        for _ in range(flips):
            file.write_bytes(flipped(content, rng))
            try:
                assert everything(place, "first-read") == truth, file
            except IntegrityError as error:
                blamed.append((str(error.fields["file"]), file.relative_to(place).as_posix()))
        file.write_bytes(content)
    assert [name for name, _ in blamed] == [name for _, name in blamed]
    assert {"data", "_versions", "_deletions", "_indices"} <= {name.split("/")[2] for name, _ in blamed}


def test_verify_counts_files_and_names_those_that_are_damaged_or_missing(place: Path) -> None:
    with og.connect(place) as graph:
        whole = graph.verify()
    assert (whole.ok, whole.unrecorded) == (True, ())
    assert whole.files > 10
    data = [file for file in files(place) if file.parent.name == "data"]
    data[0].write_bytes(flipped(data[0].read_bytes(), random.Random(1)))
    data[1].unlink()

    with og.connect(place) as graph:
        report = graph.verify(history=True)
        heads = graph.verify()

    names = {file.relative_to(place).as_posix() for file in data[:2]}
    assert {one.file for one in heads.damaged} <= names
    assert {one.file for one in report.damaged} == {data[0].relative_to(place).as_posix()}
    ran = CliRunner().invoke(app, ["verify", str(place)])
    assert (ran.exit_code, not heads.ok) == (1, True)
    assert "damaged: tables/" in ran.output


def test_a_graph_without_checksums_opens_and_can_be_given_some(place: Path) -> None:
    for folder, _, names in os.walk(place / "__checksums"):
        for name in names:
            Path(folder, name).unlink()
    truth = everything(place)

    assert everything(place, "first-read") == truth
    with og.connect(place) as graph:
        bare = graph.verify()
        assert (bare.ok, bare.files) == (True, 0)
        assert len(bare.unrecorded) > 10
        given = graph.verify(record=True)
        assert given.added == len(bare.unrecorded)
        again = graph.verify()
        assert (again.files, again.unrecorded) == (given.added, ())


def test_each_file_is_read_once_and_what_others_write_later_is_checked_too(place: Path) -> None:
    with og.connect(place, verify="first-read") as reader, og.connect(place) as writer:
        count = reader.nodes("P").to_arrow().num_rows
        old = files(place)
        writer.load([{"type": "P", "data": {"k": "new", "n": 1}}], mode="append")
        (fresh,) = [file for file in files(place) if file not in old and file.parent.name == "data"]
        first = next(file for file in old if file.parent.name == "data")
        first.write_bytes(flipped(first.read_bytes(), random.Random(2)))  # seen before: not read again
        fresh.write_bytes(flipped(fresh.read_bytes(), random.Random(3)))
        with pytest.raises(IntegrityError, match=fresh.name):
            reader.nodes("P").to_arrow()
    assert count == 199


def test_the_setting_comes_from_the_environment_and_is_checked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = next(file for file in files(place) if file.parent.name == "data")
    data.unlink()
    monkeypatch.setenv("OMNIGRAPH_VERIFY", "first-read")
    with pytest.raises(GraphError):
        everything(place, None)
    with pytest.raises(InvalidRequest, match="'first-read' or 'off'"):
        og.connect(place, verify="always")  # type: ignore[arg-type]


def test_after_a_hard_drop_what_is_left_is_whole_and_what_went_is_not_missed(place: Path) -> None:
    with og.connect(place, durability="os") as graph:
        graph.branches.delete("b")
        graph.schema.apply(SCHEMA.replace("F32", "F64").replace("t: String?", ""), allow_data_loss=True)
        for report in (graph.verify(), graph.verify(history=True)):
            assert (report.ok, report.unrecorded) == (True, ())


class _After(ThreadPoolExecutor):
    """Reads files after something else has happened, once."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._acts = [act]

    def map(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Act, then read."""
        while self._acts:
            self._acts.pop()()
        return super().map(*args, **options)


@pytest.mark.parametrize("history", [False, True])
def test_what_a_hard_drop_takes_away_meanwhile_is_not_missed(place: Path, history: bool) -> None:
    """Files that were listed, or that a head needed, go before they are read: that is no damage."""
    with og.connect(place, durability="os") as graph, og.connect(place, durability="os") as other:
        graph.branches.delete("b")
        hard = SCHEMA.replace("F32", "F64").replace("t: String?", "")
        drop = _After(lambda: other.schema.apply(hard, allow_data_loss=True))
        graph.store._files = drop  # type: ignore[assignment]  # where the verification reads
        report = graph.verify(history=history)
        assert report.damaged == ()
        drop.shutdown()


def test_a_state_that_was_reclaimed_is_not_damaged(place: Path) -> None:
    with og.connect(place, durability="os") as graph:
        before = graph.store.snapshot().commit_id
        graph.branches.delete("b")
        graph.schema.apply(SCHEMA.replace("F32", "F64").replace("t: String?", ""), allow_data_loss=True)
        with pytest.raises(HistoryReclaimed):
            graph.verify(at=before)


def test_a_record_that_is_torn_or_damaged_counts_for_nothing(place: Path) -> None:
    truth = everything(place)
    for log in [path for path in (place / "__checksums").rglob("*") if path.is_file()]:
        content = log.read_bytes()
        log.write_bytes(flipped(content[:-4], random.Random(5)))  # a lost end, and a bit

    with og.connect(place) as graph:
        report = graph.verify()

    assert report.ok
    assert len(report.unrecorded) >= 2
    assert everything(place, "first-read") == truth


def test_folds_leave_no_file_without_a_checksum(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as graph:
        for part in range(20):
            graph.load(
                [{"type": "P", "data": {"k": f"{part}-{i}", "n": i}} for i in range(20)], mode="append"
            )
        report = graph.verify(history=True)
    assert (report.ok, report.unrecorded) == (True, ())


@pytest.mark.parametrize("history", [False, True])
def test_derived_files_are_checked_by_their_own_checksums_and_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: bool
) -> None:
    """They are worked out again: a report that names one is still good."""
    small_tiers(monkeypatch)
    schema = "node P { k: String @key }\nedge E: P -> P"
    with og.init(tmp_path / "g.og", schema, durability="os") as graph:
        graph.load([{"type": "P", "data": {"k": f"k{i}"}} for i in range(200)], mode="append")
        graph.load([{"edge": "E", "from": f"k{i}", "to": "k5"} for i in range(200)], mode="append")
        keys, adjacency = (
            next(path for path in derived_files(tmp_path / "g.og") if kind in str(path))
            for kind in ("keys-", "adjacency")
        )
        keys.with_name(".keys-9.unfinished").write_bytes(b"half")

        before = graph.verify(history=history)
        assert (before.ok, before.derived, before.derived_damaged) == (True, 5, ())
        assert before.unrecorded == ()
        assert graph.verify(history=history, record=True).added == 0

        for path in (keys, adjacency):
            content = path.read_bytes()
            put(path, content[:-70] + bytes(byte ^ 0xFF for byte in content[-70:]))
        after = graph.verify(history=history)
        assert (after.ok, after.files) == (True, before.files)
        named = sorted(str(path.relative_to(tmp_path / "g.og")) for path in (keys, adjacency))
        assert sorted(after.derived_damaged) == named
        assert sorted(after.to_json()["derived"]["damaged"]) == named

        for path in (keys, adjacency):
            path.unlink()
        assert graph.verify(history=history).derived_damaged == ()
        graph.ensure_indexes()
        assert graph.verify(history=history).derived == 5


def test_a_process_that_writes_all_day_does_not_keep_its_checksums_from_a_cleanup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it appends to is always young; so it begins another log now and then."""
    monkeypatch.setattr(checksums, "LOG_BYTES", 1_000)
    with og.init(tmp_path / "g.og", "node P { k: String @key }", durability="os") as graph:
        for number in range(30):
            graph.mutate("query w($k: String) { insert P { k: $k } }", k=f"k{number}")
        logs = sorted(
            (tmp_path / "g.og" / "__checksums").rglob("*/*"), key=lambda log: log.stat().st_mtime_ns
        )
        assert all(log.stat().st_size < 3_000 for log in logs)
        for path in (tmp_path / "g.og").rglob("*"):
            if path not in logs[-1:]:
                os.utime(path, (1, 1))
        graph.cleanup(keep=0, grace="1h", dry_run=False)

        left = [log for log in (tmp_path / "g.og" / "__checksums").rglob("*/*") if log.is_file()]
        assert sum(log.stat().st_size for log in left) < 3_000
        assert graph.verify().unrecorded == ()
