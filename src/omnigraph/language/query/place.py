"""Place: positions and findings while the parse tree of one query becomes values.

Room    language.query, under build.py and expressions.py.
Rule    `report` notes a fault and the building goes on; raising `refused(...)` gives the query up.
"""

from __future__ import annotations

from omnigraph.base.frozen import FrozenRecord
from omnigraph.language.diagnostics import Reporter, Rule, Span
from omnigraph.language.lalr import Child, ParseTree, word_text
from omnigraph.language.query import rules
from omnigraph.language.schema.tree import Ident


class Unbuildable(Exception):
    """The query cannot be built; the reason was reported."""


class BuildContext(FrozenRecord):
    """One piece of a text; `offset` is where it starts."""

    reporter: Reporter
    offset: int

    def span(self, first: Child, last: Child | None = None) -> Span:
        """Return the span of a child, or from one child to another."""
        end = (last or first).end
        return self.reporter.source.span(self.offset + first.start, self.offset + end)

    def report(self, rule: Rule, message: str, span: Span, suggestion: str | None = None) -> None:
        """Note a fault."""
        self.reporter.report(rule, message, span, suggestion)

    def refused(self, message: str, span: Span, suggestion: str | None = None) -> Unbuildable:
        """Note a fault of form, and return what the caller raises to give the query up."""
        self.report(rules.SYNTAX, message, span, suggestion)
        return Unbuildable()

    def name(self, word: Child, what: str) -> Ident:
        """Return a name that must start in lower case."""
        name = Ident(word_text(word), self.span(word))
        if "A" <= name.text[0] <= "Z":
            message = f"{what} starts with a lower-case letter or '_': {name.text!r}"
            self.report(rules.SYNTAX, message, name.span, f"write {name.text[0].lower() + name.text[1:]!r}")
        return name

    def type_name(self, word: ParseTree) -> Ident:
        """Return a name that must start in upper case."""
        name = Ident(word_text(word), self.span(word))
        if not "A" <= name.text[0] <= "Z":
            proper = name.text[0].upper() + name.text[1:]
            message = f"a type name starts with an upper-case letter: {name.text!r}"
            self.report(
                rules.SYNTAX, message, name.span, f"write {proper!r}" if proper != name.text else None
            )
        return name
