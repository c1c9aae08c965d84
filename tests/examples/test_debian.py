"""The Debian example: lists are parsed as Debian means them, and the whole job runs on a small archive."""

from __future__ import annotations

import doctest
import gzip
import lzma
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from examples.debian import index, parse, run, snapshot
from examples.debian.index import Wanted, lists_in, maintainer_name, opened, relation, sort_key, stanzas_of
from omnigraph import Graph, GraphError, connect, init
from omnigraph.engine.write import Receipt
from tests.spark import conftest

spark = conftest.spark
pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine

# A small archive. Everything that resolving must get right is in it once.
ARCHIVE = """\
Package: app
Version: 2.0-1
Architecture: amd64
Maintainer: Desk Team <desk@example.org>
Installed-Size: 120
Section: games
Priority: optional
Pre-Depends: loader (>= 1)
Depends: libfoo (>= 1.2), libfoo (<< 3), awk, gone-lib | libbar, editor | nano,
 libold (>= 1:3.0), libplain
Recommends: helper, never-packaged
Conflicts: app-legacy, libbar (<< 1.0), rival
Description: a game of synthesizers
 The long part, which lists leave out.
Homepage: https://example.org/app
Size: 1

Package: rival
Version: 1.0
Architecture: amd64
Maintainer: Desk Team <desk@example.org>
Section: games
Priority: optional
Depends: app-data, libmissing (>= 4)
Conflicts: game-engine
Provides: game-engine
Description: another game

Package: engine
Version: 1.0
Architecture: amd64
Maintainer: Desk Team <desk@example.org>
Section: games
Priority: optional
Conflicts: game-engine
Provides: game-engine
Description: an engine for games

Package: app-data
Version: 2.0-1
Architecture: all
Maintainer: Desk Team <desk@example.org>
Section: games
Priority: optional
Depends: app (= 2.0-1), app-data-virtual
Provides: app-data-virtual
Description: data of a game

Package: libfoo
Version: 2.10
Architecture: amd64
Maintainer: Library Team <libs@example.org>
Section: libs
Priority: optional
Depends: libc (>> 2.9)
Description: synthesizer library

Package: libfoo
Version: 2.9
Architecture: amd64
Maintainer: Somebody Else <else@example.org>
Section: oldlibs
Priority: extra
Depends: vanished
Description: synthesizer library, as it was

Package: libbar
Version: 1.5
Architecture: amd64
Maintainer: Library Team <libs@example.org>
Section: libs
Priority: optional
Provides: libold (= 1:3.1), libplain
Description: library of bars

Package: libc
Version: 2.36-9
Architecture: amd64
Essential: yes
Maintainer: Library Team <libs@example.org>
Section: libs
Priority: required
Description: the C library

Package: loader
Version: 1.0
Architecture: amd64
Maintainer: Library Team <libs@example.org>
Section: utils
Priority: standard
Description: starts things

Package: mawk
Version: 1.3
Architecture: amd64
Maintainer: Library Team <libs@example.org>
Section: utils
Priority: required
Provides: awk
Description: a language for patterns

Package: nano
Version: 7.2
Architecture: amd64
Maintainer: Library Team <libs@example.org>
Section: editors
Priority: important
Provides: editor
Description: a small editor

Package: vim
Version: 9.0
Architecture: amd64
Maintainer: Library Team <libs@example.org>
Section: editors
Priority: optional
Provides: editor
Description: a larger editor

Package: helper
Version: 0.1
Architecture: all
Maintainer: Library Team <libs@example.org>
Section: utils
Priority: optional
Depends: libplain (>= 1)
Description: helps
"""
DANGLING = {  # type, from, to
    ("Depends", "rival", "libmissing"),
    ("Depends", "helper", "libplain"),  # provided, but in no version
    ("Recommends", "app", "never-packaged"),
}
DEPENDS = {  # from, to: constraint, via, pre
    ("app", "loader"): (">= 1", None, True),
    ("app", "libfoo"): ("<< 3, >= 1.2", None, False),
    ("app", "mawk"): (None, "awk", False),
    ("app", "libbar"): (">= 1:3.0", "libold", False),
    ("rival", "app-data"): (None, None, False),
    ("app-data", "app"): ("= 2.0-1", None, False),
    ("libfoo", "libc"): (">> 2.9", None, False),
}
CONFLICTS = {("app", "rival"), ("rival", "engine"), ("engine", "rival")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two lists, as apt would keep them."""
    made = tmp_path_factory.mktemp("lists")
    whole = ARCHIVE.split("\n\n")
    for number, part in enumerate((whole[:5], whole[5:])):
        (made / f"archive_{number}_Packages").write_text("\n\n".join(part) + "\n")
    (made / "archive_InRelease").write_text("not a list\n")
    return made


@pytest.fixture(scope="module")
def archive(
    spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Graph, Path]:
    """The small archive, loaded by the job's own function, and its rejects."""
    place = tmp_path_factory.mktemp("graph")
    graph = init(place / "debian.og", run.SCHEMA)
    run.fill(spark, graph, lists_in(folder), place / "rejects")
    return graph, place / "rejects"


# -- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [index, snapshot], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: Any) -> None:
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0) == (0, True)


