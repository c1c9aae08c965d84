"""Describe: a checked query as catalogs of stored queries list it (query spec 16.2).

Room    catalog.query. What a caller must know to invoke a query without seeing its text.
"""

from __future__ import annotations

from typing import Any

from omnigraph.catalog.query.check import CheckedQuery
from omnigraph.catalog.query.mutation import CheckedMutation


def query_entry(query: CheckedQuery) -> dict[str, Any]:
    """Return `{name, description?, instruction?, mutation, params, returns}`."""
    found: dict[str, Any] = {"name": query.name}
    if query.description is not None:
        found["description"] = query.description
    if query.instruction is not None:
        found["instruction"] = query.instruction
    return found | {
        "mutation": isinstance(query, CheckedMutation),
        "params": [parameter.column.to_json() for parameter in query.parameters],
        "returns": [column.to_json() for column in query.operation.result],
    }
