"""Create: a new, empty table. Its creation version is the only numbered version it ever gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from lance import LanceDataset, LanceOperation

from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.cost import stage
from omnigraph.storage.durability import Syncer
from omnigraph.storage.failpoints import Step, durable
from omnigraph.storage.location import Location, storage_failure
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.tables.effects import ID

CREATED = 1
Written = Callable[[str, Iterable[str]], None]  # is told which files of a table were written


def create_table(
    table_id: str,
    schema: pa.Schema,
    location: Location,
    syncer: Syncer,
    written: Written,
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
                LanceOperation.Overwrite(schema, []),
                max_retries=0,
                storage_options=location.lance_options,
            )
    except OSError as error:
        made = location.objects.list(f"tables/{table_id}/_versions") if may_exist else ()
        if not any(key.endswith(manifest_file(CREATED)) for key, _ in made):
            raise storage_failure(f"creating table {table_id!r}", error) from error
    version = f"_versions/{manifest_file(CREATED)}"
    syncer.files([location.join("tables", table_id, version)])
    written(table_id, [version])
    return CREATED


def check_schema(table_id: str, schema: pa.Schema) -> None:
    """Refuse a table that could not hold entities."""
    if ID not in schema.names or schema.field(ID).type != pa.string():
        raise InvalidRequest(f"table {table_id!r} needs a string column {ID!r}", table=table_id)
