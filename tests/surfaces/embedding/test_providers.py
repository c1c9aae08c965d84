"""Providers of vectors: how they are asked, how long, and what becomes of a bad answer."""

from __future__ import annotations

import logging
import sys
import threading
from email.utils import formatdate
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.execution.search.embedding import (
    EmbeddingRefused,
    EmbeddingUnavailable,
    MockEmbedder,
    unit_vectors,
)
from omnigraph.surfaces.embedding.choose import embedder_from
from omnigraph.surfaces.embedding.provider import HttpEmbedder
from omnigraph.surfaces.embedding.settings import read_settings
from tests.support.provider import KEY, Provider, Reply, StillClock

SCHEMA = 'node Note { slug: String @key  text: String?  vec: Vector(8)? @embed("text") }'
NEAR = "query q($t: String) { match { $n: Note } return { $n.slug } order { nearest($n.vec, $t) } limit 2 }"


def embedder(provider: Provider, clock: StillClock | None = None, **more: Any) -> HttpEmbedder:
    return HttpEmbedder(read_settings(provider.settings(**more), {}), clock or StillClock())


# -- protocols ---------------------------------------------------------------------------------------


def test_openai_is_asked_for_many_texts_at_once_and_answers_by_index(provider: Provider) -> None:
    texts = ["red apples", "a blue car"]

    assert embedder(provider).documents(texts, 8) == MockEmbedder()(texts, 8)

    (asked,) = provider.requests
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "m1", "input": texts, "dimensions": 8}


def test_gemini_is_told_whether_a_text_is_a_question_or_a_document(provider: Provider) -> None:
    gemini = embedder(provider, kind="gemini", model="gemini-embedding-2")

    assert gemini(["apples"], 8) == MockEmbedder()(["apples"], 8)
    assert gemini.documents(["red", "blue"], 8) == MockEmbedder()(["red", "blue"], 8)

    one, many = provider.requests
    assert one.path == "/v1/models/gemini-embedding-2:embedContent"
    assert many.path == "/v1/models/gemini-embedding-2:batchEmbedContents"
    assert {request.headers["x-goog-api-key"] for request in (one, many)} == {KEY}
    assert one.body["taskType"] == "RETRIEVAL_QUERY"
    assert one.body["outputDimensionality"] == 8
    assert [part["taskType"] for part in many.body["requests"]] == ["RETRIEVAL_DOCUMENT"] * 2


def test_a_server_of_ones_own_is_asked_without_a_key(provider: Provider) -> None:
    settings = read_settings({"base_url": provider.base}, {})

    HttpEmbedder(settings, StillClock())(["x"], 8)

    assert "authorization" not in provider.requests[0].headers


# -- patience ----------------------------------------------------------------------------------------


def test_a_busy_provider_is_asked_again_later_and_as_late_as_it_asks(provider: Provider) -> None:
    clock = StillClock()
    provider.fail(Reply(500), Reply(429, {"Retry-After": "7"}), Reply(503))

    assert embedder(provider, clock)(["x"], 8) == MockEmbedder()(["x"], 8)
    assert len(provider.requests) == 4
    assert clock.slept == [0.2, 7.0, 0.8]


def test_retry_after_may_be_a_time(provider: Provider) -> None:
    clock = StillClock()
    later = formatdate(clock.now_us() / 1e6 + 5, usegmt=True)
    provider.fail(Reply(429, {"Retry-After": later}), Reply(429, {"Retry-After": "soon"}))

    embedder(provider, clock)(["x"], 8)

    assert clock.slept == [5.0, 0.4]


def test_after_four_attempts_it_is_an_error(provider: Provider) -> None:
    clock = StillClock()
    provider.always = Reply(502)

    with pytest.raises(EmbeddingUnavailable, match=r"in 4 attempts: .* 502") as caught:
        embedder(provider, clock)(["x"], 8)

    assert len(provider.requests) == 4
    assert clock.slept == [0.2, 0.4, 0.8]
    assert caught.value.retryable
    assert caught.value.fields["attempts"] == 4


