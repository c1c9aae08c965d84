"""What a graph takes in storage: every file is counted once, by type and part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.settings import ServerSettings
from tests.support.inside import inside

SCHEMA = """
node Page { name: String @key  size: I32? @index  text: String? @index }
node Empty { name: String @key }
edge Links: Page -> Page
"""
ADD = "query add($name: String) { insert Page { name: $name, size: 1 } }"
PAGES = 20_000  # as many rows as make a fragment large


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("storage") / "kb.og"
    pages = ({"name": f"page {number}", "size": number, "text": f"text {number}"} for number in range(PAGES))
    with og.init(place, SCHEMA, durability="os") as graph:
        graph.load({"Page": list(pages)}, mode="append")
        graph.optimize()
        graph.mutate(ADD, name="later")
        graph.branches.create("side")
        graph.schema.apply(SCHEMA + "node Aside { name: String @key }\n", branch="side")
    return place


@pytest.fixture(scope="module")
def graph(place: Path) -> Iterator[Graph]:
    with og.connect(place) as graph:
        yield graph


@pytest.fixture(scope="module")
def http(graph: Graph) -> Iterator[httpx.Client]:
    with inside(create_app(ServerSettings(unauthenticated=True), {"kb": graph})) as http:
        yield http


def told(http: httpx.Client, path: str, **query: Any) -> Any:
    answer = http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def types(document: Any) -> dict[str, Any]:
    return {one["type_name"]: one for one in document["types"]}


def test_every_file_is_counted_once(http: httpx.Client, place: Path) -> None:
    files = [file for file in place.rglob("*") if file.is_file()]
    report = told(http, "/storage")
    assert (report["files"], report["bytes"]) == (len(files), sum(file.stat().st_size for file in files))
    parts = [*report["system"].values(), *report["types"], report["other_tables"]]
    assert sum(part["files"] for part in parts) == report["files"]
    assert sum(part["bytes"] for part in parts) == report["bytes"]


def test_a_type_says_what_of_it_is_data_indexes_and_derived(http: httpx.Client, place: Path) -> None:
    page, empty = (types(told(http, "/storage"))[name] for name in ("Page", "Empty"))
    assert (page["entity_count"], empty["entity_count"]) == (PAGES + 1, 0)
    on_disk = {
        part: sum(file.stat().st_size for file in place.glob(f"tables/*/{folder}/**/*") if file.is_file())
        for part, folder in (("data", "data"), ("indexes", "_indices"), ("derived", "_derived"))
    }
    assert {part: page["parts"][part]["bytes"] for part in on_disk} == on_disk
    assert all(on_disk.values())
    assert 0 < page["live_bytes"] <= on_disk["data"]
    assert (page["fragments"], empty["fragments"]) == (2, 0)


def test_derived_files_that_are_not_there_are_missing(http: httpx.Client, place: Path) -> None:
    assert types(told(http, "/storage"))["Page"]["derived"] == {"wanted": 1, "missing": 0}
    (folder,) = (one for one in place.glob("tables/*/_derived/*") if one.is_dir() and one.name != "adjacency")
    moved = folder.rename(folder.with_name("away"))
    assert types(told(http, "/storage"))["Page"]["derived"] == {"wanted": 1, "missing": 1}
    moved.rename(folder)


def test_types_of_other_branches_are_counted_apart(http: httpx.Client) -> None:
    of_main, of_side = (told(http, "/storage", branch=name) for name in ("main", "side"))
    assert "Aside" not in types(of_main)
    assert types(of_side)["Aside"]["files"] == of_main["other_tables"]["files"] > 0
    assert of_side["other_tables"]["files"] == 0


def test_it_says_what_a_cleanup_would_do_and_does_nothing(http: httpx.Client, graph: Graph) -> None:
    before = len(graph.commits.list())
    kept = told(http, "/storage", keep=1, grace="0s")["cleanup"]
    assert kept["dry_run"] is True
    assert [one["branch"] for one in kept["given_up"]] == ["main"]
    assert told(http, "/storage", keep=1)["cleanup"]["given_up"] == []  # all of it is of the last seven days
    assert told(http, "/storage", keep=0, grace="0s")["cleanup"]["dry_run"] is True  # heads alone stay
    assert told(http, "/storage")["cleanup"] is None
    assert len(graph.commits.list()) == before


def test_statistics_tell_how_far_each_index_goes(http: httpx.Client, graph: Graph) -> None:
    page = types(told(http, "/stats"))["Page"]
    indexes = {index["property"]: index for index in page["indexes"]}
    assert set(indexes) == {"name", "size", "text"}
    for index in indexes.values():
        assert index["unindexed_rows"] == 1
        assert index["coverage"] == pytest.approx(PAGES / (PAGES + 1))
    assert (page["unindexed_rows"], page["entity_count"]) == (1, PAGES + 1)
    assert types(told(http, "/stats"))["Empty"]["index_coverage"] == 1.0
