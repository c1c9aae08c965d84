"""Request: which vectors a fill is about, and what it says of its work.

types, select -> **targets** under a schema -> rows that are chosen -> rows whose vector is wanted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, Embed, NodeType, Property
from omnigraph.engine.table import bound_filter
from omnigraph.engine.write import commit_json, cost_json
from omnigraph.storage.cost import Cost
from omnigraph.storage.manifest.records import CommitRecord

SHOWN = 20  # ids that a report names
Mask = NDArray[np.bool_]
Selection = Mapping[str, Mapping[str, Any]]


class FillMode(Enum):
    """Which vectors are made."""

    MISSING = "fill_missing"
    ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, eq=False)
class EmbedTarget:
    """A vector property and the text that it stands for."""

    declared: NodeType
    vector: Property
    embed: Embed

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.declared.name}.{self.vector.name}"

    @property
    def source(self) -> Property:
        """The property that holds the text."""
        return self.declared.property_by_id(self.embed.source)

    @property
    def size(self) -> int:
        """How long its vectors are."""
        return self.vector.type.dimension or 0

    @property
    def identity(self) -> tuple[Any, ...]:
        """What a fill relies on: it stops if the schema changes that."""
        return self.declared.id, self.vector.id, self.embed, self.size


@dataclass(frozen=True, eq=False)
class FillRequest:
    """One call of `embed`."""

    mode: FillMode = FillMode.MISSING
    types: tuple[str, ...] = ()
    select: Selection = FrozenMap()

    @classmethod
    def read(
        cls,
        types: Iterable[str] | str | None,
        select: Selection | None,
        *,
        reembed_all: bool,
        clean: bool,
    ) -> FillRequest:
        """Return what the arguments of a call mean."""
        if clean and reembed_all:
            raise InvalidRequest("clean removes vectors, reembed_all makes them", remedy="Choose one of them")
        mode = FillMode.CLEAN if clean else FillMode.ALL if reembed_all else FillMode.MISSING
        names = (types,) if isinstance(types, str) else tuple(types or ())
        return cls(mode, names, dict(select or {}))

    def targets(self, catalog: Catalog) -> tuple[EmbedTarget, ...]:
        """Return the vector properties that are meant, under a schema."""
        named = dict.fromkeys((*self.types, *self.select))
        nodes = [catalog.node(name) for name in named] if named else catalog.nodes
        targets = tuple(target for declared in nodes for target in _targets_of(declared))
        for declared in nodes if named else ():
            if not any(target.declared is declared for target in targets):
                raise InvalidRequest(
                    f"{declared.name} has no property with @embed", remedy="Choose a type that has one"
                )
        required = [target.name for target in targets if not target.vector.type.nullable]
        if self.mode is FillMode.CLEAN and required:
            raise InvalidRequest(
                f"{required[0]} is required, so its vectors cannot be removed",
                remedy="Declare it as Vector(...)? first, or embed again with reembed_all",
            )
        return targets

    def chooser(self, declared: NodeType) -> RowChooser:
        """Return who knows which rows of a type are meant."""
        values = self.select.get(declared.name, {})
        by_column = {}
        for name, value in values.items():
            array = bound_filter(declared, name, value)
            column = ID if name == ID else declared.find(name).column  # type: ignore[union-attr]
            by_column[column] = array
        return RowChooser(by_column)


@dataclass(frozen=True, eq=False)
class RowChooser:
    """Chooses rows by the values of their columns."""

    values: Mapping[str, pa.Array]

    def mask(self, rows: pa.Table) -> Mask:
        """Say of each row whether it is meant."""
        mask = np.ones(rows.num_rows, bool)
        for column, values in self.values.items():
            mask &= _mask(pc.is_in(rows[column], value_set=values))
        return mask


def _targets_of(declared: NodeType) -> Iterator[EmbedTarget]:
    for member in declared.properties:
        if member.embed is not None:
            yield EmbedTarget(declared, member, member.embed)


def wanted(mode: FillMode, rows: pa.Table, target: EmbedTarget) -> Mask:
    """Say of which rows the vector is to be made: those with a text, and without a vector unless all are."""
    vector_missing = _mask(rows[target.vector.column].is_null())
    if mode is FillMode.CLEAN:
        return ~vector_missing
    has_text = _has_text(rows[target.source.column])
    return has_text if mode is FillMode.ALL else has_text & vector_missing


def lacks_text(mode: FillMode, rows: pa.Table, target: EmbedTarget) -> Mask:
    """Say which rows have nothing to embed, and no vector either."""
    if mode is FillMode.CLEAN:
        return np.zeros(rows.num_rows, bool)
    return ~_has_text(rows[target.source.column]) & _mask(rows[target.vector.column].is_null())


def _has_text(texts: pa.ChunkedArray) -> Mask:
    """A text of nothing but spaces is none: providers refuse it."""
    return _mask(pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False))


def _mask(booleans: pa.ChunkedArray) -> Mask:
    return np.asarray(booleans, bool)


# -- what is told ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmbedProgress:
    """How far a fill is: rows read of all rows, and distinct texts that were embedded or found finished."""

    stage: Literal["embedding", "writing", "done"]
    property: str = ""
    rows: int = 0
    rows_total: int = 0
    embedded: int = 0
    reused: int = 0


EmbedListener = Callable[[EmbedProgress], None]


@dataclass(frozen=True, kw_only=True)
class EmbeddedProperty:
    """What a fill did to one vector property."""

    type: str
    property: str
    source: str
    dimension: int
    records: int = 0  # rows of the type
    selected: int = 0  # rows that were meant
    asked: int = 0  # texts that the provider was asked for
    reused: int = 0  # texts that were finished: by an interrupted fill, or for another row
    characters: int = 0  # of the texts asked for; in a dry run, of those that would be
    embedded: int = 0  # rows that got a vector
    cleaned: int = 0  # rows that lost one
    without_text: int = 0  # rows with neither text nor vector
    left: int = 0  # rows whose text came or changed while the fill ran: the next one does them
    left_ids: tuple[str, ...] = ()  # the first of these

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        names = ("type", "property", "source", "dimension", "records", "selected", "asked", "reused")
        counts = ("characters", "embedded", "cleaned", "without_text", "left")
        shown = {name: getattr(self, name) for name in (*names, *counts)}
        return {**shown, "left_ids": list(self.left_ids)}


@dataclass(frozen=True, kw_only=True)
class EmbedReport:
    """What a fill did. `commit` is None when there was nothing to do, or nothing was meant to be done."""

    branch: str
    mode: str
    provider: str | None
    model: str | None
    properties: tuple[EmbeddedProperty, ...]
    commit: CommitRecord | None = None
    dry_run: bool = False
    attempts: int = 1
    warnings: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)

    @cached_property
    def embedded(self) -> int:
        """How many vectors were written."""
        return sum(part.embedded for part in self.properties)

    @property
    def commit_id(self) -> str | None:
        """The id of the commit, if one was made."""
        return None if self.commit is None else self.commit.id

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        sizes = {part.dimension for part in self.properties}
        types = {part.type: part for part in self.properties}
        return {
            "branch": self.branch,
            "mode": self.mode,
            "provider": self.provider,
            "model": self.model,
            "dimension": sizes.pop() if len(sizes) == 1 else None,
            "records": sum(part.records for part in types.values()),
            "selected_records": sum(part.selected for part in types.values()),
            "embedded_records": self.embedded,
            "cleaned_records": sum(part.cleaned for part in self.properties),
            "properties": [part.to_json() for part in self.properties],
            "commit": commit_json(self.commit),
            "dry_run": self.dry_run,
            "attempts": self.attempts,
            "warnings": list(self.warnings),
            "cost": cost_json(self.cost),
        }