def test_nobody_waits_past_the_deadline(provider: Provider) -> None:
    clock = StillClock()
    provider.always = Reply(429, {"Retry-After": "59"})

    with pytest.raises(EmbeddingUnavailable, match="in 2 attempts"):
        embedder(provider, clock)(["x"], 8)

    assert clock.slept == [59.0]


def test_a_provider_that_does_not_answer_is_given_up_and_asked_again(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    provider.fail(Reply(before=release.wait))
    settings = read_settings(provider.settings(), {"OG_EMBED_TIMEOUT_MS": "100"})
    try:
        vectors = HttpEmbedder(settings, StillClock())(["x"], 8)
    finally:
        release.set()

    assert vectors == MockEmbedder()(["x"], 8)
    assert len(provider.requests) == 2


def test_an_answer_that_comes_in_drops_is_given_up(provider: Provider) -> None:
    provider.always = Reply(pieces=10)
    settings = read_settings(provider.settings(), {"OG_EMBED_RETRY_ATTEMPTS": "1"})

    with pytest.raises(EmbeddingUnavailable, match="did not answer in time"):
        HttpEmbedder(settings, StillClock(tick=31))(["x"], 8)


def test_a_lost_connection_is_tried_again() -> None:
    clock = StillClock()
    settings = read_settings({"base_url": "http://127.0.0.1:1/v1", "api_key": KEY}, {})

    with pytest.raises(EmbeddingUnavailable, match="in 4 attempts: the connection failed"):
        HttpEmbedder(settings, clock)(["x"], 8)

    assert len(clock.slept) == 3


# -- bad answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "names"), [(401, "api_key|OPENROUTER_API_KEY"), (404, "EMBED_MODEL"), (400, "EMBED_MODEL")]
)
def test_a_refusal_is_not_tried_again_and_names_what_to_look_at(
    provider: Provider, status: int, names: str
) -> None:
    provider.always = Reply(status)

    with pytest.raises(EmbeddingRefused, match=f"status {status}") as caught:
        embedder(provider)(["x"], 8)

    assert len(provider.requests) == 1
    assert any(name in str(caught.value.remedy) for name in names.split("|"))


def test_a_redirection_is_not_followed_with_the_key(provider: Provider) -> None:
    provider.always = Reply(307, {"Location": f"{provider.base}/elsewhere"})

    with pytest.raises(EmbeddingRefused, match="status 307"):
        embedder(provider)(["x"], 8)

    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"data": 1}', b'{"data": [{"index": 7, "embedding": []}]}', b"\xff"]
)
@pytest.mark.parametrize("kind", ["openai-compatible", "gemini"])
def test_an_answer_of_another_protocol_is_refused(provider: Provider, kind: str, body: bytes) -> None:
    provider.always = Reply(body=body)

    with pytest.raises(EmbeddingRefused, match="gave no vectors"):
        embedder(provider, kind=kind)(["x"], 8)

    assert len(provider.requests) == 1


SPOILT: dict[str, Any] = {
    "too few": lambda vectors: vectors[:-1],
    "too short": lambda vectors: [vector[:-1] for vector in vectors],
    "not a number": lambda vectors: [[float("nan")] * 8 for _ in vectors],
    "infinite": lambda vectors: [[float("inf")] * 8 for _ in vectors],
    "zero": lambda vectors: [[0.0] * 8 for _ in vectors],
    "text": lambda vectors: ["12345678" for _ in vectors],
    "null": lambda vectors: [None for _ in vectors],
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_vector_that_cannot_be_used_is_refused(provider: Provider, spoil: Any) -> None:
    provider.always = Reply(vectors=spoil)

    with pytest.raises(InvalidRequest, match="the embedder gave"):
        unit_vectors(embedder(provider).documents(["x", "y"], 8), 2, 8)


def test_vectors_have_length_one_and_32_bits() -> None:
    vectors = unit_vectors([[3.0, 4.0], [1e-30, 0.0]], 2, 2)

    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[np.float32(0.6), np.float32(0.8)], [1.0, 0.0]]


# -- secrets -----------------------------------------------------------------------------------------


