"""Rules: everything that can be wrong with a schema text, as a registry of stable codes.

The hundreds digit of a code is its stage; docs/schema.md lists the registry, and a test compares the two.

A published code keeps its meaning for good; a rule that goes leaves its number unused.
"""

from __future__ import annotations

from omnigraph.language.diagnostics import Rule, Severity

REGISTRY: dict[str, Rule] = {}

PARSE = "parse error"
CATALOG = "catalog error"


def _rule(code: str, name: str, title: str, severity: Severity = Severity.ERROR) -> Rule:
    stage = int(code[2])
    prefix = "" if severity is not Severity.ERROR else PARSE if stage <= 5 else CATALOG
    rule = Rule(code, name, title, stage, severity, prefix)
    if code in REGISTRY:
        raise ValueError(f"two schema rules have the code {code}")
    REGISTRY[code] = rule
    return rule


# -- 1: the grammar ----------------------------------------------------------------------------------

UNEXPECTED = _rule("PG101", "unexpected_text", "the text does not match the grammar")
UNTERMINATED = _rule("PG102", "unterminated", "a string or a comment is never closed")
ENCODING = _rule("PG103", "bad_encoding", "the text is not valid UTF-8")
BAD_NAME = _rule("PG104", "bad_name", "a type name starts in lower case, or a property name in upper case")
UNKNOWN_TYPE = _rule("PG105", "unknown_type", "a property has a type that does not exist")
TYPE_FORM = _rule(
    "PG106", "bad_type_form", "a type is built in a way that does not exist, such as `[String?]`"
)
MISPLACED = _rule(
    "PG107", "misplaced_clause", "an annotation, constraint or `implements` is in the wrong place"
)
ARGUMENT = _rule("PG108", "bad_argument", "the arguments of an annotation have the wrong form")

# -- 2: values ---------------------------------------------------------------------------------------

RESERVED = _rule("PG201", "reserved_name", "a property name belongs to the system")
VECTOR_DIMENSION = _rule("PG202", "vector_dimension", "a vector's dimension is not between 1 and 2147483647")
LIST_OF_BLOB = _rule("PG203", "list_of_blob", "a list of Blob")
DUPLICATE_VARIANT = _rule("PG204", "duplicate_enum_value", "an enum names a value twice")
BAD_ESCAPE = _rule("PG205", "bad_escape", 'a string uses an escape other than `\\"` `\\\\` `\\n` `\\r` `\\t`')
CARDINALITY = _rule(
    "PG206", "cardinality", "the bounds of `@card` are missing, too large or in the wrong order"
)
CONSTRAINT_NAME = _rule("PG207", "constraint_name", "a constraint's argument is not a property name")
RANGE_FORM = _rule("PG208", "range_form", "`@range` does not have the form `@range(p, low..high)`")
CHECK_FORM = _rule("PG209", "check_form", '`@check` does not have the form `@check(p, "pattern")`')

# -- 3: interfaces -----------------------------------------------------------------------------------

UNKNOWN_INTERFACE = _rule("PG301", "unknown_interface", "a node implements an interface that does not exist")
INTERFACE_TYPE = _rule(
    "PG302", "interface_type", "a node's property has another type than its interface says"
)

# -- 4: annotations ----------------------------------------------------------------------------------

RENAME_VALUE = _rule("PG401", "rename_value", "`@rename_from` lacks its one old name")
RENAME_REPEATED = _rule("PG402", "rename_repeated", "`@rename_from` is given twice")
RENAME_KEYWORDS = _rule("PG403", "rename_keywords", "`@rename_from` has keyword arguments")
ON_NODE_TYPE = _rule("PG404", "not_on_node_type", "a property annotation is on a node type")
ON_EDGE_TYPE = _rule("PG405", "not_on_edge_type", "a property annotation is on an edge type")
TEXT_MISSING = _rule("PG406", "text_missing", "`@description` or `@instruction` has no text")
TEXT_REPEATED = _rule("PG407", "text_repeated", "`@description` or `@instruction` is given twice")
INSTRUCTION = _rule("PG408", "instruction_on_property", "`@instruction` is on a property")
ON_LIST = _rule("PG409", "not_on_list", "an inline annotation does not work on a list")
ON_VECTOR = _rule("PG410", "not_on_vector", "an inline annotation does not work on a vector")
ON_BLOB = _rule("PG411", "not_on_blob", "an inline annotation does not work on a Blob")
ON_EDGE_PROPERTY = _rule("PG412", "not_on_edge_property", "`@key` or `@embed` is on an edge's property")
REPEATED = _rule("PG413", "annotation_repeated", "an inline annotation is given twice")
EMBED_TYPE = _rule("PG414", "embed_needs_vector", "`@embed` is on a property that is not a vector")
EMBED_SOURCE = _rule("PG415", "embed_source", "the source of `@embed` is missing, unknown or not a String")
EMBED_ARGUMENT = _rule("PG416", "embed_argument", "`@embed` has a keyword argument other than `model`")
DEFAULT_FORM = _rule("PG417", "default_form", "`@default` is misplaced, given twice, or lacks its one value")
DEFAULT_VALUE = _rule("PG418", "default_value", "the value of `@default` does not fit the property's type")

