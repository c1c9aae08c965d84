"""Rules: everything that can be wrong with a pipeline file, as a registry of stable codes.

Room    pipeline.declared. `PL0xx` is what the file alone shows, `PL1xx` what Spark says of its sources and
        transforms, `PL2xx` what the schema says of its targets, `PL3xx` advice.
Rule    a published code keeps its meaning for good; a rule that goes leaves its code unused.
"""

from __future__ import annotations

from omnigraph.language.diagnostics import Rule, Severity, SourceError
from omnigraph.language.yaml_document import YamlRules


class PipelineError(SourceError):
    """A pipeline file was refused; `diagnostics` holds every reason. Mend the file, then check it again."""

    code = "pipeline_invalid"


# -- the file alone ----------------------------------------------------------------------------------

PIPELINE_FILE = YamlRules.coded("PL", PipelineError)  # PL001 to PL005
SYNTAX, UNKNOWN_KEY, WRONG_VALUE = PIPELINE_FILE.syntax, PIPELINE_FILE.unknown_key, PIPELINE_FILE.wrong_value
MISSING, TWICE = PIPELINE_FILE.missing, PIPELINE_FILE.twice
REGISTRY = {rule.code: rule for rule in (SYNTAX, UNKNOWN_KEY, WRONG_VALUE, MISSING, TWICE)}


def _rule(code: str, name: str, title: str, severity: Severity = Severity.ERROR) -> Rule:
    if code in REGISTRY:
        raise ValueError(f"two pipeline rules have the code {code}")
    REGISTRY[code] = Rule(code, name, title, int(code[2]), severity)
    return REGISTRY[code]


BAD_NAME = _rule("PL006", "bad_name", "a name cannot be used in SQL as it stands")
UNKNOWN_NAME = _rule("PL007", "unknown_name", "a name is that of no source and no transform")
CYCLE = _rule("PL008", "cycle", "transforms need each other, so none can be first")
SAME_BRANCH = _rule("PL009", "same_branch", "a branch is to be merged into itself")

# -- sources and transforms, as Spark sees them ------------------------------------------------------

SOURCE = _rule("PL101", "unreadable_source", "Spark cannot read a source")
WATERMARK = _rule("PL102", "watermark", "the watermark is no column of the source, or has no order")
SQL = _rule("PL103", "sql", "Spark refuses an SQL text, or it is no query")
PYTHON = _rule("PL104", "python", "a Python transform cannot be found, or fails, or returns no DataFrame")
TAKEN_NAME = _rule("PL105", "taken_name", "a table of Spark's own catalog has the name")

# -- targets against the schema ----------------------------------------------------------------------

BRANCH = _rule("PL201", "unknown_branch", "a branch does not exist")
TYPE = _rule("PL202", "unknown_type", "a target names an unknown type")
COLUMN = _rule("PL203", "unknown_column", "a mapping names a column that the rows do not have")
PROPERTY = _rule("PL204", "unknown_property", "a column is no property of the type")
MISFIT = _rule("PL205", "column_type", "no value of a column's type fits the property")
REQUIRED = _rule("PL206", "required", "a required property has no column")
KEY = _rule("PL207", "key", "a property of the key has no column")
ENDS = _rule("PL208", "ends", "an edge has no column for one of its ends")
END_TYPE = _rule("PL209", "end_type", "a column cannot hold the ids of the nodes at that end")
COLUMN_TWICE = _rule("PL210", "column_twice", "two columns mean the same property")

# -- advice ------------------------------------------------------------------------------------------

NO_NODES = _rule("PL301", "no_nodes", "edges end at nodes that are neither stored nor loaded", Severity.WARN)
UNUSED = _rule("PL302", "unused", "nothing uses a source or a transform", Severity.WARN)
REPLACES = _rule(
    "PL303", "replaces", "run --since is refused: a target replaces its type by new rows only", Severity.WARN
)
