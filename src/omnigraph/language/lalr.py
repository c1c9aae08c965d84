"""LALR: the parser of both languages: runs tables that were made from a grammar beforehand.

    **text -> tokens -> parse tree** -> tree

Knows no grammar. `scripts/parse_tables` makes `tables.json` beside each grammar with Lark, so that a
process neither imports Lark nor works the tables out: that took longer than a small query. `Parser.parse`
returns a `ParseTree` of tokens, or raises `SyntaxMismatch` with what the grammar expected there.

The lexer is contextual: at each place it looks only for the terminals that the parser can go on with, in
the order of the table, and the first that matches wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

END = "$END"


class Token:
    """A terminal as it stands in the text, `[start, end)`."""

    __slots__ = ("end", "start", "text", "type")

    def __init__(self, type: str, text: str, start: int, end: int) -> None:
        self.type = type
        self.text = text
        self.start = start
        self.end = end


class ParseTree:
    """What one rule of the grammar matched.

    A rule that the grammar inlines leaves only its child behind. The brackets that it matched around the
    child count as part of whatever the child becomes part of: `outer_start` and `outer_end`.
    """

    __slots__ = ("children", "end", "outer_end", "outer_start", "rule", "start")

    def __init__(self, rule: str, children: list[Child], start: int, end: int) -> None:
        self.rule = rule
        self.children = children
        self.start = self.outer_start = start
        self.end = self.outer_end = end


Child: TypeAlias = Token | ParseTree


class SyntaxMismatch(Exception):
    """The text does not match the grammar at `token`, or at `position` where no token could be read."""

    def __init__(self, position: int, token: Token | None, expected: set[str]) -> None:
        super().__init__(position, token, expected)
        self.position = position
        self.token = token
        self.expected = expected


# -- reading a parse tree ----------------------------------------------------------------------------


def subtree(child: Child) -> ParseTree:
    """Return the child, which the grammar says is a rule."""
    if not isinstance(child, ParseTree):
        raise TypeError(f"the grammar gave {child.type} where a rule was expected")
    return child


def subtrees(parent: ParseTree, *rules: str) -> list[ParseTree]:
    """Return the children made by some rules."""
    return [c for c in parent.children if isinstance(c, ParseTree) and c.rule in rules]


def first_subtree(parent: ParseTree, *rules: str) -> ParseTree:
    """Return the first child made by some rules, which the grammar says is there."""
    return subtrees(parent, *rules)[0]


def optional_subtree(parent: ParseTree, rule: str) -> ParseTree | None:
    """Return the first child made by a rule, or None."""
    return next(iter(subtrees(parent, rule)), None)


def tokens(parent: ParseTree, *terminals: str) -> list[Token]:
    """Return the children that are some terminals."""
    return [c for c in parent.children if isinstance(c, Token) and c.type in terminals]


def word_text(word: Child) -> str:
    """Return the text of a token, or of a rule that is one token."""
    while isinstance(word, ParseTree):
        word = word.children[0]
    return word.text


# -- tables ------------------------------------------------------------------------------------------


class _Terminal:
    """A terminal of the grammar; its pattern is compiled when a text first needs it."""

    def __init__(self, name: str, pattern: str, first: str | None, ignored: bool) -> None:
        self.name = name
        self.first = first  # the characters that it can start with; None for any
        self.ignored = ignored
        self._pattern = pattern

    @cached_property
    def match(self) -> Callable[[str, int], re.Match[str] | None]:
        return re.compile(self._pattern).match


class _Reduction:
    """What becomes of the values on the stack when a rule is complete."""

    __slots__ = ("collapses", "kept", "origin", "rule", "size")

    def __init__(self, origin: str, size: int, rule: str, collapses: bool, kept: list[list[int]]) -> None:
        self.origin = origin
        self.size = size
        self.rule = rule
        self.collapses = collapses  # a single child stands for the rule
        self.kept = kept  # (index of the value, whether its children take its place)

    def build(self, values: list[Child]) -> Child:
        children: list[Child] = []
        for index, inlined in self.kept:
            value = values[index]
            if not inlined or not isinstance(value, ParseTree):
                children.append(value)
            elif children:
                children += value.children
            else:  # the tree goes away, so its list is taken over: copies would make long lists quadratic
                children = value.children
        start, end = _start(values[0]), _end(values[-1])
        if not self.collapses or len(children) != 1:
            return ParseTree(self.rule, children, start, end)
        child = children[0]
        if isinstance(child, ParseTree):
            child.outer_start, child.outer_end = start, end
        return child


def _start(value: Child) -> int:
    return value.start if isinstance(value, Token) else value.outer_start


def _end(value: Child) -> int:
    return value.end if isinstance(value, Token) else value.outer_end


class _State:
    """One state: where each symbol leads, and which rule is complete before which terminal."""

    __slots__ = ("candidates", "goto", "reduce")

    def __init__(self, row: str, terminals: list[_Terminal], reductions: list[_Reduction]) -> None:
        shifts, *reduces = row.split(";")
        symbols = shifts.split()
        self.goto = dict(zip(symbols[::2], map(int, symbols[1::2]), strict=True))
        self.reduce: dict[str, _Reduction] = {}
        for reduce in reduces:
            number, *before = reduce.split()
            self.reduce |= dict.fromkeys(before, reductions[int(number)])
        self.candidates = [t for t in terminals if t.ignored or t.name in self.goto or t.name in self.reduce]

    def terminals(self) -> Iterator[str]:
        yield from (symbol for symbol in self.goto if symbol.isupper())
        yield from self.reduce


class Parser:
    """Runs the tables of one grammar. A state is read from its row when a text first reaches it."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self._terminals = [_Terminal(*terminal) for terminal in tables["terminals"]]
        self._reductions = [_Reduction(*reduction) for reduction in tables["reductions"]]
        self._rows: list[str] = tables["states"]
        self._states: dict[int, _State] = {}
        self._final: int = tables["final"]

    @classmethod
    def from_file(cls, path: Path) -> Parser:
        """Return a parser for the tables of a file."""
        return cls(json.loads(path.read_text("utf-8")))

    def parse(self, text: str) -> ParseTree:
        """Return the parse tree of a whole text, or raise `SyntaxMismatch`."""
        stack = [0]
        values: list[Child] = []
        position = 0
        while True:
            token = self._next_token(text, position, stack)
            while (next_state := self._state(stack[-1]).goto.get(token.type)) is None:
                reduction = self._state(stack[-1]).reduce.get(token.type)
                if reduction is None:
                    raise SyntaxMismatch(token.start, token, self._accepted(stack))
                tree = reduction.build(values[-reduction.size :])
                del stack[-reduction.size :], values[-reduction.size :]
                stack.append(self._state(stack[-1]).goto[reduction.origin])
                values.append(tree)
                if token.type == END and stack[-1] == self._final:
                    return subtree(tree)
            stack.append(next_state)
            values.append(token)
            position = token.end

    def _state(self, number: int) -> _State:
        state = self._states.get(number)
        if state is None:
            state = self._states[number] = _State(self._rows[number], self._terminals, self._reductions)
        return state

    def _next_token(self, text: str, position: int, stack: list[int]) -> Token:
        state = self._state(stack[-1])
        while position < len(text):
            terminal, end = _scan(text, position, state.candidates)
            if terminal is None:
                raise self._unknown(text, position, stack)
            if not terminal.ignored:
                return Token(terminal.name, text[position:end], position, end)
            position = end
        return Token(END, "", position, position)

    def _unknown(self, text: str, position: int, stack: list[int]) -> SyntaxMismatch:
        """Name what stands there if it is a token elsewhere in the grammar, which says more than a letter."""
        terminal, end = _scan(text, position, self._terminals)
        if terminal is None or terminal.ignored:
            return SyntaxMismatch(position, None, self._accepted(stack))
        token = Token(terminal.name, text[position:end], position, end)
        return SyntaxMismatch(position, token, self._accepted(stack))

    def _accepted(self, stack: list[int]) -> set[str]:
        """Return the terminals that can really follow; a state alone also lists some of other contexts."""
        here = set(self._state(stack[-1]).terminals())
        return {terminal for terminal in here if self._accepts(terminal, list(stack))} or here

    def _accepts(self, terminal: str, stack: list[int]) -> bool:
        while True:
            state = self._state(stack[-1])
            if terminal in state.goto:
                return True
            reduction = state.reduce.get(terminal)
            if reduction is None:
                return False
            del stack[-reduction.size :]
            stack.append(self._state(stack[-1]).goto[reduction.origin])
            if terminal == END and stack[-1] == self._final:
                return True


def _scan(text: str, position: int, candidates: list[_Terminal]) -> tuple[_Terminal | None, int]:
    character = text[position]
    for terminal in candidates:
        if terminal.first is None or character in terminal.first:
            matched = terminal.match(text, position)
            if matched is not None:
                return terminal, matched.end()
    return None, position