def test_a_relation_is_clauses_of_alternatives() -> None:
    assert relation("a (>= 1:2~rc1-3), b:any | c ( << 4 ),\n d (< 1) , g++") == [
        [Wanted("a", ">=", "1:2~rc1-3")],
        [Wanted("b"), Wanted("c", "<<", "4")],
        [Wanted("d", "<=", "1")],
        [Wanted("g++")],
    ]
    assert relation("") == []


@pytest.mark.parametrize("text", ["a b", "a (>= )", "a (2)", "a | ", "(>= 1)", "a (>= 1) (<< 2)", "a, , | b"])
def test_what_is_no_relation_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        relation(text)


def test_versions_sort_as_debian_sorts_them() -> None:
    rising = (
        *(
            "~~",
            "~~a",
            "~",
            "0",
            "0.9",
            "0.9.1",
            "0.10",
            "1~beta1",
            "1~rc1-1",
            "1",
            "1-1~bpo1",
            "1-1",
            "1-1+b1",
        ),
        *(
            "1-1.1",
            "1-2",
            "1-10",
            "1a-1",
            "1+dfsg-1",
            "1.0-1",
            "1.0a",
            "1.0a1",
            "1.0+a",
            "1.0-a-1",
            "1.1",
            "2",
            "10",
        ),
        *("10.0", "20230101", "1:0.1", "1:0.2", "2:0~", "10:0"),
    )
    keys = [sort_key(version) for version in rising]
    assert [pair for pair in pairwise(zip(keys, rising, strict=True)) if not pair[0] < pair[1]] == []


@pytest.mark.parametrize(("a", "b"), [("1.0", "0:1.0-0"), ("1.01", "1.1"), ("1.", "1.0"), ("1-007", "1-7")])
def test_versions_that_debian_calls_equal_have_one_key(a: str, b: str) -> None:
    assert sort_key(a) == sort_key(b)


def test_stanzas_keep_the_fields_of_the_graph_and_join_lines() -> None:
    app, *others = stanzas_of(ARCHIVE.splitlines(keepends=True))
    assert (len(others), "Size" in app) == (12, False)
    assert app["Depends"].endswith("editor | nano,\nlibold (>= 1:3.0), libplain")
    assert app["Description"].startswith("a game of synthesizers\nThe long part")


def test_a_line_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match="<html>"):
        list(stanzas_of(["Package: a\n", "<html>\n"]))


def test_maintainers_lose_their_address_and_nothing_else() -> None:
    texts = ("A <a@b>", "A (via list) <a@b>", "Ü Team", "<a@b>", "a@b", "A <a@b>, B <b@b>")
    assert [maintainer_name(t) for t in texts] == ["A", "A (via list)", "Ü Team", "a", "a", "A, B"]


