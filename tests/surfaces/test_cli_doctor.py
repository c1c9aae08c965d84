"""`omnigraph doctor` and `repair`: what they print, what they do, and how they end."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.engine.doctor.environment import inspect_environment
from omnigraph.storage.location import LocalObjects
from tests.engine.doctor.damaged import newest_data_file
from tests.support.desk import Desk, remote_environment
from tests.support.places import Place
from tests.support.stores import nothing_written


def test_a_clean_graph_ends_with_0_and_says_so(desk: Desk) -> None:
    ran = desk.run("doctor", desk.started())
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1].endswith("0 errors, 0 warnings, 1 info")
    document = desk.run("doctor", desk.graph, "--deep", "--json").document
    assert (document["ok"], document["deep"]) == (True, True)
    assert {"uri", "counts", "findings", "checks", "repairs"} <= document.keys()
    assert {check["name"] for check in document["checks"]} >= {"pages", "checksums", "indexes"}


def test_an_error_ends_with_1_and_says_where_and_what_to_do(desk: Desk) -> None:
    address = desk.started()
    with og.connect(address) as graph:
        lost = newest_data_file(graph, "Person")
    lost.unlink()
    ran = desk.run("doctor", address)
    assert ran.code == 1
    assert ran.out.startswith("error file_missing: ")
    assert lost.name in ran.out
    assert "Restore the file" in ran.out
    document = desk.run("doctor", address, "--json").document
    assert document["findings"][0]["where"]["type"] == "Person"


def test_a_graph_that_does_not_even_open_is_examined(desk: Desk) -> None:
    address = desk.started()
    newest = min(Path(address, "__manifest/_versions").glob("1*.manifest"))
    newest.write_bytes(newest.read_bytes()[:30])
    assert desk.run("snapshot", address).code == 1
    ran = desk.run("doctor", address)
    assert ran.code == 1
    assert ran.out.startswith("error head_unreadable: ")
    assert f"Delete __manifest/_versions/{newest.name}" in ran.out


def test_no_graph_at_all_ends_with_6(desk: Desk) -> None:
    assert desk.run("doctor", "nowhere.og").code == 6
    assert not Path("nowhere.og").exists()


def test_one_branch_is_looked_at_if_it_is_named(desk: Desk) -> None:
    assert desk.run("doctor", desk.started(), "--branch", "main").code == 0
    assert desk.run("doctor", desk.graph, "--branch", "nope").code == 6


def spoilt(desk: Desk) -> str:
    """Return a graph with a warning: another program has switched automatic cleanup on."""
    address = desk.started()
    with og.connect(address) as graph:
        table = next(t for t in graph.schema.catalog().nodes).table_id
    lance.dataset(f"{address}/tables/{table}").update_config({"lance.auto_cleanup.interval": "5"})
    return address


def test_a_warning_ends_with_0(desk: Desk) -> None:
    ran = desk.run("doctor", spoilt(desk))
    assert ran.code == 0
    assert "warning auto_cleanup" in ran.out


@pytest.mark.parametrize(
    "line", [("doctor", "--fix", "--dry-run"), ("repair",), ("repair", "--dry-run", "--confirm")]
)
def test_a_preview_says_what_would_be_done_and_does_nothing(desk: Desk, line: tuple[str, ...]) -> None:
    address = spoilt(desk)
    with nothing_written(Place(address, {})):
        ran = desk.run(line[0], address, *line[1:])
    assert ran.code == 0
    assert "would repair: took automatic cleanup out of" in ran.out
    assert "would repair: indexes (branch main)" in ran.out


@pytest.mark.parametrize("line", [("doctor", "--fix"), ("repair", "--confirm")])
def test_a_fix_does_it_and_says_what(desk: Desk, line: tuple[str, ...]) -> None:
    address = spoilt(desk)
    ran = desk.run(line[0], address, *line[1:], "--as", "ada")
    assert ran.code == 0
    assert "repaired: took automatic cleanup out of" in ran.out
    assert "repaired: built indexes of slug (branch main, type Person)" in ran.out
    assert ran.out.splitlines()[-1].endswith("0 errors, 0 warnings, 2 infos")  # what another program left
    with og.connect(address) as graph:
        assert graph.commits.list()[0].actor == "ada"


# -- the machine -------------------------------------------------------------------------------------


def test_the_environment_is_told_without_a_graph(desk: Desk) -> None:
    document = desk.run("doctor", "--environment", "--json").document
    items = {item["name"]: item for item in document["environment"]}
    assert {"python", "pylance", "java", "memory", "temporary files"} <= items.keys()
    assert "conditional writes" not in items


def test_a_place_is_probed_for_real_and_left_as_it_was(desk: Desk) -> None:
    ran = desk.run("doctor", "--environment", "none/yet.og", "--json")
    assert (ran.code, list(Path().iterdir())) == (0, [])
    items = {item["name"]: item["state"] for item in ran.document["environment"]}
    assert (items["conditional writes"], items["disk"]) == ("ok", "ok")


@pytest.mark.s3
def test_an_object_store_is_probed_for_real(
    desk: Desk, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in remote_environment(s3_place).items():
        monkeypatch.setenv(name, value)
    ran = desk.run("doctor", "--environment", s3_place.address, "--json")
    items = {item["name"]: item["state"] for item in ran.document["environment"]}
    assert (ran.code, items["conditional writes"], items["credentials"]) == (0, "ok", "ok")


@pytest.mark.parametrize("liar", ["both", "last"])
def test_a_store_that_overwrites_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, liar: str
) -> None:
    honest, made = LocalObjects.create, [0]

    def create(objects: LocalObjects, key: str, data: bytes) -> bool:
        made[0] += 1
        if liar == "last" and made[0] <= 2:
            return honest(objects, key, data)  # one at a time it looks right
        objects.delete(key)
        return honest(objects, key, data)

    monkeypatch.setattr(LocalObjects, "create", create)
    report = inspect_environment(str(tmp_path))
    (item,) = [item for item in report.items if item.name == "conditional writes"]
    assert (report.ok, item.state) == (False, "needed")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> int:
        raise ImportError("no pyspark")

    monkeypatch.setattr("omnigraph.engine.doctor.environment.MEMORY_BYTES", 1 << 60)
    monkeypatch.setattr("omnigraph.engine.doctor.environment._required", lambda: ["no-such-package"])
    report = inspect_environment(None, no_java)
    told = {item.name: (item.state, item.remedy) for item in report.items}
    assert told["no-such-package"] == ("needed", "pip install no-such-package")
    assert told["java"][0] == "absent"
    assert told["memory"][0] == "low"
    assert not report.ok


def test_the_environment_and_a_graph_are_two_questions(desk: Desk) -> None:
    assert desk.run("doctor", "--environment", "--deep").code == 2