def test_no_key_shows_in_logs_errors_or_reprs(
    provider: Provider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = read_settings(provider.settings(), {})
    seen = [repr(settings), str(settings)]
    for kind in ("openai-compatible", "gemini"):
        for reply in (Reply(), Reply(401), Reply(500), Reply(body=KEY.encode()), Reply(302)):
            provider.always = reply
            asking = embedder(provider, kind=kind)
            seen.append(repr(asking))
            try:
                asking(["x"], 8)
            except GraphError as error:
                seen += [str(error), repr(error), repr(error.fields), repr(error.__reduce__())]
                seen += [repr(error.__cause__), repr(error.__context__)]
    for choice in ({"api_key": f"{KEY} x"}, {"base_url": f"http://user:{KEY}@host"}, {"api_key": [KEY]}):
        with pytest.raises(InvalidRequest) as caught:
            embedder_from(choice, {})
        seen += [str(caught.value), repr(caught.value.fields)]
    with pytest.raises(InvalidRequest) as caught:
        embedder_from("openai", {"OPENAI_API_KEY": f"{KEY}\nx"})
    seen.append(str(caught.value))

    assert provider.requests
    assert caplog.records
    assert [record for record in caplog.records if KEY in f"{record.getMessage()} {record.__dict__}"] == []
    assert [text for text in seen if KEY in text] == []


def test_a_key_that_ends_in_a_line_break_is_taken_without(provider: Provider) -> None:
    settings = read_settings({"base_url": provider.base}, {"OPENROUTER_API_KEY": f"{KEY}\n"})

    HttpEmbedder(settings, StillClock())(["x"], 8)

    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"


# -- who is asked ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "kind", "model", "host"),
    [
        ({"OPENROUTER_API_KEY": KEY}, "openai-compatible", "openai/text-embedding-3-large", "openrouter.ai"),
        ({"OPENAI_API_KEY": KEY}, "openai", "text-embedding-3-large", "api.openai.com"),
        ({"GEMINI_API_KEY": KEY}, "gemini", "gemini-embedding-2", "generativelanguage.googleapis.com"),
        (
            {"GEMINI_API_KEY": KEY, "OG_EMBED_PROVIDER": "openai"},
            "openai",
            "text-embedding-3-large",
            "api.openai.com",
        ),
        (
            {"GEMINI_API_KEY": KEY, "OPENAI_API_KEY": "other"},
            "openai",
            "text-embedding-3-large",
            "api.openai.com",
        ),
        (
            {"OMNIGRAPH_EMBED_BASE_URL": "http://gpu:8000/v1/", "OG_EMBED_MODEL": "bge"},
            "openai-compatible",
            "bge",
            "gpu:8000/v1",
        ),
    ],
)
def test_the_environment_says_who_is_asked(
    environment: dict[str, str], kind: str, model: str, host: str
) -> None:
    chosen = embedder_from(None, environment)

    assert isinstance(chosen, HttpEmbedder)
    assert (chosen.provider, chosen.model) == (kind, model)
    assert host in chosen._settings.base_url


def test_a_key_for_one_company_never_goes_to_another() -> None:
    keys = {"OPENAI_API_KEY": "openai", "GEMINI_API_KEY": "gemini"}
    router = read_settings({"kind": "openai-compatible"}, keys)
    gemini = read_settings({"kind": "gemini"}, {**keys, "OG_EMBED_BASE_URL": "http://gpu/v1"})

    assert router.api_key is None
    assert (gemini.api_key, gemini.base_url) == (
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
    )


def test_nothing_in_the_environment_is_no_embedder() -> None:
    assert embedder_from(None, {}) is None
    assert embedder_from(None, {"OG_EMBED_PROVIDER": "mock-hash"}) == "mock-hash"
    assert embedder_from({"kind": "mock"}, {}) == "mock"


