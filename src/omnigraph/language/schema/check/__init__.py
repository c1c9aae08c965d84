"""Check: hold a parsed schema to the rules that need more than one declaration or property.

    text -> tree -> **checked schema** -> catalog

Interfaces and the schema as a whole (declarations.py), annotations and constraints (members.py).

The input is what parser.py could read. Declarations with a syntax error are known by name, so that a
reference to one of them is not reported as well. The result is a `CheckedSchema`, or a `SchemaError` with
every finding of the text.
"""

from __future__ import annotations

from omnigraph.base.dataclass import dataclass
from omnigraph.language.diagnostics import Diagnostic, Reporter, SchemaError, SourceText, in_order
from omnigraph.language.schema.check.declarations import ExpandedNode, check_declarations, expand
from omnigraph.language.schema.check.members import check_annotations, check_constraints
from omnigraph.language.schema.parser import ParsedSchema, parse
from omnigraph.language.schema.tree import EdgeSyntax, InterfaceSyntax, SchemaSyntax


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema that breaks no rule, its nodes expanded."""

    schema: SchemaSyntax
    nodes: tuple[ExpandedNode, ...]

    @property
    def source(self) -> SourceText:
        """The text."""
        return self.schema.source

    @property
    def interfaces(self) -> tuple[InterfaceSyntax, ...]:
        """The interfaces, in the order written."""
        return self.schema.interfaces

    @property
    def edges(self) -> tuple[EdgeSyntax, ...]:
        """The edges, in the order written."""
        return self.schema.edges


def examine(text: str | bytes, *, file: str = "schema.pg") -> tuple[CheckedSchema, tuple[Diagnostic, ...]]:
    """Parse and check, returning what could be read together with the findings."""
    parsed = parse(text, file=file)
    nodes, diagnostics = _findings(parsed)
    return CheckedSchema(parsed.schema, nodes), in_order((*parsed.diagnostics, *diagnostics))


def load(text: str | bytes, *, file: str = "schema.pg") -> CheckedSchema:
    """Parse and check a schema text, or raise `SchemaError` with everything that is wrong with it."""
    checked, diagnostics = examine(text, file=file)
    if diagnostics:
        raise SchemaError(checked.source, diagnostics)
    return checked


def _findings(parsed: ParsedSchema) -> tuple[tuple[ExpandedNode, ...], list[Diagnostic]]:
    schema = parsed.schema
    reporter = Reporter(schema.source)
    nodes = expand(schema, parsed.broken, reporter)
    check_annotations(nodes, schema.edges, reporter)
    check_constraints(nodes, schema.edges, reporter)
    check_declarations(schema, parsed.broken, reporter)
    return nodes, reporter.diagnostics
