"""Codes: the stable names of what can be said about a migration.

Room    catalog. `OG-<family>-<number>`: DS destructive, MF may fail, CD constraints, BC breaks callers,
        VE vectors, ED edges. A published code keeps its meaning for good.
"""

from __future__ import annotations

from omnigraph.language.diagnostics import Rule, Severity

MIGRATION_STAGE = 9
REGISTRY: dict[str, Rule] = {}


def _code(code: str, name: str, title: str, severity: Severity = Severity.ERROR) -> Rule:
    rule = Rule(code, name, title, MIGRATION_STAGE, severity)
    REGISTRY[code] = rule
    return rule


NODE_DROPPED = _code("OG-DS-102", "node_type_dropped", "a node type is dropped", Severity.WARN)
EDGE_DROPPED = _code("OG-DS-103", "edge_type_dropped", "an edge type is dropped", Severity.WARN)
PROPERTY_DROPPED = _code("OG-DS-104", "property_dropped", "a property is dropped", Severity.WARN)

REQUIRED_ADDED = _code("OG-MF-103", "required_added", "a required property is added with nothing to fill it")
TIGHTENED = _code(
    "OG-MF-104",
    "nullable_to_required",
    "a nullable property becomes required: existing rows are validated",
    Severity.WARN,
)
TYPE_CHANGED = _code("OG-MF-106", "type_changed", "a property changes to a type that its values do not fit")
CONSTRAINT_ADDED = _code(
    "OG-MF-107",
    "constraint_added",
    "a constraint is added or tightened: existing rows are validated",
    Severity.WARN,
)
KEY_CHANGED = _code(
    "OG-MF-108", "key_changed", "the key of a node type changes, and with it the ids of its nodes"
)

ENDPOINTS_CHANGED = _code("OG-ED-101", "endpoints_changed", "an edge type joins other node types")
EMBED_CHANGED = _code(
    "OG-VE-101", "embed_changed", "the vectors of a property are cleared and need a fill", Severity.WARN
)
EMBED_ADDED = _code("OG-VE-102", "embed_added_or_removed", "`@embed` is added to or removed from a property")
INTERFACE_DROPPED = _code("OG-BC-101", "interface_dropped", "an interface is removed")
RENAMED = _code(
    "OG-BC-102", "renamed", "a type or property is renamed: queries must use the new name", Severity.INFO
)
CONSTRAINT_DROPPED = _code(
    "OG-CD-101", "constraint_dropped", "a constraint is removed or loosened", Severity.INFO
)
