"""Derived files decide nothing: whatever becomes of them, reads and writes answer as with all of them.

One graph with settled files, deleted and moved rows and a tail is copied for each case. A fixed list of
queries and mutations is run on an untouched copy, and on copies whose derived files were deleted, cut,
changed or traded: by a handle that had them open, and by one that is opened after the damage.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError, IntegrityError, StorageError
from omnigraph.storage.derived.files import DerivedFiles
from tests.support.derived import DAMAGES, derived_files, few_hashes, small_tiers, spoil
from tests.support.processes import run_processes

SCHEMA = """
node Person { name: String @key  email: String? @unique  age: I32? @index  born: Date? @index  note: String? }
node City { name: String @key  note: String? }
edge Knows: Person -> Person { note: String? }
edge LivesIn: Person -> City @card(0..2)
"""
LONG = "x" * 40
NOBODY = 65534
NEW_ID = re.compile(r"\b[0-9A-Z]{26}\b")
PEOPLE, CITIES = 120, 40
READS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("query q($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }", {"n": "p003"}),
    ("query q($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }", {"n": "none"}),
    ("query q($e: String) { match { $p: Person { email: $e } } return { $p.name } }", {"e": "m17"}),
    ("query q($a: I32) { match { $p: Person { age: $a } } return { $p.name } order { $p.name } }", {"a": 7}),
    ('query q() { match { $p: Person { born: date("2020-01-05") } } return { count($p) as n } }', {}),
    (
        "query q($n: String) { match { $p: Person { name: $n } $p knows $f } return { $f.name } }",
        {"n": "p001"},
    ),
    (
        "query q($n: String) { match { $p: Person { name: $n } $f knows $p } return { $f.name } }",
        {"n": "p090"},
    ),
    (
        "query q($n: String) { match { $p: Person { name: $n } $p knows $f $f knows $g $g livesIn $c } "
        "return { $c.name, count($g) as n } order { $c.name } }",
        {"n": "p002"},
    ),
    (
        "query q() { match { $p: Person $p knows $f } return { $p.name, count($f) as n, sum($f.age) as s } "
        "order { $p.name } }",
        {},
    ),
    ("query q() { match { $p: Person $p knows $f $f knows $g } return { count($g) as n } }", {}),
    ("query q() { match { $p: Person not { $x knows $p } } return { $p.name } order { $p.name } }", {}),
    (
        "query q() { match { $c: City $p livesIn $c } return { $c.name, count($p) as n } order { $c.name } }",
        {},
    ),
    ("query q() { match { $p: Person $p.age > 50 } return { $p.name, $p.note } order { $p.name } }", {}),
)
WRITES: tuple[tuple[str, dict[str, Any]], ...] = (
    ('query q() { insert Knows { from: "p001", to: "nobody" } }', {}),  # refused: no such node
    ('query q() { insert Knows { from: "gone", to: "p001" } }', {}),
    ('query q() { insert Knows { from: "p001", to: "p090" } }', {}),
    ('query q() { insert Person { name: "twin", email: "m18" } }', {}),  # refused: taken
    ('query q() { insert Person { name: "twin", email: "m1800" } }', {}),
    ('query q() { update Person set { email: "m19" } where name = "p020" }', {}),  # refused: taken
    ('query q() { update Person set { email: "free", age: 7 } where name = "p020" }', {}),
    ('query q() { insert Person { name: "p021", age: 50 } }', {}),  # replaces one of a settled file
    (
        'query q() { insert LivesIn { from: "p004", to: "c000" } '
        'insert LivesIn { from: "p004", to: "c001" } }',
        {},
    ),
    ('query q() { insert LivesIn { from: "p004", to: "c002" } }', {}),  # refused: two at most
    ('query q() { delete Person where name = "p001" }', {}),  # with all its edges
    ('query q() { delete City where name = "c003" }', {}),
    ('query q() { delete Knows where to = "p090" }', {}),
    ("query q($a: I32) { update Person set { note: null } where age = $a }", {"a": 7}),
    ('query q() { insert Person { name: "p001" } }', {}),  # again, without its edges
    ('query q() { insert Knows { from: "p001", to: "p002" } }', {}),
)


@pytest.fixture(scope="module")
def small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small_tiers(patch)
        yield


@pytest.fixture(scope="module")
def base(small_files: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with several settled files of each type, holes in them, moved nodes and a tail."""
    folder = tmp_path_factory.mktemp("derived") / "g.og"
    rnd = Random(5)
    with og.init(folder, SCHEMA, durability="os") as graph:
        people = [person(n) for n in range(PEOPLE)]
        for start in range(0, PEOPLE, 40):
            graph.load(people[start : start + 40], mode="append")
        cities = [{"type": "City", "data": {"name": f"c{n:03d}", "note": LONG}} for n in range(CITIES)]
        graph.load(cities, mode="append")
        for _ in range(4):
            graph.load([edge(rnd) for _ in range(80)], mode="append")
        lives = [{"edge": "LivesIn", "from": f"p{n:03d}", "to": f"c{n % 7:03d}"} for n in range(5, 105)]
        graph.load(lives, mode="append")
        for n in (3, 30, 50, 90):
            update = "query q($n: String) { update Person set { age: 7 } where name = $n }"
            graph.mutate(update, n=f"p{n:03d}")
        graph.mutate('query q() { delete Person where name = "p060" }')
        graph.mutate('query q() { delete Knows where to = "p002" }')
        graph.load([person(500), edge(rnd)], mode="append")
        graph.ensure_indexes()
    kinds = {
        path.parent.name if path.parent.name == "adjacency" else path.name for path in derived_files(folder)
    }
    assert kinds >= {"keys-0", "keys-1", "keys-2", "adjacency"}
    return folder


