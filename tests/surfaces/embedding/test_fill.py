"""`graph.embed`: what gets a vector, what is asked for and paid, and what happens beside other writers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest, StaleVersion
from omnigraph.engine.embed.fill import EMBEDDED, FillWrite
from omnigraph.engine.embed.spool import VectorSpool
from omnigraph.execution.search.embedding import (
    EmbeddingRefused,
    EmbeddingUnavailable,
    MockEmbedder,
    unit_vectors,
)
from tests.support.provider import KEY, Provider, Reply

SCHEMA = """
node Note {
    slug: String @key
    kind: String?
    text: String?
    title: String?
    vec: Vector(8)? @embed("text")
}
node Plain { slug: String @key }
"""
NEAR = "query q($t: String) { match { $n: Note } return { $n.slug } order { nearest($n.vec, $t) } limit 2 }"
SET = "query s($s: String, $t: String) { update Note set { text: $t } where slug = $s }"
TEXTS = {"a": "red apples and pears", "b": "a fast blue car", "c": "green apples"}


def notes(texts: dict[str, str | None], **more: Any) -> list[dict[str, Any]]:
    return [{"type": "Note", "data": {"slug": s, "text": t, **more}} for s, t in texts.items()]


def vectors(graph: Graph, column: str = "vec") -> dict[str, list[float] | None]:
    rows = graph.nodes("Note").select("slug", column).to_arrow().to_pylist()
    return {row["slug"]: row[column] for row in rows}


def unit(text: str) -> list[float]:
    return [float(part) for part in unit_vectors(MockEmbedder()([text], 8), 1, 8)[0]]


def spools(folder: Path) -> list[Path]:
    return list(folder.rglob("*.sqlite"))


@pytest.fixture
def address(tmp_path: Path) -> Path:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        graph.load(notes({**TEXTS}), mode="append")
    return tmp_path / "g"


@pytest.fixture
def graph(address: Path, provider: Provider) -> Iterator[Graph]:
    with og.connect(address, durability="os", embedding=provider.settings()) as opened:
        yield opened


# -- what it does --------------------------------------------------------------------------------------


def test_texts_get_vectors_in_one_commit_and_are_found_by_meaning(
    graph: Graph, provider: Provider, tmp_path: Path
) -> None:
    head = graph.commits.list()[0].id

    report = graph.embed(actor="ada")

    assert vectors(graph) == {slug: pytest.approx(unit(text)) for slug, text in TEXTS.items()}
    assert [row["n.slug"] for row in graph.query(NEAR, t="apples, green")] == ["c", "a"]
    commit, before = graph.commits.list()[:2]
    assert (commit.id, commit.actor, before.id) == (report.commit_id, "ada", head)
    assert commit.message == "embed Note.vec by openai-compatible, m1"
    assert commit.labels[EMBEDDED] == '{"Note.vec": {"provider": "openai-compatible", "model": "m1"}}'
    assert (report.embedded, report.properties[0].asked) == (3, 3)
    assert [len(request.texts) for request in provider.requests] == [3, 1]  # the fill, and the query
    assert spools(tmp_path) == []
    assert graph.embed().commit is None


def test_rows_without_a_text_are_left_alone(graph: Graph, provider: Provider) -> None:
    graph.load(notes({"n": None, "e": "", "s": " \n"}), mode="append")

    report = graph.embed()

    assert report.properties[0].without_text == 3
    assert sorted(provider.texts) == sorted(TEXTS.values())


def test_a_text_that_stands_in_many_rows_is_asked_for_once(graph: Graph, provider: Provider) -> None:
    graph.load(notes({f"n{n}": f"text {n % 7}" for n in range(5_000)}), mode="append")

    report = graph.embed()

    assert report.embedded == 5_003
    assert len(provider.texts) == 10


def test_requests_are_bounded_in_texts_and_bytes_and_number(address: Path, provider: Provider) -> None:
    texts = {f"n{n}": f"text {n}" for n in range(300)}
    long = {f"long{n}": f"{n} " + "x" * 100_000 for n in range(5)}
    with og.connect(address, embedding=provider.settings(concurrency=2), durability="os") as graph:
        graph.load(notes({**texts, **long}), mode="append")
        graph.embed(batch=50)

    assert max(len(request.texts) for request in provider.requests) == 50
    assert max(sum(map(len, request.texts)) for request in provider.requests) <= 256 << 10
    assert provider.most_at_once <= 2
    assert len(provider.texts) == len(set(provider.texts)) == 308


def test_a_dry_run_counts_and_asks_nobody(graph: Graph, provider: Provider) -> None:
    report = graph.embed(dry_run=True)

    assert (report.embedded, report.commit, report.dry_run) == (3, None, True)
    assert report.properties[0].characters == sum(map(len, TEXTS.values()))
    assert provider.requests == []
    assert set(vectors(graph).values()) == {None}


@pytest.mark.parametrize(
    ("options", "filled"),
    [
        ({"types": ["Note"]}, "abc"),
        ({"types": "Note"}, "abc"),
        ({"select": {"Note": {"slug": "a"}}}, "a"),
        ({"select": {"Note": {"slug": ["a", "c"], "kind": None}}}, "ac"),
        ({"select": {"Note": {"kind": "memo"}}}, ""),
        ({"select": {"Note": {"id": "b"}}}, "b"),
    ],
)
def test_types_and_values_choose_what_is_filled(graph: Graph, options: Any, filled: str) -> None:
    graph.embed(**options)

    assert {slug for slug, vector in vectors(graph).items() if vector is not None} == set(filled)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"types": ["Nothing"]}, "Nothing"),
        ({"types": ["Plain"]}, "no property with @embed"),
        ({"select": {"Note": {"knd": "x"}}}, "kind"),
        ({"select": {"Note": {"vec": [1.0] * 8}}}, "compares single values"),
        ({"clean": True, "reembed_all": True}, "Choose one"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(
    graph: Graph, provider: Provider, options: Any, says: str
) -> None:
    with pytest.raises(og.GraphError) as caught:
        graph.embed(**options)
    assert says in str(caught.value)
    assert provider.requests == []


def test_all_vectors_are_made_anew_or_removed_when_asked_for(graph: Graph, provider: Provider) -> None:
    graph.embed()
    graph.embed(reembed_all=True, select={"Note": {"slug": "a"}})
    assert provider.texts.count(TEXTS["a"]) == 2

    report = graph.embed(clean=True, select={"Note": {"slug": ["a", "b"]}})

    assert report.to_json()["cleaned_records"] == 2
    assert [slug for slug, vector in vectors(graph).items() if vector is not None] == ["c"]
    assert len(provider.requests) == 2


def test_several_vectors_of_a_type_go_out_in_one_commit(provider: Provider) -> None:
    schema = "node Note { slug: String @key  text: String?  title: String?\n"
    schema += 'vec: Vector(8)? @embed("text")  top: Vector(4)? @embed("title") }'
    with og.init(None, schema, embedding=provider.settings()) as graph:
        graph.load(notes({"a": "red", "b": None}, title="apples"), mode="append")
        report = graph.embed()
        assert [(part.property, part.embedded) for part in report.properties] == [("top", 2), ("vec", 1)]
        assert len(graph.commits.list()) == 3
        assert None not in vectors(graph, "top").values()
        assert vectors(graph)["b"] is None


def test_required_vectors_cannot_be_removed(provider: Provider) -> None:
    schema = 'node Note { slug: String @key  text: String  vec: Vector(8) @embed("text") }'
    with og.init(None, schema, embedding=provider.settings()) as graph:
        graph.load(notes({"a": "red"}, vec=[1.0] * 8), mode="append")
        with pytest.raises(InvalidRequest, match=r"Note\.vec is required"):
            graph.embed(clean=True)
        graph.embed(reembed_all=True)
        assert vectors(graph)["a"] == pytest.approx(unit("red"))


def test_a_branch_is_filled_without_the_others(graph: Graph) -> None:
    graph.branches.create("trial")

    graph.embed(branch="trial", message="try it")

    assert set(vectors(graph).values()) == {None}
    assert None not in vectors(graph.branch("trial")).values()
    assert graph.branch("trial").commits.list()[0].message == "try it"


def test_without_an_embedder_it_names_the_variables(address: Path) -> None:
    with og.connect(address) as graph:
        with pytest.raises(InvalidRequest, match="OPENROUTER_API_KEY"):
            graph.embed()
        assert graph.embed(dry_run=True).embedded == 3
        assert graph.embed(clean=True).commit is None


def test_progress_is_told_up_to_the_end(graph: Graph) -> None:
    told: list[Any] = []

    graph.embed(progress=told.append)

    assert [now.stage for now in told][-2:] == ["writing", "done"]
    assert (told[-3].embedded, told[-3].rows, told[-3].rows_total) == (3, 3, 3)


# -- interruptions ---------------------------------------------------------------------------------------


PROGRAM = """
import sys, omnigraph as og
address, base, spool, key = sys.argv[1:]
settings = {"kind": "openai-compatible", "model": "m1", "base_url": base, "api_key": key, "concurrency": 1}
with og.connect(address, embedding=settings) as graph:
    graph.embed(batch=5, spool=spool)
