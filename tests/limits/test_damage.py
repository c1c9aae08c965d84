"""No damaged byte crashes the process, hangs it or is answered wrongly unnoticed, whatever file it is in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.base.arguments import checked
from omnigraph.base.errors import IntegrityError
from omnigraph.storage.manifest.refs import PREFIX, REFS
from tests.limits.damage import kinds, make
from tests.storage.bare import change_map

BATCH = 50  # cases of one process
KINDS = {
    "__checksums/*",
    "__claims/*",
    "__kept/*",
    "__manifest/*",
    "__manifest/_transactions",
    "__manifest/_versions",
    "__refs/_transactions",
    "__refs/_versions",
    "__schema/*",
    "tables/_deletions",
    "tables/_derived",
    "tables/_indices",
    "tables/_transactions",
    "tables/_versions",
    "tables/data",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph that has a file of every kind."""
    address = tmp_path_factory.mktemp("damage") / "base.og"
    make(address)
    assert set(kinds(address)) == KINDS
    return address


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [len(KINDS), pytest.param(2_000, marks=[pytest.mark.full, pytest.mark.timeout(4 * 3600)])]
)
def test_damaged_files(base: Path, tmp_path: Path, cases: int) -> None:
    bad: list[str] = []
    seen: dict[str, int] = {}
    for first in range(0, cases, BATCH):
        for case in _run(base, tmp_path, first, min(first + BATCH, cases)):
            if case["crashes"] or case["wrong"]:
                bad.append(json.dumps(case))
            for outcome, number in case["seen"].items():
                seen[outcome] = seen.get(outcome, 0) + number
    print(f"{cases} cases: {seen}")
    assert not bad, "\n".join(bad)
    assert seen["refused"] > cases / 10  # else the damage would not be met


def _run(base: Path, scratch: Path, first: int, last: int) -> list[dict[str, Any]]:
    """Run cases in a process of their own; one that died is a crash of the case that it was at."""
    command = [
        sys.executable,
        "-m",
        "tests.limits.damage",
        str(base),
        str(scratch / "s"),
        str(first),
        str(last),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    cases: dict[int, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        found = json.loads(line)
        cases.setdefault(found["seed"], {"seen": {}, "wrong": [], "crashes": {"process": "died"}}).update(
            found
        )
    if done.returncode:
        print(done.stderr[-3_000:])
        assert any("process" in case["crashes"] for case in cases.values()), done.stderr[-3_000:]
    return list(cases.values())


def test_an_emptied_data_file_is_a_finding_and_a_typed_error(base: Path, tmp_path: Path) -> None:
    """Lance panics where it meets a file without a byte."""
    address = tmp_path / "graph.og"
    shutil.copytree(base, address)
    for file in address.glob("tables/*/data/*.lance"):
        file.write_bytes(b"")
    with og.connect(address, durability="os") as graph:
        with pytest.raises(og.GraphError):
            graph.nodes("Document").to_arrow()
        assert not graph.doctor(fix=True).ok


def test_a_damaged_deletion_file_is_found_before_it_is_read(base: Path, tmp_path: Path) -> None:
    """On some of them Lance asks for more memory than there is, and aborts the process."""
    address = tmp_path / "graph.og"
    shutil.copytree(base, address)
    for file in address.glob("tables/*/_deletions/*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x40
        file.write_bytes(content)
    with og.connect(address, durability="os") as graph:
        assert "checksum" in {finding.code for finding in graph.doctor().of("error")}


def test_a_damaged_deletion_file_without_a_checksum_is_found_by_its_structure(
    base: Path, tmp_path: Path
) -> None:
    """As on an object store, where nobody recorded any."""
    address = tmp_path / "graph.og"
    shutil.copytree(base, address)
    shutil.rmtree(address / "__checksums")
    with og.connect(address, durability="os") as graph:
        assert graph.doctor().ok
    for file in address.glob("tables/*/_deletions/*"):
        content = bytearray(file.read_bytes())
        content[-20] ^= 0x40  # in the footer
        file.write_bytes(content)
    with og.connect(address, durability="os") as graph:
        assert "damaged_deletions" in {finding.code for finding in graph.doctor().of("error")}


@pytest.mark.parametrize("value", ['{"name": "b", "unheard_of": 1}', "{"])
def test_names_that_cannot_be_read_are_a_typed_error(base: Path, tmp_path: Path, value: str) -> None:
    address = tmp_path / "graph.og"
    shutil.copytree(base, address)
    change_map(lance.dataset(str(address / REFS)), {f"{PREFIX}b": value})
    unread = pytest.raises(IntegrityError, match="names of branches and tags")
    with og.connect(address, durability="os") as graph, unread:
        graph.branches.list()


def test_a_panic_that_nobody_expected_is_a_typed_error() -> None:
    """The border of the library has the last word."""

    class PanicException(BaseException):  # as native code raises it: no Exception, and of no module
        pass

    @checked
    def panics(number: int) -> None:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    with pytest.raises(IntegrityError, match="native code gave up"):
        panics(1)
