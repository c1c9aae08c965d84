"""Make the parse tables that the package ships, from the grammars of both languages.

    python scripts/parse_tables.py          # after a change of a grammar

Lark works the tables out; `omnigraph.language.lalr` runs them without it. States and rules are numbered in
the order in which they are reached, so that the files change only where the grammar does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lark import Lark
from lark.grammar import NonTerminal, Rule, Terminal
from lark.lexer import TerminalDef
from lark.parsers.lalr_analysis import Shift

from omnigraph.language.query import grammar as query_grammar
from omnigraph.language.schema import parser as schema_grammar

ASCII = [chr(code) for code in range(128)]


def files() -> dict[Path, str]:
    """Return the text of each tables file, by its path."""
    return {
        query_grammar.TABLES: tables(query_grammar.GRAMMAR, "query"),
        schema_grammar.TABLES: tables(schema_grammar.GRAMMAR, "declaration"),
    }


def tables(grammar: str, start: str) -> str:
    """Return the tables of a grammar as JSON."""
    lark = Lark(grammar, start=start, parser="lalr", lexer="contextual", maybe_placeholders=False)
    table = lark.parser.parser._parse_table
    numbers, rules = _numbered(table.states, table.start_states[start])
    symbols = _symbol_names(rules)
    content = {
        "final": numbers[table.end_states[start]],
        "terminals": [_terminal(t, lark) for t in _in_order(lark.terminals)],
        "reductions": [_reduction(rule, symbols) for rule in rules],
        "states": [_row(table.states[state], numbers, rules, symbols) for state in numbers],
    }
    return "".join(_lines(content))


def _lines(content: dict[str, Any]) -> Iterator[str]:
    """Lay the JSON out with one line for each entry, so that a change can be read."""
    yield "{"
    for position, (key, value) in enumerate(content.items()):
        yield f"{',' if position else ''}\n{json.dumps(key)}: "
        if isinstance(value, list):
            yield "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in value) + "\n]"
        else:
            yield json.dumps(value)
    yield "\n}\n"


def _numbered(states: dict[int, dict[str, Any]], start: int) -> tuple[dict[int, int], list[Rule]]:
    """Number states from 0 and rules, both in the order in which they are reached from the start."""
    numbers = {start: 0}
    rules: dict[Rule, None] = {}
    waiting = [start]
    while waiting:
        for _, (action, target) in sorted(states[waiting.pop(0)].items()):
            if action is not Shift:
                rules.setdefault(target)
            elif target not in numbers:
                numbers[target] = len(numbers)
                waiting.append(target)
    return numbers, list(rules)


def _symbol_names(rules: list[Rule]) -> dict[str, str]:
    """Give rules short names in lower case: those of templates have spaces in them."""
    origins = dict.fromkeys(rule.origin.name for rule in rules)
    return {str(name): f"r{number}" for number, name in enumerate(origins)}


def _row(actions: dict[str, Any], numbers: dict[int, int], rules: list[Rule], symbols: dict[str, str]) -> str:
    """`symbol state ...; rule terminal ...; ...`: where symbols lead, what is complete before a terminal."""
    shifts = [
        f"{symbols.get(s, s)} {numbers[to]}" for s, (act, to) in sorted(actions.items()) if act is Shift
    ]
    complete: dict[int, list[str]] = {}
    for terminal, (action, rule) in sorted(actions.items()):
        if action is not Shift:
            complete.setdefault(rules.index(rule), []).append(terminal)
    return ";".join([" ".join(shifts), *(f"{n} {' '.join(before)}" for n, before in complete.items())])


def _reduction(rule: Rule, symbols: dict[str, str]) -> list[Any]:
    if not rule.expansion:
        raise ValueError(f"a rule that matches nothing has no position: {rule}")
    kept = [
        [index, int(isinstance(symbol, NonTerminal) and symbol.name.startswith("_"))]
        for index, symbol in enumerate(rule.expansion)
        if not (isinstance(symbol, Terminal) and symbol.filter_out)
    ]
    name = str(rule.alias or rule.options.template_source or rule.origin.name)
    collapses = bool(rule.options.expand1 and not rule.alias)
    return [symbols[rule.origin.name], len(rule.expansion), name, collapses, kept]


def _in_order(terminals: Iterable[TerminalDef]) -> list[TerminalDef]:
    """The order in which Lark tries terminals at one place."""
    return sorted(terminals, key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))


def _terminal(terminal: TerminalDef, lark: Lark) -> list[Any]:
    pattern = terminal.pattern.to_regexp()
    return [str(terminal.name), pattern, _first_characters(pattern), terminal.name in lark.ignore_tokens]


def _first_characters(pattern: str) -> str | None:
    """Return what a match can start with, where the pattern says so at once; None where it does not."""
    plain = re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "x", pattern)
    while (outside := re.sub(r"\([^()]*\)", "", plain)) != plain:
        plain = outside
    if "|" in plain or pattern.startswith("[^"):
        return None
    head = re.match(r"\[(?:\\.|[^\]])*\](?![?*])|\\[^A-Za-z0-9]|[^\\\[(.](?![?*])", pattern)
    return None if head is None else "".join(c for c in ASCII if re.fullmatch(head.group(), c))


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
        print(f"{path.name} of {path.parent.name}: {len(text) // 1024} KiB")
