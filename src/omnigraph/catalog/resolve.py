"""Resolve: give a checked schema the identities of the accepted one.

    text -> tree -> checked schema -> **catalog**

Room    catalog. Decides which declared type or property is which stored one: by name, else by the old name
        in `@rename_from`, else it is new. Everything else follows identity.
Given   a checked schema, the accepted catalog (None for a new graph), a minter of fresh ids.
Gives   the desired catalog and notes about hints that did nothing; or `SchemaError` with all that is wrong.
Rule    matching comes first, minting after it and only if all matches are sound: a refused schema uses up
        no id. Order of allocation: interfaces, nodes, edges by name, then properties by owner id and name.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.catalog.build import build
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import Minter
from omnigraph.catalog.match import Matcher
from omnigraph.language.diagnostics import Diagnostic, SchemaError, in_order
from omnigraph.language.schema import CheckedSchema, load


@dataclass(frozen=True, slots=True)
class Resolution:
    """The desired catalog, and advice about the text."""

    catalog: Catalog
    notes: tuple[Diagnostic, ...] = ()


def resolve(checked: CheckedSchema, accepted: Catalog | None, mint: Minter) -> Resolution:
    """Return the catalog that the schema asks for."""
    matcher = Matcher(checked, accepted)
    matches = matcher.run()
    if matcher.errors:
        raise SchemaError(checked.source, matcher.errors)
    catalog = build(matches, checked.source.text, mint)
    return Resolution(catalog, in_order(matcher.notes))


def resolve_text(
    text: str | bytes, accepted: Catalog | None, mint: Minter, *, file: str = "schema.pg"
) -> Resolution:
    """Parse, check and resolve a schema text."""
    return resolve(load(text, file=file), accepted, mint)
