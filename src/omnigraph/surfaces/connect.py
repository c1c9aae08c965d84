"""Connect: `og.init` and `og.connect`, from an address to a graph: on storage here, or of a server.

Both kinds of graph have the same methods. What only one kind can use is refused for the other, by name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

from omnigraph.base.arguments import Positive, checked
from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.access import Guard
from omnigraph.engine.graph import Graph
from omnigraph.engine.open import connect as open_embedded
from omnigraph.engine.open import init as make_embedded
from omnigraph.engine.schema.schema import SchemaText
from omnigraph.execution.budget import MEMORY_BYTES
from omnigraph.storage.durability import Durability
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import MAIN
from omnigraph.surfaces.embedding.choose import ProviderChoice, embedder_from

SERVED = ("http://", "https://")


@runtime_checkable
class GuardSource(Protocol):
    """What gives the guard of an actor on a graph: a `Policy`."""

    def guard(self, actor: str | None, graph_id: str) -> Guard:
        """Return the guard."""


@checked
def init(
    address: str | os.PathLike[str] | None,
    schema: SchemaText,
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    actor: str | None = None,
    force: bool = False,
    memory_bytes: Positive = MEMORY_BYTES,
    embedding: ProviderChoice = None,
) -> Graph:
    """Make a graph with a schema (a `.pg` file, or schema text), and open it as `connect` does.

    Without an address (None) it is a temporary graph, for tests and play: its files are removed when it is
    closed, or when the process ends.
    """
    return make_embedded(
        address,
        schema,
        storage_options=storage_options,
        durability=durability,
        actor=actor,
        force=force,
        memory_bytes=memory_bytes,
        embedding=embedder_from(embedding),
    )


@checked
def connect(
    address: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    policy: str | os.PathLike[str] | GuardSource | None = None,
    actor: str | None = None,
    queries: str | os.PathLike[str] | None = None,
    token: str | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability | None = None,
    memory_bytes: Positive | None = None,
    embedding: ProviderChoice = None,
    verify: Literal["first-read", "off"] | None = None,
) -> Graph:
    """Open a graph that exists: a path or an address of storage, or `http(s)://HOST/graphs/ID` of a server.

    On storage this reads two small objects and writes nothing. Calls that name no branch mean `branch`.

    `actor` is who writes: recorded on every commit, and no call can name another. `policy` is a bundle (its
    path or text, or a `Policy`) that is asked before every operation; without an actor it denies everything.
    `queries` is a folder of `.gq` files, read and checked against the schema now: `Graph.run` runs one by
    its name.
    `storage_options` reach the storage. `durability` "os" does not wait for local disks. `memory_bytes`
    bounds what queries hold: the caches together with the rows of the one that runs.
    `embedding` turns text into vectors, for `nearest` and for `Graph.embed`: "openai-compatible", "openai",
    "gemini", settings such as `{"kind": "openai", "model": "..."}`, a function from texts to vectors, or
    "mock" for tests, which is also what the environment variable EMBEDDINGS_MOCK=1 means, whatever is given.
    Without it the environment decides (docs/search.md). For a property with `@embed(..., model="m")` the
    model must be that one; a function says so by the attribute `model = "m"`. `verify="first-read"`
    compares each file with its checksum when this process first opens a table that needs it; if not given,
    the environment variable OMNIGRAPH_VERIFY says, else it is off.

    A server takes a `token`, which says who asks; `timeout` bounds a call in seconds, and `retries` says how
    often one that did not come through is sent again. The rest is the server's to decide.
    """
    on_storage = {
        "policy": policy,
        "actor": actor,
        "queries": queries,
        "storage_options": storage_options,
        "durability": durability,
        "memory_bytes": memory_bytes,
        "embedding": embedding,
        "verify": verify,
    }
    of_server: dict[str, Any] = {"token": token, "timeout": timeout, "retries": retries}
    text = os.fspath(address).strip()
    if text.lower().startswith(SERVED):
        _refuse(on_storage, "of a server", "its token says who asks, and the server decides the rest")
        return _remote(text, branch, {name: value for name, value in of_server.items() if value is not None})
    _refuse(of_server, "on storage", "storage has credentials of its own: give storage_options")
    return open_embedded(
        address,
        branch=branch,
        storage_options=storage_options,
        durability=durability or "sync",
        memory_bytes=memory_bytes or MEMORY_BYTES,
        embedding=embedder_from(embedding),
        verify=verify,
        actor=actor,
        guard=_guard(policy, actor, address, storage_options),
        queries=queries,
    )


def _guard(
    policy: str | os.PathLike[str] | GuardSource | None,
    actor: str | None,
    address: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
) -> Guard | None:
    """Return who is asked before each operation."""
    if policy is None:
        return None
    if isinstance(policy, str | os.PathLike):
        from omnigraph.surfaces.policy.policy import Policy

        policy = Policy.read(policy)
    return policy.guard(actor, Location.parse(address, storage_options).uri)


def _remote(address: str, branch: str, options: Mapping[str, Any]) -> Graph:
    """Open a graph of a server: it has the methods of one on storage."""
    try:
        client = import_module("omnigraph.surfaces.client.open")
    except ImportError as error:
        raise InvalidRequest(
            "graphs of servers need an HTTP client, which is not installed",
            remedy="Install it with: pip install 'omnigraph[client]'",
        ) from error
    graph: Graph = client.open_remote(address, branch=branch, **options)
    return graph


def _refuse(options: Mapping[str, Any], where: str, why: str) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidRequest(
            f"a graph {where} takes no {', '.join(given)}: {why}", remedy=f"Leave out {', '.join(given)}"
        )