def test_lists_are_found_and_read_whichever_way_they_are_compressed(tmp_path: Path) -> None:
    text = "Package: naïve\n"
    (tmp_path / "a_Packages").write_text(text)
    (tmp_path / "b_Packages.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "c_Packages.xz").write_bytes(lzma.compress(text.encode()))
    for name, codec in (("d_Packages.lz4", "lz4"), ("e_Packages.zst", "zstd")):
        with pa.output_stream(tmp_path / name, compression=codec) as out:
            out.write(text.encode())
    (tmp_path / "f_Translation-en.gz").write_bytes(b"")
    found = lists_in(tmp_path)
    assert [path.name[0] for path in found] == list("abcde")
    for path in found:
        with opened(path) as lines:
            assert list(stanzas_of(lines)) == [{"Package": "naïve"}], path.name


def test_a_folder_without_lists_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"\*_Packages\.lz4.*apt-get update"):
        run.main(["--lists", str(tmp_path)])


@pytest.fixture(scope="module")
def whole() -> list[dict[str, str]]:
    """The stanzas of the snapshot in the repository."""
    return list(snapshot.read(lists_in(run.SNAPSHOT)))


# -- the snapshot --------------------------------------------------------------------------------


def test_a_snapshot_says_what_the_lists_say_without_addresses(folder: Path, tmp_path: Path) -> None:
    files = snapshot.write(lists_in(folder), tmp_path, pieces=3)
    again = snapshot.write(lists_in(folder), tmp_path / "again", pieces=3)
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]
    assert files == lists_in(tmp_path)

    given = {(one["Package"], one["Version"]): one for one in snapshot.read(lists_in(folder))}
    kept = {(one["Package"], one["Version"]): one for one in snapshot.read(files)}
    assert given.keys() == kept.keys()
    for spec, one in given.items():
        assert parse._stanza(one)[:11] == parse._stanza(kept[spec])[:11]
        for field in ("Depends", "Provides", "Conflicts"):
            assert relation(one.get(field, "")) == relation(kept[spec].get(field, ""))
    assert not any("@" in value for one in kept.values() for value in one.values())


def test_the_snapshot_of_the_repository_is_small_and_parses_whole(whole: list[dict[str, str]]) -> None:
    files = lists_in(run.SNAPSHOT)
    assert sum(file.stat().st_size for file in files) <= 8_000_000
    names = {one["Package"] for one in whole}
    clauses = sum(len(relation(one.get("Depends", ""))) for one in whole)
    assert (len(files), len(names) > 60_000, clauses > 250_000) == (8, True, True)
    assert [one["Package"] for one in whole if "@" in one["Maintainer"]] == []
    assert {"apt", "libc6", "zlib1g", run.OLD} <= names


def test_the_page_says_how_much_the_snapshot_holds(whole: list[dict[str, str]]) -> None:
    newest: dict[str, dict[str, str]] = {}
    for one in sorted(whole, key=lambda one: sort_key(one["Version"])):
        newest[one["Package"]] = one
    counted = {
        "Package": len(newest),
        "Version": len({(one["Package"], one["Version"]) for one in whole}),
        "Section": len({one["Section"] for one in newest.values()}),
        "Maintainer": len({one["Maintainer"] for one in newest.values()}),
    }
    assert counted.items() <= on_the_page().items()


def on_the_page() -> dict[str, int]:
    """Return the rows of each type, as the documentation has them."""
    page = (Path(__file__).parents[2] / "docs/examples/debian.md").read_text()
    return {
        name: int(rows.replace(",", ""))
        for name, rows in re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", page, re.M)
    }


