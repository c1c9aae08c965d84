"""Open: `og.init` and `og.connect`, from an address to a graph; `og.upgrade`, which lets one be opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from shutil import rmtree
from tempfile import mkdtemp
from typing import Literal
from weakref import finalize

from omnigraph.base.arguments import Positive, checked
from omnigraph.base.ids import new_id
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.resolve import resolve
from omnigraph.engine.access import Access, Guard
from omnigraph.engine.graph import Graph
from omnigraph.engine.options import View
from omnigraph.engine.schema.schema import SchemaText, load_schema
from omnigraph.execution.budget import MEMORY_BYTES
from omnigraph.execution.memory import Memory
from omnigraph.execution.search.embedding import EmbeddingChoice, embedder_of
from omnigraph.storage.durability import Durability
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.manifest.upgrade import UpgradeReport
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import NewTable


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
    embedding: EmbeddingChoice = None,
) -> Graph:
    """Make a graph with a schema (a `.pg` file, or schema text), and open it as `connect` does.

    Without an address (None) it is a temporary graph, for tests and play: its files are removed when it is
    closed, or when the process ends.
    """
    embedder_of(embedding)  # a wrong one is refused before anything is made
    catalog = resolve(load_schema(schema), None, IdMinter(new_id())).catalog
    tables = {t.id: NewTable(t.name, t.kind.value, t.stored_schema) for t in catalog.tables}
    folder = None
    if address is None:
        folder = mkdtemp(prefix="omnigraph-")
        address, durability = os.path.join(folder, "graph"), "os"
    store = GraphStore.create(
        address,
        schema=catalog.to_json(),
        tables=tables,
        storage_options=storage_options,
        durability=durability,
        actor=actor,
        force=force,
    )
    graph = Graph(store, memory_bytes=memory_bytes, embedding=embedding)
    if folder is not None and graph._closing is not None:
        # The store, not this graph: views of the graph share it, and may outlive the graph.
        graph._closing.append(finalize(store, rmtree, folder, ignore_errors=True))
    return graph


@checked
def connect(
    address: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    memory_bytes: Positive = MEMORY_BYTES,
    embedding: EmbeddingChoice = None,
    verify: Literal["first-read", "off"] | None = None,
    actor: str | None = None,
    guard: Guard | None = None,
    queries: str | os.PathLike[str] | None = None,
    memory: Memory | None = None,
    strict: bool = False,
) -> Graph:
    """Open a graph that exists; reads two small objects, writes nothing.

    With an actor or a guard it is bound to them, as `Graph.acting` does it. `queries` is a folder of
    `.gq` files, for `Graph.run`. Calls that name no branch mean `branch`.
    `memory_bytes` bounds what queries hold: the caches together with the rows of the one that runs. `memory`
    is an account that they share with those of other graphs. A `strict` graph refuses queries that scan what
    no index serves, or whose answer has no bound.
    `embedding` turns text into vectors for `nearest`: a function from texts to vectors, or "mock" for tests,
    which is also what the environment variable EMBEDDINGS_MOCK=1 means, whatever is given. For a property
    with `@embed(..., model="m")` the function needs the attribute `model = "m"`. `verify="first-read"`
    compares each file with its checksum when this process first opens a table that needs it; if not given,
    the environment variable OMNIGRAPH_VERIFY says, else it is off.
    """
    store = GraphStore.open(address, storage_options=storage_options, durability=durability, verify=verify)
    try:
        if branch != MAIN:
            View(branch, access=Access(store, actor, guard)).line(branch)
            store.snapshot(branch)  # a misspelt one is refused now
        return Graph(
            store,
            memory_bytes=memory_bytes,
            embedding=embedding,
            branch=branch,
            actor=actor,
            guard=guard,
            queries=queries,
            memory=memory,
            strict=strict,
        )
    except BaseException:
        store.close()
        raise


@checked
def upgrade(
    address: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    dry_run: bool = False,
) -> UpgradeReport:
    """Bring a graph that an older release wrote to the storage format of this one, in place.

    All branches, tags, commits and their ids stay, and every past state is read as before. Older releases
    refuse the graph from then on. An upgrade that was interrupted is finished by the next one.
    """
    with GraphStore(Location.parse(address, storage_options), verify="off") as store:
        return store.upgrade(dry_run=dry_run, progress=progress)
