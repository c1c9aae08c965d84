"""Split: cut a query text into its queries before any of them is parsed.

    **text -> pieces** -> tree -> checked query

Room    language.query. This is the error recovery: a mistake inside one query stays there, and the others
        are still parsed and checked.
Rule    cutting a valid text never cuts a query in two: inside brackets, `query name ($x:` and
        `query name ()` occur in no query (`query now()`, an alias and a call, is let be).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omnigraph.base.frozen import FrozenRecord

# What is never closed goes on to the end, so that no text is scanned more than twice.
_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n]+|//[^\n]*|/\*[\s\S]*?\*/)
      | (?P<string>"(?:[^"\\]|\\[\s\S])*")
      | (?P<word>\$?[A-Za-z_][A-Za-z0-9_]*)
      | (?P<other>/\*[\s\S]*|"[\s\S]*|[\s\S])""",
    re.VERBOSE,
)
MAX_DEPTH = 48  # of brackets; nobody nests deeper by hand, and a tree of that depth is safe to walk


class DefinitionText(FrozenRecord):
    """The text of one query, `[start, end)`; `too_deep` is where its brackets nest too deeply."""

    start: int
    end: int
    too_deep: int | None = None


@dataclass(slots=True)
class _Cutter:
    start: int | None = None
    end: int = 0
    depth: int = 0  # open brackets of any sort
    too_deep: int | None = None

    def cut(self) -> Iterator[DefinitionText]:
        if self.start is not None:
            yield DefinitionText(self.start, self.end, self.too_deep)
        self.start, self.depth, self.too_deep = None, 0, None


def split(text: str) -> Iterator[DefinitionText]:
    """Yield the pieces of the text in order; comments and space between them belong to none.

    >>> text = "query a() { } query b($x: I32) { }"
    >>> [text[p.start : p.end] for p in split(text)]
    ['query a() { }', 'query b($x: I32) { }']
    """
    tokens = [m for m in _TOKEN.finditer(text) if m.lastgroup != "skip"]
    cutter = _Cutter()
    for position, token in enumerate(tokens):
        word = token.group()
        if word == "query" and _starts_query(tokens, position, cutter.depth):
            yield from cutter.cut()
        if cutter.start is None:
            cutter.start = token.start()
        cutter.end = token.end()
        if word in ("{", "(", "["):
            cutter.depth += 1
            if cutter.depth > MAX_DEPTH and cutter.too_deep is None:
                cutter.too_deep = token.start()
        elif word in ("}", ")", "]"):
            cutter.depth -= 1
            if word == "}" and cutter.depth <= 0:
                yield from cutter.cut()
    yield from cutter.cut()


def _starts_query(tokens: Sequence[re.Match[str]], position: int, depth: int) -> bool:
    """Inside brackets a query starts only where its whole head says so: then a bracket was left open."""
    before = tokens[position - 1].group() if position else ""
    name, opened, inner, colon = ([t.group() for t in tokens[position + 1 : position + 5]] + [""] * 4)[:4]
    if depth <= 0:
        return before != "query" or opened == "("  # `query query()` is a query named query
    if opened != "(" or not name.isidentifier():
        return False
    return (inner.startswith("$") and colon == ":") or (inner == ")" and name != "now")