def test_what_executors_run_travels_with_the_job(tmp_path: Path) -> None:
    parse._travel()
    work = (opened, stanzas_of, parse._stanza, parse._relations, parse._batches)
    (tmp_path / "work").write_bytes(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]
    (tmp_path / "a_Packages").write_text("Package: a\nVersion: 1\nDepends: b (>= 1)\n")
    there = """
import pathlib, pickle
opened, stanzas_of, stanza, relations, batches = pickle.loads(pathlib.Path("work").read_bytes())
with opened(pathlib.Path("a_Packages")) as lines:
    row = stanza(next(stanzas_of(lines)))
print(row[0], row[12])
fields = dict.fromkeys(("pre_depends", "recommends", "conflicts", "provides"), "")
print(next(relations({**fields, "package": "a", "depends": row[12]}))[6])
"""
    command = [sys.executable, "-I", "-c", there]  # nothing of this repository is on its path
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("a b (>= 1)\nb\n", "")


# -- on Spark ------------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_newest_version_speaks_for_a_package(archive: tuple[Graph, Path]) -> None:
    graph, _ = archive
    packages = {row["name"]: row for row in graph.nodes("Package").to_arrow().to_pylist()}
    assert len(packages) == 12
    assert packages["app"] == {
        "id": "app",
        "name": "app",
        "version": "2.0-1",
        "synopsis": "a game of synthesizers",
        "priority": "optional",
        "essential": False,
        "installed_size": 120,
        "homepage": "https://example.org/app",
    }
    assert (packages["libfoo"]["version"], packages["libc"]["essential"]) == ("2.10", True)
    assert [row["v.spec"] for row in run.answer(graph, "versions", name="libfoo")] == [
        "libfoo=2.10",
        "libfoo=2.9",
    ]
    assert {row["name"] for row in graph.nodes("Maintainer").to_arrow().to_pylist()} == {
        "Desk Team",
        "Library Team",
    }
    assert "oldlibs" not in {row["name"] for row in graph.nodes("Section").to_arrow().to_pylist()}


@pytest.mark.spark
def test_names_are_resolved_as_apt_resolves_them(archive: tuple[Graph, Path]) -> None:
    graph, _ = archive
    depends = graph.edges("Depends").to_arrow().to_pylist()
    assert {(e["src"], e["dst"]): (e["constraint"], e["via"], e["pre"]) for e in depends} == {
        **DEPENDS,
        # Two clauses lead there: one by an alternative that alone exists, one by what it provides.
        ("app", "libbar"): (">= 1:3.0", "libold", False),
    }
    one_of = graph.edges("DependsOneOf").to_arrow().to_pylist()
    assert {(e["src"], e["dst"], e["alternatives"]) for e in one_of} == {
        ("app", "nano", "editor | nano"),
        ("app", "vim", "editor | nano"),
    }
    assert {(e["src"], e["dst"]) for e in graph.edges("Recommends").to_arrow().to_pylist()} == {
        ("app", "helper")
    }
    assert {(e["src"], e["dst"]) for e in graph.edges("Conflicts").to_arrow().to_pylist()} == CONFLICTS


@pytest.mark.spark
def test_what_nobody_satisfies_is_in_the_reject_table_and_not_in_the_graph(
    archive: tuple[Graph, Path],
) -> None:
    _, rejects = archive
    rows = pq.read_table(rejects).to_pylist()
    assert {row["code"] for row in rows} == {"orphan_edge"}
    assert {(row["type"], *row["id"].split(" ")) for row in rows} == DANGLING
    assert {row["value"].strip("'") for row in rows} == {to for _, _, to in DANGLING}