def person(n: int, age: int | None = None) -> dict[str, Any]:
    data = {"name": f"p{n:03d}", "email": f"m{n}", "note": LONG}
    born = f"2020-01-{n % 28 + 1:02d}"
    return {"type": "Person", "data": {**data, "age": n % 90 if age is None else age, "born": born}}


def edge(rnd: Random) -> dict[str, Any]:
    ends = {"from": f"p{rnd.randrange(20):03d}", "to": f"p{rnd.randrange(PEOPLE):03d}"}
    return {"edge": "Knows", **ends, "data": {"note": LONG}}


@pytest.fixture(scope="module")
def expected(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What reads and writes answer where nothing is damaged."""
    copy = tmp_path_factory.mktemp("whole") / "g.og"
    shutil.copytree(base, copy)
    with og.connect(copy) as graph:
        whole = answers(graph)
    refused = [answer for answer in whole if isinstance(answer, str)]
    assert len(refused) == 5, refused
    return whole


def read(graph: Graph) -> list[Any]:
    found = []
    for text, params in READS:
        rows = [list(row.values()) for row in graph.query(text, params).rows]
        found.append(rows if "order" in text else sorted(rows, key=str))
    return found


def answers(graph: Graph) -> list[Any]:
    """Return what all reads answer, before, between and after all writes, and what becomes of those."""
    found: list[Any] = read(graph)
    for number, (text, params) in enumerate(WRITES):
        try:
            receipt = graph.mutate(text, params)
            found.append((receipt.affected_nodes, receipt.affected_edges))
        except GraphError as error:
            found.append(NEW_ID.sub("...", f"{type(error).__name__}: {error}"))
        if number % 4 == 3:
            found += read(graph)
    return [*found, *read(graph)]


def check_spoilt(base: Path, expected: list[Any], folder: Path, rnd: Random, *damages: str) -> None:
    """Do the same damage below a handle that is open, and before one is opened; compare all answers."""
    state = rnd.getstate()
    shutil.copytree(base, folder / "held")
    with og.connect(folder / "held") as graph:
        if rnd.random() < 0.7:  # it has mapped all files, or none yet
            assert read(graph) == expected[: len(READS)]
        spoil(folder / "held", rnd, damages)
        assert answers(graph) == expected
    rnd.setstate(state)
    rnd.random()
    shutil.copytree(base, folder / "fresh")
    spoil(folder / "fresh", rnd, damages)
    with og.connect(folder / "fresh") as graph:
        assert answers(graph) == expected
        graph.ensure_indexes()
        assert graph.verify().derived_damaged == ()
    with og.connect(folder / "fresh") as graph:
        assert read(graph) == expected[-len(READS) :]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_one_kind_changes_no_answer(
    base: Path, expected: list[Any], tmp_path: Path, damage: str, seed: int
) -> None:
    check_spoilt(base, expected, tmp_path, Random(seed), damage)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 160))
def test_damage_of_all_kinds_together_changes_no_answer(
    base: Path, expected: list[Any], tmp_path: Path, seed: int
) -> None:
    rnd = Random(seed)
    check_spoilt(base, expected, tmp_path, rnd, *rnd.choices(list(DAMAGES), k=rnd.randint(1, 4)))


@pytest.mark.parametrize("kind", ["keys-0", "keys-1", "keys-2", "adjacency"])
@pytest.mark.parametrize("damage", ["delete_all", "scramble"])
def test_damage_to_files_of_one_kind_changes_no_answer(
    base: Path, expected: list[Any], tmp_path: Path, kind: str, damage: str
) -> None:
    shutil.copytree(base, tmp_path / "g.og")
    files = [path for path in derived_files(tmp_path / "g.og") if kind in (path.name, path.parent.name)]
    assert files

    DAMAGES[damage](files, Random(1))

    with og.connect(tmp_path / "g.og") as graph:
        assert answers(graph) == expected


def test_hashes_that_many_values_share_change_no_answer(
    base: Path, expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hash never decides: what it leads to is read and compared."""
    shutil.copytree(base, tmp_path / "g.og")
    spoil(tmp_path / "g.og", Random(1), ["delete_all"])
    for module in ("key_hashes", "rows"):
        monkeypatch.setattr(f"omnigraph.storage.derived.{module}.hashes_of", few_hashes)

    with og.connect(tmp_path / "g.og") as graph:
        graph.ensure_indexes()
        assert derived_files(tmp_path / "g.og")
        assert answers(graph) == expected
    with og.connect(tmp_path / "g.og") as graph:
        assert read(graph) == expected[-len(READS) :]


@pytest.mark.parametrize("table", range(4))
@pytest.mark.parametrize("damage", ["none", "delete_all"])
def test_a_lost_data_file_is_reported_as_such(base: Path, tmp_path: Path, table: int, damage: str) -> None:
    """What is derived stands in for no data: a read that needs a lost row says that it is lost."""
    shutil.copytree(base, tmp_path / "g.og")
    if damage != "none":
        spoil(tmp_path / "g.og", Random(1), [damage])
    folder = sorted((tmp_path / "g.og" / "tables").iterdir())[table]
    for file in (folder / "data").iterdir():
        file.unlink()

    codes = set()
    with og.connect(tmp_path / "g.og") as graph:
        for text, params in READS:
            try:
                graph.query(text, params)
            except GraphError as error:
                codes.add(error.code)
        if not codes:  # adjacency answers all that is asked of an edge type without properties
            with pytest.raises(GraphError) as lost:
                graph.edges("LivesIn").to_arrow()
            codes.add(lost.value.code)
    assert codes <= {IntegrityError.code, StorageError.code}


# -- places that cannot be written


def read_as_nobody(address: str) -> tuple[list[Any], list[str], str | None]:
    """Give up all rights, then read everything and ask for what is missing."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with pytest.MonkeyPatch.context() as patch:
        small_tiers(patch)
        with og.connect(address) as graph:
            found = read(graph)
            report = graph.ensure_indexes()
            assert read(graph) == found
    return (
        found,
        [name for one in report.types for name in (*one.derived, one.error or "") if name],
        report.commit_id,
    )


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_loses_nothing(base: Path, expected: list[Any]) -> None:
    """What is missing is worked out in memory, again in each process; nothing is said to be written."""
    with TemporaryDirectory() as root:  # tests' own folders are private
        os.chmod(root, 0o755)
        copy = Path(root, "g.og")
        shutil.copytree(base, copy)
        spoil(copy, Random(1), ["delete_all"])
        folders = [path for path in (copy, *copy.rglob("*")) if path.is_dir()]
        for folder in folders:
            folder.chmod(0o555)
        try:
            (outcome,) = run_processes(read_as_nobody, [(str(copy),)])
            assert outcome.value is not None, outcome.trace or outcome.error_text
            assert outcome.value == (expected[: len(READS)], [], None)
            assert not derived_files(copy)
        finally:
            for folder in folders:
                folder.chmod(0o755)


@pytest.mark.parametrize("room", [0, 400, 20_000])
def test_a_disk_without_room_for_derived_files_loses_nothing(
    base: Path, expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """All that is written while there is no room: loads with settled files, folds, and what was deleted."""
    shutil.copytree(base, tmp_path / "g.og")
    spoil(tmp_path / "g.og", Random(1), ["delete"])
    left, real = [room], DerivedFiles._write_local

    def full(files: DerivedFiles, path: Path, parts: Any) -> None:
        left[0] -= sum(map(len, parts))
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(files, path, parts)

    monkeypatch.setattr(DerivedFiles, "_write_local", full)
    with og.connect(tmp_path / "g.og") as graph:
        graph.ensure_indexes()
        assert answers(graph) == expected
        graph.load([person(n, age=-1) for n in range(200, 300)], mode="append")
        assert (
            graph.query("query q() { match { $p: Person } return { count($p) as n } }").scalar()
            == PEOPLE + 101
        )
        with pytest.raises(GraphError):
            graph.mutate('query q() { insert Person { name: "new", email: "m250" } }')
    with og.connect(tmp_path / "g.og") as graph:
        with pytest.raises(GraphError):
            graph.mutate('query q() { insert Person { name: "new", email: "m251" } }')
        assert read(graph)[:4] == expected[-len(READS) :][:4]
