"""A load that is refused, rehearsed or waits for consent: what is said, and that nothing is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

import omnigraph as og
from tests.support.contents import objects_at
from tests.support.desk import SCHEMA, Desk, remote_environment
from tests.support.places import Place
from tests.surfaces.loading import EDGE, STRICT, TWO, load, people

COMMAND = str(Path(sys.executable).with_name("omnigraph"))

# -- refused records -------------------------------------------------------------------------------

BAD = """
{"type":"Person","data":{"slug":"b","age":200}}
{"type":"Prson","data":{"slug":"c"}}
{"type":"Person","data":{"slug":"d","nme":"x"}}
{"edge":"Knows","from":"b"}
{"type":"Person"
""".lstrip()


def test_records_that_break_a_rule_are_a_table_with_their_places(desk: Desk) -> None:
    desk.started(STRICT)
    ran = load(desk, BAD)

    assert (ran.code, ran.out) == (1, "")
    lines = ran.err.splitlines()
    assert "constraint_violation" in lines[1]
    assert "5 violations" in lines[1]
    assert lines[2].split() == ["place", "code", "type", "what"]
    rows = [line.split(maxsplit=3) for line in lines[3:8]]
    assert [row[:3] for row in rows] == [
        ["data.jsonl:1", "range", "Person"],
        ["data.jsonl:2", "unknown_type", "-"],
        ["data.jsonl:3", "unknown_property", "Person"],
        ["data.jsonl:4", "required", "Knows"],
        ["data.jsonl:5", "syntax", "-"],
    ]
    assert rows[0][3] == "@range violation on Person.age: value 200 > max 120"
    assert "did you mean 'Person'?" in rows[1][3]
    starts = {line.index(row[3]) for line, row in zip(lines[3:8], rows, strict=True)}
    assert len(starts) == 1, "the columns are aligned"
    assert "schema show" in ran.err
    assert "Nothing was changed" in lines[-1]
    assert people(desk.graph) == {}


def test_scripts_get_every_violation_with_its_place(desk: Desk) -> None:
    desk.started(STRICT)
    ran = load(desk, BAD, "--json")

    details = ran.document["details"]
    assert (ran.code, ran.document["code"], details["total"]) == (1, "constraint_violation", 5)
    first = details["violations"][0]
    assert (first["origin"], first["position"], first["place"]) == ("data.jsonl", 1, "data.jsonl:1")
    assert first["message"].startswith("@range violation on Person.age")
    assert (first["code"], first["type_name"], first["property"], first["value"]) == (
        "range",
        "Person",
        "age",
        "200",
    )


def test_of_many_the_first_twenty_are_shown_and_the_rest_counted(desk: Desk) -> None:
    desk.started(STRICT)
    ran = load(desk, '{"type":"Person","data":{}}\n' * 50)
    shown = [line for line in ran.err.splitlines() if line.startswith("  data.jsonl:")]
    assert len(shown) == 20
    assert "  ... and 30 more" in ran.err.splitlines()


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ('{"edge":"LivesIn","from":"x","to":"y"}\n', "orphan_edge", 1),
        (TWO.replace('"age"', '"mail":"m","age"'), "unique", 1),
        (TWO + EDGE.replace('"a"', '"c"') * 2, "cardinality", 4),
    ],
)
def test_what_only_all_rows_together_show_has_a_place_and_advice(
    desk: Desk, text: str, code: str, line: int
) -> None:
    desk.started(STRICT)
    ran = load(desk, text)
    assert ran.code == 1
    assert f"data.jsonl:{line}" in ran.err
    assert f"\n  {code}: " in ran.err, "what to do about it"


def test_long_and_wide_names_keep_the_table_aligned(desk: Desk) -> None:
    desk.started(STRICT)
    name = "日本語のファイル.jsonl"
    folder = desk.folder / "several"
    folder.mkdir()
    (folder / name).write_text('{"type":"Person","data":{}}\n')
    (folder / "b.jsonl").write_text('{"type":"Person","data":{}}\n')
    ran = desk.run("load", desk.graph, "--data", str(folder), "--mode", "merge")

    rows = [line for line in ran.err.splitlines() if "jsonl:1" in line]
    assert len({cell_len(line[: line.index("required")]) for line in rows}) == 1


# -- rehearsal and consent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags", [[], ["--idempotency-key", "k"], ["--branch", "review", "--from", "main"], ["--message", "m"]]
)
def test_a_dry_load_checks_everything_and_writes_nothing(desk: Desk, flags: list[str]) -> None:
    place = Place(desk.started(), {})
    before = objects_at(place)
    good = load(desk, TWO + EDGE, "--dry-run", *flags)
    bad = load(desk, EDGE, "--dry-run", *flags)

    assert (good.code, bad.code) == (0, 1)
    assert "would load" in good.out
    assert "2 nodes, 1 edge" in good.out
    assert good.err == "", "it names no target, since it writes to none"
    assert objects_at(place) == before


def test_a_dry_load_tells_scripts_that_it_was_one(desk: Desk) -> None:
    desk.started()
    document = load(desk, TWO, "--dry-run", "--json").document
    assert (document["dry_run"], document["commit"], document["total_entities"]) == (True, None, 2)


@pytest.fixture
def remote(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A graph on S3 with one row, reachable by the command."""
    for name, value in remote_environment(s3_place).items():
        monkeypatch.setenv(name, value)
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        graph.load([{"type": "Person", "data": {"slug": "a", "age": 1}}], mode="append")
    return s3_place


@pytest.mark.s3
def test_overwriting_a_remote_graph_needs_consent(desk: Desk, remote: Place) -> None:
    line = ("load", remote.address, "--data", desk.file("data.jsonl", TWO), "--mode", "overwrite")

    refused = desk.run(*line)
    assert refused.code == 2
    assert "confirmation_required" in refused.err
    assert "--yes" in refused.err
    assert desk.run(*line, "--json").document["code"] == "confirmation_required"
    rehearsed = desk.run(*line, "--dry-run")
    assert (rehearsed.code, "would replace 1 node" in rehearsed.out) == (0, True)
    with og.connect(remote.address, **remote.kwargs) as graph:
        assert people(graph) == {"a": 1}

    done = desk.run(*line, "--yes")
    assert (done.code, "replaced 1 node, 0 edges" in done.out) == (0, True)
    assert "(embedded, remote)" in done.err


@pytest.mark.s3
def test_adding_to_a_remote_graph_needs_no_consent(desk: Desk, remote: Place) -> None:
    line = ("load", remote.address, "--data", desk.file("data.jsonl", TWO), "--mode")
    assert [desk.run(*line, mode).code for mode in ("append", "merge")] == [0, 0]


# -- running out of time ---------------------------------------------------------------------------


def test_a_load_that_is_stopped_while_it_reads_has_written_nothing(desk: Desk) -> None:
    desk.started()
    line = ("load", desk.graph, "--data", "-", "--mode", "merge", "--timeout", "3s", "--json")
    process = subprocess.Popen([COMMAND, *line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        process.stdin.write(TWO)  # and the input never ends
        process.stdin.flush()
        document = json.loads(process.stdout.read())

    assert process.wait(60) == 7
    assert document["code"] == "timeout"
    assert document["details"] == {"stage": "reading", "timeout_s": 3.0, "may_have_written": False}
    assert people(desk.graph) == {"a": 1}