ANSWERS: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "breaks": (
        {"name": "libc"},
        [
            ("app", "a game of synthesizers"),
            ("app-data", "data of a game"),
            ("libfoo", "synthesizer library"),
        ],
    ),
    "breaks_at_once": ({"name": "libbar"}, [("app", ">= 1:3.0", "libold")]),
    "goes_along": ({"name": "libc"}, [("app",), ("app-data",), ("libfoo",), ("rival",)]),
    "path": ({"start": "rival", "end": "libc"}, [(["rival", "app-data", "app", "libfoo", "libc"],)]),
    "most_depended": ({"top": 1}, [("app", 1, "a game of synthesizers")]),
    "find": (
        {"words": "synthesizers", "top": 5},
        [("app", "2.0-1", "a game of synthesizers"), ("libfoo", "2.10", "synthesizer library")],
    ),
    "maintained": ({"name": "Desk Team"}, [("games", 4, 120.0)]),
    "choices": ({"name": "app"}, [(6, "editor | nano", "nano"), (6, "editor | nano", "vim")]),
    "conflicts": (
        {"name": "rival"},
        [("app", "a game of synthesizers"), ("engine", "an engine for games")],
    ),
    "unneeded": ({"section": "utils", "top": 5}, []),
    "versions": ({"name": "nano"}, [("nano=7.2", "amd64")]),
}


def test_every_question_is_asked_below() -> None:
    text = run.QUERIES.read_text()
    reads = re.findall(r"^query (\w+)\([^)]*\)[^{]*\{\s*match", text, re.MULTILINE)
    assert (sorted(reads), len(reads) > 8) == (sorted(ANSWERS), True)


@pytest.mark.spark
@pytest.mark.parametrize("query", ANSWERS)
def test_a_question_is_answered(archive: tuple[Graph, Path], query: str) -> None:
    params, expected = ANSWERS[query]
    result = run.answer(archive[0], query, **params)
    assert [tuple(row.values()) for row in result] == expected


@pytest.mark.spark
def test_the_whole_job_loads_the_same_again_and_merges_a_change(
    archive: tuple[Graph, Path], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = archive[0].store.snapshot().commit_id
    place = tmp_path / "debian.og"
    copytree(archive[0].uri, place)
    run.main(["--graph", str(place), "--lists", str(folder), "--without", "libfoo"])
    with connect(place) as graph:
        merged, moved, again = graph.commits.list(limit=3)
        same = [one for one in graph.diff(first, again.id).types if one.inserted + one.updated + one.deleted]
        assert (same, merged.parent, merged.merged_parent is not None) == ([], moved.id, True)
        left = {row["name"]: row for row in graph.nodes("Package").to_arrow().to_pylist()}
        assert left.keys().isdisjoint({"libfoo", "app", "app-data", "rival"})
        assert (left["nano"]["priority"], "libc" in left) == ("standard", True)
        assert [branch.name for branch in graph.branches.list()] == ["main"]
    printed = capsys.readouterr().out
    assert "3 edges lead nowhere" in printed
    assert "dst 'libmissing' not found in Package" in printed
    assert re.search(r"on main: 1 packages depend.*\n.*on remove-libfoo: 0 packages", printed)


@pytest.mark.spark
def test_a_package_that_is_not_there_is_said_and_changes_nothing(
    archive: tuple[Graph, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    head = archive[0].store.snapshot().commit_id
    run.change(archive[0], "vanished")
    assert "no such package: --without" in capsys.readouterr().out
    assert archive[0].store.snapshot().commit_id == head
    assert [branch.name for branch in archive[0].branches.list()] == ["main"]


def test_a_load_that_rejects_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    run.told(Receipt("main", None, facts={"rejected": 0, "rejects": None}))
    assert "Nothing was rejected" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_page_says_how_much_the_whole_archive_is(spark: SparkSession, tmp_path: Path) -> None:
    with init(tmp_path / "debian.og", run.SCHEMA) as graph:
        run.fill(spark, graph, lists_in(run.SNAPSHOT), tmp_path / "rejects.parquet")
        snapshot = graph.store.snapshot()
        tables = graph.schema.catalog().tables
        assert {one.name: snapshot.pin(one.table_id).rows for one in tables} == on_the_page()
    rejected = Counter(pq.read_table(tmp_path / "rejects.parquet")["type"].to_pylist())
    assert rejected == {"Recommends": 385, "Depends": 2}
