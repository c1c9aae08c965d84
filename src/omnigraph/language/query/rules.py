"""Rules: everything that can be wrong with a query text, as a registry of stable codes.

`Q000` is the grammar, `Q1xx` what the text alone shows, `T1` to `T24` and `Q2xx` what only the schema
shows, `L2xx` advice. The checker that needs a schema is catalog.query.

A published code keeps its meaning for good; a rule that goes leaves its code unused.
"""

from __future__ import annotations

from omnigraph.language.diagnostics import Rule, Severity

REGISTRY: dict[str, Rule] = {}

PARSE = "parse error"
TYPE = "type error"


def _rule(
    code: str, name: str, title: str, stage: int, prefix: str, severity: Severity = Severity.ERROR
) -> Rule:
    rule = Rule(code, name, title, stage, severity, prefix)
    if code in REGISTRY:
        raise ValueError(f"two query rules have the code {code}")
    REGISTRY[code] = rule
    return rule


def _text(code: str, name: str, title: str) -> Rule:
    return _rule(code, name, title, 1 if code == "Q000" else 2, PARSE)


def _typed(code: str, name: str, title: str) -> Rule:
    return _rule(code, name, title, 3, f"{TYPE}: {code}" if code.startswith("T") else TYPE)


# -- the text alone ----------------------------------------------------------------------------------

SYNTAX = _text("Q000", "syntax", "the text does not match the grammar")
DUPLICATE_QUERY = _text("Q101", "duplicate_query", "two queries of a file have the same name")
PARAMETER_TYPE = _text("Q102", "unknown_parameter_type", "a parameter has a type that does not exist")
DUPLICATE_PARAMETER = _text("Q103", "duplicate_parameter", "two parameters have the same name")
RESERVED_PARAMETER = _text("Q104", "reserved_parameter", "the name of a parameter belongs to the system")
ANNOTATION = _text("Q105", "unknown_annotation", "an annotation other than `@description`, `@instruction`")
DUPLICATE_ANNOTATION = _text("Q106", "duplicate_annotation", "an annotation is given twice")
NESTED_LIST = _text("Q107", "nested_list", "a list literal is inside another")
MIXED_LIST = _text("Q108", "mixed_list", "the elements of a list literal have different types")
BAD_DATE = _text("Q109", "bad_date", "the text of `date(...)` or `datetime(...)` is not one")

# -- the text against a schema -----------------------------------------------------------------------

UNKNOWN_NODE = _typed("T1", "unknown_node_type", "a binding names an unknown node type")
UNKNOWN_ENTRY = _typed("T2", "unknown_entry", "a binding entry names an unknown property")
MISFIT = _typed("T3", "literal_misfit", "a literal does not fit the property")
UNKNOWN_EDGE = _typed("T4", "unknown_edge", "a traversal names an unknown edge type")
ENDPOINT = _typed("T5", "endpoint_type", "an endpoint has a type that the edge does not connect")
UNKNOWN_PROPERTY = _typed("T6", "unknown_property", "a property of an unbound variable, or an unknown one")
INCOMPATIBLE = _typed("T7", "incompatible_types", "values that cannot be compared or assigned")
AGGREGATE = _typed("T8", "aggregate_argument", "an aggregate does not work on its argument")
GROUPING = _typed("T9", "grouping", "a block without an outer variable, or an output that cannot be grouped")
UNKNOWN_TARGET = _typed("T10", "unknown_target", "a mutation's target is neither a node nor an edge type")
UNKNOWN_ASSIGNED = _typed("T11", "unknown_assigned", "an assignment or `where` names an unknown property")
REQUIRED = _typed("T12", "required", "an insert lacks a required property, `from` or `to`")
ASSIGNED_TWICE = _typed("T13", "assigned_twice", "a property is assigned twice")
UNDECLARED = _typed("T14", "undeclared_parameter", "a variable where only a declared parameter may stand")
BOUNDS = _typed("T15", "bounds_or_nearest", "hop bounds, or the arguments of `nearest`, are wrong")
EDGE_UPDATE = _typed("T16", "edge_endpoint_update", "an update moves the endpoints of an edge")
NEAREST_LIMIT = _typed("T17", "nearest_without_limit", "ordering by `nearest` without `limit`")
NEAREST_ALIAS = _typed("T18", "nearest_with_alias", "ordering by `nearest` together with an alias")
SEARCH = _typed("T19", "search_arguments", "the arguments of `search` or `fuzzy` are wrong")
MATCH_TEXT = _typed("T20", "match_text_arguments", "the arguments of `match_text` or `bm25` are wrong")
RRF = _typed("T21", "rrf", "`rrf` without `limit`, or with wrong arguments")
UNDIRECTED = _typed("T22", "undirected", "an undirected traversal over an edge of two different types")
EDGE_BINDING = _typed("T23", "edge_binding", "an edge variable is bound or used in a way it cannot be")
BLOB = _typed("T24", "blob", "a Blob is used in a read")

UNBOUND = _typed("Q201", "unbound_variable", "a variable is not bound")
REBOUND = _typed("Q202", "already_bound", "a variable is bound again to another type")
PARAMETER_BOUND = _typed("Q203", "parameter_bound", "a parameter is used as a variable of the match")
DUPLICATE_COLUMN = _typed("Q204", "duplicate_column", "two outputs have the same column name")
UNKNOWN_ALIAS = _typed("Q205", "unknown_alias", "a name is no alias of the return")
SORT_KEY = _typed("Q206", "sort_key", "rows cannot be ordered by this")
KEY_UPDATE = _typed("Q207", "key_update", "an update assigns a member of the key")
MIXED_MUTATION = _typed("Q208", "mixed_mutation", "a mutation mixes inserts or updates with deletes")
PAGE = _typed("Q209", "page_parameter", "`limit` or `offset` takes a required integer parameter")

# -- advice ------------------------------------------------------------------------------------------

NEVER_SET = _rule(
    "L201", "never_set", "a property of an updated type is set by no update", 4, "", Severity.WARN
)