# -- 5: constraints ----------------------------------------------------------------------------------

ON_EDGE_BODY = _rule("PG501", "not_on_edges", "`@range` or `@check` is in the body of an edge")
MULTIPLE_KEYS = _rule("PG502", "multiple_keys", "a node or an edge has more than one key")
UNKNOWN_PROPERTY = _rule("PG503", "unknown_property", "a constraint names a property that does not exist")
KEY_NULLABLE = _rule("PG504", "key_nullable", "a member of the key is nullable")
KEY_TYPE = _rule("PG505", "key_type", "a member of the key is a list, a vector or a Blob")
COLUMNS_TYPE = _rule("PG506", "unique_or_index_type", "`@unique` or `@index` does not work on the type")
RANGE_TYPE = _rule("PG507", "range_type", "`@range` is on a property that is not a number")
CHECK_TYPE = _rule("PG508", "check_type", "`@check` is on a property that is not a String")
RANGE_BOUNDS = _rule("PG509", "range_bounds", "the bounds of `@range` are in the wrong order or not finite")
PATTERN = _rule("PG510", "bad_pattern", "the pattern of `@check` is not a regular expression of RE2")
EDGE_KEY = _rule("PG511", "edge_key_without_ends", "the key of an edge lacks `src` or `dst`")

# -- 6: the schema as a whole ------------------------------------------------------------------------

DUPLICATE_TYPE = _rule("PG601", "duplicate_type", "two declarations of one kind have the same name")
DUPLICATE_PROPERTY = _rule("PG602", "duplicate_property", "a declaration names a property twice")
ENDPOINT = _rule("PG603", "unknown_endpoint", "an edge joins something that is not a node type")
EDGE_COLLISION = _rule("PG604", "edge_name_collision", "two edge names are equal ignoring case")
INCOMPATIBLE = _rule("PG605", "incompatible_interfaces", "interfaces disagree about a property of a node")

# -- 7: identity, against the accepted schema --------------------------------------------------------

RENAME_UNKNOWN = _rule("PG701", "rename_unknown", "`@rename_from` names no accepted declaration")
RENAME_KIND = _rule("PG702", "rename_across_kinds", "`@rename_from` names a declaration of another kind")
RENAME_PROPERTY = _rule("PG703", "rename_property_unknown", "`@rename_from` names no property of this type")
RENAME_MOVE = _rule("PG704", "rename_property_moves", "`@rename_from` names a property of another type")
RENAME_NEW_TYPE = _rule("PG705", "rename_on_new_type", "`@rename_from` is on a property of a new type")
RENAME_TWICE = _rule("PG706", "rename_consumed_twice", "two declarations claim one accepted identity")

# -- 8: advice ---------------------------------------------------------------------------------------

IGNORED_HINT = _rule(
    "PG801",
    "ignored_exact_match_rename_hint",
    "the rename was done before; the hint may go",
    Severity.INFO,
)
INERT_HINT = _rule(
    "PG802",
    "inert_initialization_rename_hint",
    "there is nothing that the hint could rename",
    Severity.INFO,
)
NEAR_MISS = _rule(
    "PG803",
    "annotation_near_miss",
    "an unknown annotation is spelt almost like a known one, and does nothing",
    Severity.WARN,
)
BARE_CONSTRAINT = _rule(
    "PG804",
    "constraint_without_arguments",
    "`@range` or `@check` without arguments does nothing",
    Severity.WARN,
)
KEYLESS = _rule(
    "PG805",
    "node_without_key",
    "a node without a key gets a new id on every load that gives none",
    Severity.INFO,
)
UNUSED_INTERFACE = _rule("PG806", "unused_interface", "no node implements the interface", Severity.INFO)
UNANCHORED = _rule(
    "PG807", "unanchored_pattern", "a `@check` pattern without anchors matches anywhere", Severity.INFO
)
REDUNDANT_INDEX = _rule("PG808", "redundant_index", "a key is indexed already", Severity.INFO)
