"""Place: positions and findings while the parse tree of one query becomes values.

Room    language.query, under build.py and expressions.py.
Rule    `report` notes a fault and the building goes on; raising `refused(...)` gives the query up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lark import Token, Tree

from omnigraph.language.diagnostics import Reporter, Rule, Span
from omnigraph.language.query import rules
from omnigraph.language.schema.tree import Ident

Parsed: TypeAlias = Tree[Token]
Child: TypeAlias = Token | Tree[Token]


class Broken(Exception):
    """The query cannot be built; the reason was reported."""


@dataclass(frozen=True, slots=True)
class Place:
    """One piece of a text; `offset` is where it starts."""

    reporter: Reporter
    offset: int

    def span(self, first: Child, last: Child | None = None) -> Span:
        """Return the span of a child, or from one child to another."""
        start = _edges(first)[0]
        end = _edges(first if last is None else last)[1]
        return self.reporter.source.span(self.offset + start, self.offset + end)

    def report(self, rule: Rule, message: str, span: Span, suggestion: str | None = None) -> None:
        """Note a fault."""
        self.reporter.report(rule, message, span, suggestion)

    def refused(self, message: str, span: Span, suggestion: str | None = None) -> Broken:
        """Note a fault of form, and return what the caller raises to give the query up."""
        self.report(rules.SYNTAX, message, span, suggestion)
        return Broken()

    def name(self, word: Child, what: str) -> Ident:
        """Return a name that must start in lower case."""
        name = Ident(str(word if isinstance(word, Token) else word.children[0]), self.span(word))
        if "A" <= name.text[0] <= "Z":
            message = f"{what} starts with a lower-case letter or '_': {name.text!r}"
            self.report(rules.SYNTAX, message, name.span, f"write {name.text[0].lower() + name.text[1:]!r}")
        return name

    def type_name(self, word: Parsed) -> Ident:
        """Return a name that must start in upper case."""
        name = Ident(str(word.children[0]), self.span(word))
        if not "A" <= name.text[0] <= "Z":
            proper = name.text[0].upper() + name.text[1:]
            message = f"a type name starts with an upper-case letter: {name.text!r}"
            self.report(
                rules.SYNTAX, message, name.span, f"write {proper!r}" if proper != name.text else None
            )
        return name


def _edges(child: Child) -> tuple[int, int]:
    if isinstance(child, Tree):
        return child.meta.start_pos, child.meta.end_pos
    return child.start_pos or 0, child.end_pos or 0


def tree(child: Child) -> Parsed:
    """Return the child, which the grammar says is a rule."""
    if not isinstance(child, Tree):
        raise TypeError(f"the grammar gave a token where a rule was expected: {child!r}")
    return child


def trees(parent: Parsed, *names: str) -> list[Parsed]:
    """Return the children made by some rules."""
    return [c for c in parent.children if isinstance(c, Tree) and c.data in names]


def optional(parent: Parsed, name: str) -> Parsed | None:
    """Return the child made by a rule, or None."""
    return next(iter(trees(parent, name)), None)


def tokens(parent: Parsed, *terminals: str) -> list[Token]:
    """Return the children that are some terminals."""
    return [c for c in parent.children if isinstance(c, Token) and c.type in terminals]
