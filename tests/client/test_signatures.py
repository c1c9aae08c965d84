"""A remote graph has the methods of an embedded one, with the same arguments in the same order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.engine.branches import GraphBranches
from omnigraph.engine.commits import Commits, GraphTags
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.diff import Diff
from omnigraph.engine.history.entity import Entity
from omnigraph.engine.history.feed import Baseline, Changes
from omnigraph.engine.schema.schema import SchemaPlan, SchemaReceipt, Schemas
from omnigraph.engine.table import TypeRows
from omnigraph.surfaces.client.changes import RemoteBaseline, RemoteChanges, RemoteDiff, RemoteEntity
from omnigraph.surfaces.client.graph import RemoteGraph
from omnigraph.surfaces.client.namespaces import RemoteBranches, RemoteCommits, RemoteSchemas, RemoteTags
from omnigraph.surfaces.client.rows import RemoteTypeRows
from omnigraph.surfaces.client.steps import RemoteSchemaPlan, RemoteSchemaReceipt

TWINS = [
    (Graph, RemoteGraph),
    (GraphBranches, RemoteBranches),
    (Commits, RemoteCommits),
    (GraphTags, RemoteTags),
    (Schemas, RemoteSchemas),
    (Changes, RemoteChanges),
    (Entity, RemoteEntity),
    (Diff, RemoteDiff),
    (Baseline, RemoteBaseline),
    (TypeRows, RemoteTypeRows),
    (SchemaPlan, RemoteSchemaPlan),
    (SchemaReceipt, RemoteSchemaReceipt),
]
NOT_CALLED = {"acting"}  # of embedded graphs only: the token says who acts on a served one
INSIDE = {"proposal", "comparison", "store"}  # attributes that are of the storage


def members(cls: type) -> dict[str, Any]:
    """Return the public methods and properties of a class."""
    listed = {name: inspect.getattr_static(cls, name) for name in dir(cls)}
    return {
        name: member
        for name, member in listed.items()
        if (not name.startswith("_") or name == "__call__") and name not in NOT_CALLED | INSIDE
    }


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Return what a method takes: names, kinds and defaults."""
    listed = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in listed]


@pytest.mark.parametrize(("local", "remote"), TWINS, ids=lambda cls: cls.__name__)
def test_every_public_method_is_there_with_the_same_arguments(local: type, remote: type) -> None:
    here, there = members(local), members(remote)
    fields = set(getattr(remote, "__dataclass_fields__", ()))
    assert set(here) - set(there) - fields == set()
    different = {
        name: (parameters(member), parameters(there[name]))
        for name, member in here.items()
        if inspect.isfunction(member)
        and inspect.isfunction(there.get(name))
        and parameters(member) != parameters(there[name])
    }
    assert different == {}