@pytest.mark.parametrize(
    ("choice", "environment", "says"),
    [
        ({"kind": "magic"}, {}, "no provider 'magic'"),
        (None, {"OG_EMBED_PROVIDER": "magic"}, "OMNIGRAPH_EMBED_PROVIDER"),
        ({"mdel": "x"}, {}, "model"),
        ({"base_url": "ftp://host"}, {}, "OMNIGRAPH_EMBED_BASE_URL"),
        ({"base_url": "http://host:99999"}, {}, "OMNIGRAPH_EMBED_BASE_URL"),
        ({"base_url": "http://host/?key=1"}, {}, "keys go in their own variable"),
        ({"batch": 129}, {}, "from 1 to 128"),
        ({"batch": True}, {}, "from 1 to 128"),
        ({"model": ""}, {}, "model must be a text"),
        ({}, {"OG_EMBED_TIMEOUT_MS": "0"}, "OMNIGRAPH_EMBED_TIMEOUT_MS"),
        ({}, {"OG_EMBED_RETRY_ATTEMPTS": "many"}, "OMNIGRAPH_EMBED_RETRY_ATTEMPTS"),
        ({"kind": "local"}, {}, "OMNIGRAPH_EMBED_MODEL"),
        ({"kind": "local", "path": "/no/such/folder"}, {}, "no folder"),
    ],
)
def test_wrong_settings_are_refused_when_the_graph_is_opened(
    choice: Any, environment: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        embedder_from(choice, environment)
    assert says in str(caught.value)


def test_a_missing_key_is_told_when_a_vector_is_wanted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OG_EMBED_PROVIDER", "openai")
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        with pytest.raises(EmbeddingRefused, match="OPENAI_API_KEY"):
            graph.query(NEAR, t="x")
        assert graph.query(NEAR.replace("String", "Vector(8)"), t=[1.0] * 8).rows == []


def test_without_httpx_it_says_what_to_install(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)

    with pytest.raises(EmbeddingRefused, match=r"omnigraph\[embed\]"):
        embedder(provider)(["x"], 8)


@pytest.mark.parametrize("prefix", ["", "OG_", "OMNIGRAPH_"])
def test_the_mock_wins_over_a_provider_and_says_so(
    prefix: str, provider: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(f"{prefix}EMBEDDINGS_MOCK", "1")
    with og.init(None, SCHEMA, embedding=provider.settings()) as graph:
        graph.query(NEAR, t="x")

    assert provider.requests == []
    assert "EMBEDDINGS_MOCK=1" in caplog.text


def test_a_query_asks_the_provider_once_for_each_text(provider: Provider) -> None:
    with og.init(None, SCHEMA, embedding=provider.settings()) as graph:
        for _ in range(3):
            graph.query(NEAR, t="apples")

    assert provider.texts == ["apples"]


def test_the_model_of_the_property_must_be_the_providers(provider: Provider) -> None:
    schema = SCHEMA.replace('@embed("text")', '@embed("text", model="m2")')
    with og.init(None, schema, embedding=provider.settings()) as graph:
        with pytest.raises(InvalidRequest, match=r"'m2', and provider .* 'm1'") as caught:
            graph.query(NEAR, t="x")
        with pytest.raises(InvalidRequest, match="'m2'"):
            graph.embed()

    assert "OMNIGRAPH_EMBED_MODEL=m2" in str(caught.value.remedy)
    assert provider.requests == []


# -- a local model -----------------------------------------------------------------------------------


def test_a_local_model_is_loaded_from_its_folder_when_it_is_first_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Any] = []

    def load(path: str, **options: Any) -> Any:
        loaded.append((path, options))
        return SimpleNamespace(
            encode_query=lambda texts, **_: np.asarray(MockEmbedder()(texts, 8)),
            encode_document=lambda texts, **_: np.asarray(MockEmbedder()(texts, 8)),
        )

    package = ModuleType("sentence_transformers")
    package.SentenceTransformer = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    with og.init(None, SCHEMA, embedding={"kind": "local", "path": str(tmp_path)}) as graph:
        graph.load([{"type": "Note", "data": {"slug": "a", "text": "red apples"}}], mode="append")
        assert loaded == []
        assert graph.embed().model == tmp_path.name
        assert graph.query(NEAR, t="apples").rows == [{"n.slug": "a"}]

    assert loaded == [(str(tmp_path), {"local_files_only": True})]


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    local = embedder_from({"kind": "local", "path": str(tmp_path), "model": "acme/m"}, {})

    assert callable(local)
    assert local.model == "acme/m"  # type: ignore[union-attr]
    with pytest.raises(EmbeddingRefused, match="sentence-transformers"):
        local(["x"], 8)  # type: ignore[call-arg]
