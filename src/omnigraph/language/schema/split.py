"""Split: cut a schema text into its declarations before any of them is parsed.

    **text -> pieces** -> tree -> checked schema -> catalog

Room    language.schema. This is the error recovery: a mistake inside one declaration stays there, and
        the others are still parsed and checked.
Rule    cutting a valid text never cuts a declaration in two: `node`, `edge` or `interface` followed by a
        type name occurs nowhere inside one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.base.frozen import FrozenRecord

KEYWORDS = frozenset({"interface", "node", "edge"})

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n]+|//[^\n]*|/\*[\s\S]*?\*/)
      | (?P<string>"(?:[^"\\]|\\[\s\S])*")
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<other>[\s\S])""",
    re.VERBOSE,
)


class DefinitionText(FrozenRecord):
    """The text of one declaration, `[start, end)`, and what its first words say that it declares."""

    start: int
    end: int
    kind: str | None = None
    name: str | None = None


@dataclass(slots=True)
class _Cutter:
    start: int | None = None
    end: int = 0
    depth: int = 0  # open brackets of any sort
    words: tuple[str, ...] = ()  # the first two words of the piece

    def cut(self) -> Iterator[DefinitionText]:
        if self.start is not None:
            kind, name = (*self.words, "", "")[:2]
            known = kind in KEYWORDS
            yield DefinitionText(
                self.start, self.end, kind if known else None, name if known and name else None
            )
        self.start, self.depth, self.words = None, 0, ()


def split(text: str) -> Iterator[DefinitionText]:
    """Yield the pieces of the text in order; comments and space between them belong to none.

    >>> [text[p.start : p.end] for text in ["node A {} edge E: A -> A"] for p in split(text)]
    ['node A {}', 'edge E: A -> A']
    """
    tokens = [m for m in _TOKEN.finditer(text) if m.lastgroup != "skip"]
    cutter = _Cutter()
    before = ""
    for position, token in enumerate(tokens):
        word = token.group()
        after = tokens[position + 1].group() if position + 1 < len(tokens) else ""
        if word in KEYWORDS and _starts_declaration(cutter.depth, before, after):
            yield from cutter.cut()
        if cutter.start is None:
            cutter.start = token.start()
        cutter.end = token.end()
        if token.lastgroup == "word" and len(cutter.words) < 2:
            cutter.words += (word,)
        if word in ("{", "(", "["):
            cutter.depth += 1
        elif word in ("}", ")", "]"):
            cutter.depth -= 1
            if word == "}" and cutter.depth <= 0:
                yield from cutter.cut()
        before = word
    yield from cutter.cut()


def _starts_declaration(depth: int, before: str, after: str) -> bool:
    """Inside brackets a keyword is a name, unless a type name follows: then a bracket was left open."""
    if before == "@":
        return False
    return depth <= 0 or ("A" <= after[:1] <= "Z")