"""


def test_after_sigkill_the_next_fill_asks_only_for_the_rest(
    address: Path, provider: Provider, tmp_path: Path
) -> None:
    texts = {f"n{n:02}": f"text {n}" for n in range(30)}
    with og.connect(address, durability="os") as graph:
        graph.load(notes({**texts}), mode="append")
    reached, release = threading.Event(), threading.Event()

    def hang() -> None:
        reached.set()
        release.wait()

    provider.replies[3] = Reply(before=hang)
    spool = tmp_path / "spool"
    arguments = [sys.executable, "-c", PROGRAM, str(address), provider.base, str(spool), KEY]
    child = subprocess.Popen(arguments, env={**os.environ})
    try:
        assert reached.wait(60)
        child.send_signal(signal.SIGKILL)
        child.wait()
    finally:
        release.set()
        child.kill()
        child.wait()
    answered = [text for request in provider.requests[:3] for text in request.texts]
    provider.requests.clear()
    provider.replies.clear()
    settings = provider.settings()
    with og.connect(address, durability="os", embedding=settings) as graph:
        assert set(vectors(graph).values()) == {None}
        report = graph.embed(spool=spool)

        assert sorted(provider.texts) == sorted({*texts.values(), *TEXTS.values()} - {*answered})
        assert (report.embedded, report.properties[0].reused) == (33, 15)
        assert None not in vectors(graph).values()
    assert spools(spool) == []


def test_what_was_answered_before_or_beside_a_failure_is_not_asked_for_again(
    address: Path, provider: Provider
) -> None:
    with og.connect(address, durability="os", embedding=provider.settings()) as graph:
        graph.load(notes({f"n{n}": f"text {n}" for n in range(40)}), mode="append")
        provider.fail(Reply(), Reply(), Reply(401), Reply())
        with pytest.raises(EmbeddingRefused, match=r"401.*Note\.vec, 5 texts from node"):
            graph.embed(batch=5)
        refused = set(provider.requests[2].texts)
        paid = {*provider.texts} - refused
        provider.requests.clear()
        provider.replies.clear()
        graph.embed(batch=5)

    assert {*provider.texts} & paid == set()
    assert refused <= {*provider.texts}


def test_vectors_of_another_model_are_never_taken_up(address: Path, provider: Provider) -> None:
    provider.fail(Reply(), Reply(401))
    with (
        og.connect(address, embedding=provider.settings(concurrency=1)) as graph,
        pytest.raises(og.GraphError),
    ):
        graph.embed(batch=1)
    provider.requests.clear()
    with og.connect(address, embedding=provider.settings(model="m2")) as graph:
        graph.embed()

    assert sorted(provider.texts) == sorted(TEXTS.values())


def test_a_function_that_names_no_model_is_asked_for_everything_again(address: Path, tmp_path: Path) -> None:
    asked: list[str] = []
    broken = True

    def function(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        if broken and len(asked) > 1:
            raise InvalidRequest("enough")
        return [list(vector) for vector in MockEmbedder()(texts, 8)]

    with og.connect(address, embedding=function) as graph:
        with pytest.raises(InvalidRequest, match="enough"):
            graph.embed(batch=1)
        broken = False
        asked.clear()
        graph.embed(batch=1)

    assert sorted(asked) == sorted(TEXTS.values())
    assert spools(tmp_path) == []


def test_a_damaged_spool_costs_requests_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    spool = VectorSpool(path, 2)
    spool.put([b"one", b"two"], unit_vectors([[1, 0], [0, 1]], 2, 2))
    spool.close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE vectors SET vector = zeroblob(12) WHERE digest = ?", [b"one"])
    file.close()
    again = VectorSpool(path, 2)
    assert again.known([b"one", b"two", b"three"]) == {b"two"}
    again.close()
    path.write_bytes(b"no database at all" * 100)
    afresh = VectorSpool(path, 2)
    assert afresh.known([b"two"]) == set()
    afresh.delete()
    assert spools(tmp_path) == []


def test_two_fills_of_one_property_at_the_same_time_would_pay_twice(
    graph: Graph, provider: Provider, address: Path
) -> None:
    refused: list[str] = []

    def second() -> None:
        with og.connect(address, embedding=provider.settings()) as other:
            with pytest.raises(EmbeddingUnavailable) as caught:
                other.embed()
            refused.append(str(caught.value))

    provider.fail(Reply(before=second))
    graph.embed()

    assert "another process is filling" in refused[0]
    assert len(provider.requests) == 1


def test_spools_that_nobody_came_back_for_go_after_a_month(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "embed"
    folder.mkdir(parents=True)
    for name, age in (("old", 31), ("young", 29)):
        file = folder / f"{name}.sqlite"
        file.touch()
        then = file.stat().st_mtime - age * 86_400
        os.utime(file, (then, then))

    graph.embed()

    assert [file.name for file in spools(folder)] == ["young.sqlite"]


def test_with_the_cache_off_nothing_is_kept(
    graph: Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    provider.fail(Reply(), Reply(401))
    with pytest.raises(EmbeddingRefused):
        graph.embed(batch=1)

    assert spools(tmp_path) == []


# -- beside other writers --------------------------------------------------------------------------------


def test_a_text_that_changes_while_it_is_embedded_gets_no_stale_vector(
    graph: Graph, provider: Provider, address: Path
) -> None:
    def change() -> None:
        with og.connect(address, durability="os") as other:
            other.mutate(SET, s="a", t="something else")
            other.load(notes({"new": "came meanwhile"}), mode="append")

    provider.fail(Reply(before=change))
    report = graph.embed()

    assert (report.embedded, report.properties[0].left) == (2, 2)
    assert set(report.properties[0].left_ids) == {"a", "new"}
    assert {slug for slug, vector in vectors(graph).items() if vector is None} == {"a", "new"}
    graph.embed()
    assert vectors(graph)["a"] == pytest.approx(unit("something else"))


def test_a_vector_that_somebody_else_gave_meanwhile_stays(
    graph: Graph, provider: Provider, address: Path
) -> None:
    own = [1.0] + [0.0] * 7

    def give() -> None:
        query = 'query s($v: Vector(8)) { update Note set { vec: $v } where slug = "a" }'
        with og.connect(address, durability="os") as other:
            other.mutate(query, v=own)
            other.mutate('query d() { delete Note where slug = "b" }')

    provider.fail(Reply(before=give))
    graph.embed()

    assert vectors(graph) == {"a": own, "c": pytest.approx(unit(TEXTS["c"]))}


def test_a_lost_race_is_prepared_again_on_the_new_texts(
    graph: Graph, address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate = FillWrite.validate
    raced: list[str] = []

    def validated(self: FillWrite, *arguments: Any) -> None:
        validate(self, *arguments)
        if not raced:  # after it was prepared, before it is published
            raced.append("once")
            with og.connect(address, durability="os") as other:
                other.mutate(SET, s="a", t="something else")

    monkeypatch.setattr(FillWrite, "validate", validated)
    report = graph.embed()

    assert report.attempts == 2
    assert report.properties[0].left_ids == ("a",)
    assert vectors(graph) == {
        "a": None,
        "b": pytest.approx(unit(TEXTS["b"])),
        "c": pytest.approx(unit(TEXTS["c"])),
    }


@pytest.mark.parametrize("changed", ['@embed("title")', '@embed("text", model="m2")'])
def test_a_schema_that_changes_what_vectors_mean_stops_the_fill(
    graph: Graph, provider: Provider, address: Path, changed: str
) -> None:
    def change() -> None:
        with og.connect(address, durability="os") as other:
            other.schema.apply(SCHEMA.replace('@embed("text")', changed))

    provider.fail(Reply(before=change))
    with pytest.raises(StaleVersion):
        graph.embed()

    assert set(vectors(graph).values()) == {None}


def test_a_renamed_property_is_filled_all_the_same(graph: Graph, provider: Provider, address: Path) -> None:
    renamed = SCHEMA.replace("text: String?", 'body: String? @rename_from("text")').replace(
        '@embed("text")', '@embed("body")'
    )

    def change() -> None:
        with og.connect(address, durability="os") as other:
            other.schema.apply(renamed)

    provider.fail(Reply(before=change))

    assert graph.embed().embedded == 3
