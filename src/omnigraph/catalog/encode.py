"""Encode: types and properties as JSON values, in two forms.

The stored form keeps everything; the canonical form has names for ids and no columns, and says the same for
two schemas that mean the same. catalog.py puts the parts together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omnigraph.catalog.model import (
    Annotation,
    AnyType,
    Cardinality,
    Constraint,
    EdgeType,
    Embed,
    InterfaceProperty,
    InterfaceType,
    NodeType,
    Property,
    TableType,
    card_json,
    constraint_from_json,
    constraint_json,
)
from omnigraph.catalog.types import PropertyType
from omnigraph.language.literals import NOW, DefaultNow, DefaultValue

Json = dict[str, Any]


def dumps(value: Any) -> bytes:
    """Write JSON in the one spelling that equal values share."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8")


def in_stored_order(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Return constraints in the order in which a type keeps them."""
    return tuple(sorted(constraints, key=lambda c: dumps(constraint_json(c, str))))


# -- stored form -------------------------------------------------------------------------------------


def node(declared: NodeType) -> Json:
    """Return a node type as plain JSON values."""
    return {**_table(declared), "key": list(declared.key), "implements": list(declared.implements)}


def edge(declared: EdgeType) -> Json:
    """Return an edge type as plain JSON values."""
    ends = {"source": declared.source, "target": declared.target}
    return {**_table(declared), **ends, "card": card_json(declared.card), **_edge_key(declared.key)}


def _edge_key(key: Sequence[str]) -> Json:
    """Return the key of an edge type; most have none, and say nothing of it."""
    return {"key": list(key)} if key else {}


def interface(declared: InterfaceType) -> Json:
    """Return an interface as plain JSON values."""
    properties = [
        {
            "id": p.id,
            "name": p.name,
            "type": p.type.to_json(),
            "annotations": [a.to_json() for a in p.annotations],
        }
        for p in declared.properties
    ]
    return {"id": declared.id, "name": declared.name, "properties": properties, **_aliases(declared)}


def _aliases(declared: AnyType | Property) -> Json:
    """Return the ids that merges unified with this one; most have none, and say nothing of it."""
    return {"aliases": list(declared.aliases)} if declared.aliases else {}


def _table(declared: TableType) -> Json:
    return {
        "id": declared.id,
        "name": declared.name,
        "annotations": [a.to_json() for a in declared.annotations],
        "properties": [_property(p) for p in declared.properties],
        "constraints": [constraint_json(c, lambda identity: identity) for c in declared.constraints],
        "retired_columns": list(declared.retired_columns),
        **_aliases(declared),
    }


def _property(declared: Property) -> Json:
    embed = declared.embed
    return {
        "id": declared.id,
        "name": declared.name,
        "column": declared.column,
        "type": declared.type.to_json(),
        "annotations": [a.to_json() for a in declared.annotations],
        "default": default_json(declared.default),
        "embed": None if embed is None else {"source": embed.source, "model": embed.model},
        **_aliases(declared),
    }


def default_json(default: DefaultValue | None) -> Json | None:
    """Return a default as plain JSON values."""
    if default is None:
        return None
    return {"now": True} if isinstance(default, DefaultNow) else {"value": default}


def _read_annotations(value: list[Json]) -> tuple[Annotation, ...]:
    return tuple(Annotation(a["name"], a["value"], tuple(sorted(a["arguments"].items()))) for a in value)


def read_interface(value: Json) -> InterfaceType:
    """Read what `interface` wrote."""
    properties = tuple(
        InterfaceProperty(
            p["id"], p["name"], PropertyType.from_json(p["type"]), _read_annotations(p["annotations"])
        )
        for p in value["properties"]
    )
    aliases = tuple(value.get("aliases", ()))
    return InterfaceType(id=value["id"], name=value["name"], properties=properties, aliases=aliases)


def read_node(value: Json) -> NodeType:
    """Read what `node` wrote."""
    return NodeType(**_read_table(value), key=tuple(value["key"]), implements=tuple(value["implements"]))


def read_edge(value: Json) -> EdgeType:
    """Read what `edge` wrote."""
    card = Cardinality(value["card"]["min"], value["card"]["max"])
    key = tuple(value.get("key", ()))
    return EdgeType(**_read_table(value), source=value["source"], target=value["target"], card=card, key=key)


def _read_table(value: Json) -> Json:
    return {
        "id": value["id"],
        "name": value["name"],
        "annotations": _read_annotations(value["annotations"]),
        "properties": tuple(_read_property(p) for p in value["properties"]),
        "constraints": tuple(constraint_from_json(c) for c in value["constraints"]),
        "retired_columns": tuple(value["retired_columns"]),
        "aliases": tuple(value.get("aliases", ())),
    }


def _read_property(value: Json) -> Property:
    stored_type = PropertyType.from_json(value["type"])
    default, embed = value["default"], value["embed"]
    return Property(
        value["id"],
        value["name"],
        value["column"],
        stored_type,
        _read_annotations(value["annotations"]),
        None if default is None else NOW if "now" in default else default["value"],
        None if embed is None else Embed(embed["source"], embed["model"]),
        tuple(value.get("aliases", ())),
    )


# -- canonical form ----------------------------------------------------------------------------------


def canonical_interface(declared: InterfaceType) -> Json:
    """Return an interface without identities."""
    properties = [_canonical_interface_property(p) for p in declared.properties]
    return {"name": declared.name, "properties": properties}


def canonical_node(declared: NodeType, names: Mapping[str, str]) -> Json:
    """Return a node type without identities; `names` are those of the types."""
    key = sorted(declared.name_of(p) for p in declared.key)
    implements = sorted(names[i] for i in declared.implements)
    return {**_canonical_table(declared), "key": key, "implements": implements}


def canonical_edge(declared: EdgeType, names: Mapping[str, str]) -> Json:
    """Return an edge type without identities; `names` are those of the types."""
    ends = {"source": names[declared.source], "target": names[declared.target]}
    key = _edge_key(declared.key_names)
    return {**_canonical_table(declared), **ends, "card": card_json(declared.card), **key}


def _canonical_interface_property(declared: InterfaceProperty) -> Json:
    return {
        "name": declared.name,
        "type": declared.type.to_json(),
        "annotations": [a.to_json() for a in declared.annotations],
    }


def _canonical_table(declared: TableType) -> Json:
    constraints = [constraint_json(c, declared.name_of) for c in declared.constraints]
    return {
        "name": declared.name,
        "annotations": [a.to_json() for a in declared.annotations],
        "properties": [_canonical_property(p, declared) for p in declared.properties],
        "constraints": sorted(constraints, key=dumps),
    }


def _canonical_property(declared: Property, owner: TableType) -> Json:
    value = _property(declared)
    embed = declared.embed
    if embed is not None:
        value["embed"] = {"source": owner.name_of(embed.source), "model": embed.model}
    return {key: part for key, part in value.items() if key not in ("id", "column", "aliases")}
