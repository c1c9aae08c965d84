"""A disk that refuses: what another user of the machine is told, who may not read or not write.

One child process gives up its rights and tries everything, since a process cannot get them back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.base.errors import GraphError
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append
from tests.support.graphs import PERSON, make_graph, people, persons, upsert_person, write
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.stores import everything

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("refused-access-disk")]  # one child process for all

NOBODY = 65534
READABLE, FRESH = "readable", "fresh"
LOCKED = {
    "its folder": "graph",
    "its manifest": "graph/__manifest",
    "its versions": "graph/__manifest/_versions",
    "a folder above it": ".",
}


@dataclass(frozen=True)
class Told:
    """What an attempt came to."""

    code: str
    kind: str
    text: str
    remedy: str


OPERATIONS: dict[str, Callable[[GraphStore], object]] = {
    "append": lambda store: write(store, {PERSON: Append(people(["x"]))}),
    "upsert": lambda store: upsert_person(store, "a"),
    "create a branch": lambda store: store.branches.create("new", "main"),
    "delete a branch": lambda store: store.branches.delete("dev"),
    "raise the floor": lambda store: store.raise_floor("main", 2),
}


def told(attempt: Callable[[], object]) -> Told:
    try:
        attempt()
    except GraphError as error:
        return Told(error.code, error.kind.value, str(error), error.remedy or "")
    except Exception as error:  # noqa: BLE001 - the test says what it should have been
        return Told("untyped", type(error).__name__, str(error), "")
    return Told("no error", "", "", "")


def as_nobody(root: str) -> dict[str, Told | dict[str, int]]:
    """Give up all rights, then try everything."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    found: dict[str, Told | dict[str, int]] = {}
    for name, part in LOCKED.items():
        found[name] = told(lambda at=f"{root}/{name}/graph": GraphStore.open(at).snapshot())  # type: ignore[misc]
        assert part
    found["each version"] = told(lambda: GraphStore.open(f"{root}/each version/graph").snapshot())
    found["making one"] = told(lambda: make_graph(f"{root}/{FRESH}/graph"))
    with GraphStore.open(f"{root}/{READABLE}/graph") as store:
        found["reading"] = persons(store) | {"branches": len(store.branches.list())}
        for name, operation in OPERATIONS.items():
            found[name] = told(lambda do=operation: do(store))  # type: ignore[misc]
    return found


@dataclass(frozen=True)
class Tried:
    """Everything that was tried, and whether it left a trace."""

    told: dict[str, Told]
    read: dict[str, int]
    untouched: bool
    nothing_made: bool
    root: str


@pytest.fixture(scope="module")
def tried() -> Iterator[Tried]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, who is refused")
    with tempfile.TemporaryDirectory() as root:  # tests' own folders are private
        os.chmod(root, 0o755)
        for name in (*LOCKED, "each version", READABLE):
            with make_graph(f"{root}/{name}/graph", durability="os") as store:
                upsert_person(store, "a", age=7)
                store.branches.create("dev", "main")
            if name in LOCKED:
                os.chmod(f"{root}/{name}/{LOCKED[name]}", 0o700)
        for file in Path(root, "each version/graph/__manifest/_versions").glob("*.manifest"):
            os.chmod(file, 0o600)
        os.mkdir(f"{root}/{FRESH}")
        before = everything(Place(f"{root}/{READABLE}/graph", {}))
        outcome = run_processes(as_nobody, [(root,)])[0]
        assert outcome.value is not None, outcome.trace or outcome.error_text
        answers = {name: one for name, one in outcome.value.items() if isinstance(one, Told)}
        read = outcome.value["reading"]
        assert isinstance(read, dict)
        after = everything(Place(f"{root}/{READABLE}/graph", {}))
        yield Tried(answers, read, after == before, os.listdir(f"{root}/{FRESH}") == [], root)


@pytest.mark.parametrize("locked", [*LOCKED, "each version"])
def test_a_graph_that_may_not_be_read_is_denied(tried: Tried, locked: str) -> None:
    found = tried.told[locked]

    assert (found.code, found.kind) == ("storage", "denied")
    assert f"{tried.root}/{locked}/graph" in found.text
    assert "permissions" in found.remedy


def test_making_a_graph_where_one_may_not_write_is_denied(tried: Tried) -> None:
    found = tried.told["making one"]

    assert (found.code, found.kind) == ("storage", "denied")
    assert f"{tried.root}/{FRESH}/graph" in found.text
    assert "permissions" in found.remedy
    assert tried.nothing_made


@pytest.mark.parametrize("operation", OPERATIONS)
def test_writing_where_one_may_only_read_is_a_typed_error(tried: Tried, operation: str) -> None:
    found = tried.told[operation]

    assert found.code == "storage"
    assert "permissions" in found.remedy


def test_writing_where_one_may_only_read_leaves_no_trace(tried: Tried) -> None:
    assert tried.untouched


def test_reading_works_where_one_may_only_read(tried: Tried) -> None:
    """S-17."""
    assert tried.read == {"a": 7, "branches": 1}
