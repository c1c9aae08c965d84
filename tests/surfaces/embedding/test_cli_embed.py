"""`omnigraph embed`, and queries with a text on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.support.desk import Desk
from tests.support.provider import KEY, Provider, Reply

SCHEMA = 'node Note { slug: String @key  rank: I32?  text: String?  vec: Vector(8)? @embed("text") }\n'
NEAR = "query q($t: String) { match { $n: Note } return { $n.slug } order { nearest($n.vec, $t) } limit 1 }"


@pytest.fixture
def address(desk: Desk) -> str:
    address = desk.started(SCHEMA)
    texts = ["red apples", "a blue car", None]
    rows = [{"slug": f"n{at}", "rank": at, "text": text} for at, text in enumerate(texts)]
    with og.connect(address, durability="os") as graph:
        graph.load([{"type": "Note", "data": row} for row in rows], mode="append")
    return address


@pytest.fixture
def real(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The provider as the environment names it."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai-compatible")
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", provider.base)
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m1")
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    return provider


def filled(address: str) -> set[str]:
    with og.connect(address) as graph:
        rows = graph.nodes("Note").to_arrow().to_pylist()
    return {row["slug"] for row in rows if row["vec"] is not None}


def test_it_fills_as_one_commit_and_a_query_finds_by_text(desk: Desk, address: str, real: Provider) -> None:
    ran = desk.run("embed", address, "--as", "ada", "--message", "first fill")

    assert ran.code == 0
    assert ran.out.splitlines()[:2] == [
        "  Note.vec: 2 vectors made from text; 2 texts asked for; 1 row without text",
        "embedded main by openai-compatible, m1",
    ]
    assert ran.err.splitlines() == [f"embed → {address} (embedded, local)"]
    listed = desk.run("commit", "list", address, "--json").document["commits"][0]
    assert (listed["actor_id"], listed["message"]) == ("ada", "first fill")
    asked = desk.run("query", address, "-e", NEAR, "--param", "t=apples", "--format", "json")
    assert json.loads(asked.out)["rows"] == [{"n.slug": "n0"}]
    assert desk.run("embed", address).out.splitlines()[-1] == "nothing to do on main"


def test_the_document_says_what_the_report_says(desk: Desk, address: str, real: Provider) -> None:
    document = desk.run("embed", address, "--json").document

    told = ("mode", "provider", "model", "dimension", "records", "selected_records", "embedded_records")
    assert [document[name] for name in told] == ["fill_missing", "openai-compatible", "m1", 8, 3, 3, 2]
    assert document["commit"]["actor_id"] is None
    assert document["properties"][0]["without_text"] == 1


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--select", "Note:rank=1"], {"n1"}),
        (["--select", "Note:rank=0", "--select", "Note:rank=2"], {"n0"}),
        (["--select", "Note:slug=n0", "--select", "Note:rank=1"], set()),
        (["--type", "Note", "--batch", "1"], {"n0", "n1"}),
    ],
)
def test_rows_are_selected_by_type_and_value(
    desk: Desk, address: str, real: Provider, flags: list[str], expected: set[str]
) -> None:
    assert desk.run("embed", address, *flags).code == 0
    assert filled(address) == expected


def test_vectors_are_made_anew_under_both_spellings_and_removed(
    desk: Desk, address: str, real: Provider
) -> None:
    for spelling in ("--reembed-all", "--reembed_all"):
        assert desk.run("embed", address, spelling).code == 0
    assert len(real.texts) == 4
    ran = desk.run("embed", address, "--clean")
    assert ran.out.splitlines()[:2] == ["  Note.vec: 2 vectors removed", "cleaned main"]
    assert filled(address) == set()


def test_a_dry_run_says_what_it_would_cost(desk: Desk, address: str, real: Provider) -> None:
    ran = desk.run("embed", address, "--dry-run")

    assert ran.out.splitlines() == [
        "  Note.vec: 2 vectors would be made from text; 20 characters; 1 row without text",
        "  nothing was written, and nobody was asked",
    ]
    assert real.requests == []


def test_a_missing_key_is_named(desk: Desk, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = desk.run("embed", address, "--json")
    assert (ran.code, ran.document["code"]) == (2, "bad_request")
    assert "GEMINI_API_KEY" in ran.document["error"]
    monkeypatch.setenv("OG_EMBED_PROVIDER", "gemini")
    ran = desk.run("embed", address, "--json")
    assert (ran.code, ran.document["code"]) == (2, "embedding_refused")
    assert "GEMINI_API_KEY" in ran.document["error"]


def test_a_provider_that_is_down_is_exit_code_7(
    desk: Desk, address: str, real: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "1")
    real.always = Reply(503)
    ran = desk.run("embed", address)
    assert (ran.code, filled(address)) == (7, set())
    assert "embedding_unavailable" in ran.err
    assert KEY not in ran.err


def test_no_log_line_has_the_key(desk: Desk, address: str, real: Provider) -> None:
    ran = desk.run("embed", address, "--log-level", "debug")
    assert ran.code == 0
    assert KEY not in ran.err + ran.out


def test_the_mock_wins_and_says_so(
    desk: Desk, address: str, real: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDINGS_MOCK", "1")
    ran = desk.run("embed", address)
    assert "EMBEDDINGS_MOCK=1" in ran.err
    assert "by mock" in ran.out
    assert real.requests == []


@pytest.mark.parametrize("select", ["Note", "Note:rank", "Note:=1", ":rank=1"])
def test_a_selection_that_is_none_is_refused(desk: Desk, address: str, select: str) -> None:
    ran = desk.run("embed", address, "--select", select)
    assert ran.code == 2
    assert "T:FIELD=VALUE" in ran.err


def test_finished_vectors_wait_in_the_folder_that_is_named(
    desk: Desk, address: str, real: Provider, tmp_path: Path
) -> None:
    real.fail(Reply(), Reply(401))
    folder = tmp_path / "spool"
    assert desk.run("embed", address, "--batch", "1", "--spool", str(folder)).code == 2
    assert len(list(folder.iterdir())) == 1
    assert desk.run("embed", address, "--spool", str(folder)).code == 0
    assert list(folder.iterdir()) == []
