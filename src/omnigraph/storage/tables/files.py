"""Files: making an empty table; which files of a table are stored, and which of them a version needs.

Under reclaiming and verifying. Paths are inside the table; one that ends in "/" stands for everything below
it. What a version needs is traced through Lance's own metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import pyarrow as pa
from lance import LanceDataset, LanceOperation

from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.cost import stage
from omnigraph.storage.derived.files import folder_of
from omnigraph.storage.durability import Step, Syncer, durable
from omnigraph.storage.location import Location, storage_failure
from omnigraph.storage.opener import Handle, manifest_file
from omnigraph.storage.tables.effects import ID

# -- a new table -----------------------------------------------------------------------------------
#
# The version that creates a table is the only numbered version it ever gets.


CREATED = 1
OnWritten = Callable[[str, Iterable[str]], None]  # is told which files of a table were written


# Ids and ends are most of the bytes of a bulk load. LZ4 packs them in less than half the time of FSST, which
# Lance chooses for texts, into 15 % more bytes (docs/decisions/0020).
ENCODED = frozenset({ID, "src", "dst"})
ENCODING = {"lance-encoding:compression": "lz4"}


def with_encodings(schema: pa.Schema) -> pa.Schema:
    """Return a schema that says how Lance packs ids and the ends of edges."""
    return pa.schema([f.with_metadata(ENCODING) if f.name in ENCODED else f for f in schema])


def create_table(
    table_id: str,
    schema: pa.Schema,
    location: Location,
    syncer: Syncer,
    written: OnWritten,
    *,
    may_exist: bool = False,
) -> int:
    """Create the dataset of one table and return the version to pin.

    A retry of a write may find the table that its first attempt made: ids are never used twice.
    """
    check_schema(table_id, schema)
    stage()
    try:
        with durable(Step.TABLE_CREATE):
            LanceDataset.commit(
                location.join("tables", table_id),
                LanceOperation.Overwrite(with_encodings(schema), []),
                max_retries=0,
                storage_options=location.lance_options,
            )
    except OSError as error:
        versions = location.objects.list(f"tables/{table_id}/_versions") if may_exist else ()
        if not any(key.endswith(manifest_file(CREATED)) for key, _ in versions):
            raise storage_failure(f"creating table {table_id!r}", error) from error
    version = f"_versions/{manifest_file(CREATED)}"
    syncer.files([location.join("tables", table_id, version)])
    written(table_id, [version])
    return CREATED


def check_schema(table_id: str, schema: pa.Schema) -> None:
    """Refuse a table that could not hold entities."""
    if ID not in schema.names or schema.field(ID).type != pa.string():
        raise InvalidRequest(f"table {table_id!r} needs a string column {ID!r}", table=table_id)


# -- configuration -------------------------------------------------------------------------------


def strip_configuration(handle: Handle, keys: Iterable[str]) -> None:
    """Take keys out of the configuration of a dataset, as a version of its own.

    The own head of a table is pinned by no branch. A version of a chain or of the registry says what the one
    before it says, as after the program that put the keys there; a writer that loses to it publishes again.
    """
    changes = LanceOperation.UpdateMap(dict.fromkeys(sorted(keys)), replace=False)
    try:
        with durable(Step.TABLE_COMMIT):
            LanceDataset.commit(
                handle,
                LanceOperation.UpdateConfig(config_updates=changes),
                read_version=handle.version,
                max_retries=0,
            )
    except OSError as error:
        raise storage_failure("changing the configuration of a dataset", error) from error


# -- files ---------------------------------------------------------------------------------------


TABLES = "tables"
VERSIONS = "_versions/"
HINT = f"{VERSIONS}latest_version_hint.json"  # Lance's own note on local disk
UNREAD = ("_transactions/", HINT)  # what no read of a pinned version looks at


def manifest_path(version: int) -> str:
    """Return where Lance keeps the description of a version."""
    return f"{VERSIONS}{manifest_file(version)}"


def stored_files(location: Location, table_id: str) -> dict[str, int]:
    """Return every file of a table with its size."""
    prefix = f"{TABLES}/{table_id}/"
    keys = location.objects.list(prefix.rstrip("/"))
    return {key.removeprefix(prefix): size for key, size in keys if key.startswith(prefix)}


def referenced(handle: Handle) -> frozenset[str]:
    """Return what one version of a table needs, and what is derived from its data files.

    Adjacency is over several files: whether to keep it is asked of its header (`Reclaimer`).
    """
    return frozenset(_referenced(handle))


def covers(needed: Collection[str], file: str) -> bool:
    """Say whether a file is among those needed."""
    folders = file.split("/")[:-1]
    above = ("/".join(folders[:depth]) + "/" for depth in range(1, len(folders) + 1))
    return file in needed or any(folder in needed for folder in above)


def matching(needed: Collection[str], files: Iterable[str]) -> Iterator[str]:
    """Yield those of some files that are needed."""
    return (file for file in files if covers(needed, file))


def _referenced(handle: Handle) -> Iterator[str]:
    yield manifest_path(handle.version)
    yield from (manifest_path(CREATED), HINT)  # what Lance goes by when it is told no version
    transaction = handle.read_transaction(handle.version)
    if transaction is not None:
        yield f"_transactions/{transaction.read_version}-{transaction.uuid}.txn"
    for fragment in handle.get_fragments():
        metadata = fragment.metadata
        for file in metadata.files:
            yield from (f"data/{file.path}", f"data/{file.path.removesuffix('.lance')}/")  # blobs beside it
            yield f"{folder_of(file.path)}/"
        if metadata.deletion_file is not None:
            yield str(metadata.deletion_file.path(fragment.fragment_id))
    for index in handle.describe_indices():
        yield from (f"_indices/{segment.uuid}/" for segment in index.segments)
