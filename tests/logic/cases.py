"""Cases: logic tests read from text.

Room    tests.logic. README.md beside this file shows the format; no engine is imported here.
Given   `.test` files: lines at the margin are words of the format, indented lines belong to the word above.
Gives   `World`s (a schema and its data) and `Case`s (a title and the steps to run on a world).
Rule    a text that is not understood is an error with its file and line, never a case that tests nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = list[Any]  # JSON values, in the order of the columns


@dataclass(frozen=True)
class World:
    """A schema and the records that a graph starts with, in the order of the file."""

    schema: str
    records: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Query:
    """A read, and what it must answer: rows, or a refusal."""

    text: str
    line: int
    name: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    branch: str | None = None
    at: str | None = None
    columns: tuple[str, ...] | None = None
    rows: tuple[Row, ...] | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True)
class Mutate:
    """A mutation; `wrote` counts nodes and edges where the case says so."""

    text: str
    line: int
    name: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    branch: str | None = None
    wrote: tuple[int, int] | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True)
class Branch:
    """A new branch from the one of the case."""

    name: str


@dataclass(frozen=True)
class Mark:
    """A name for the head as it is now, to be read `at` later."""

    name: str


@dataclass(frozen=True)
class Refusal:
    """The code of the first fault, and texts that the message must hold."""

    code: str
    fragments: tuple[str, ...]


Step: TypeAlias = Query | Mutate | Branch | Mark


@dataclass(frozen=True)
class Case:
    """One promise."""

    file: str
    line: int
    title: str
    world: World
    steps: tuple[Step, ...]

    @property
    def writes(self) -> bool:
        """Say whether the case changes the graph, so that it needs a branch of its own."""
        return any(not isinstance(step, Query) for step in self.steps)

    def __str__(self) -> str:
        words = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
        return f"{self.file}:{self.line}-{words}"


class BadCase(ValueError):
    """The text of a case is not understood."""


def load_cases(folder: Path) -> list[Case]:
    """Return the cases of all files of a folder, in order."""
    return [
        case for file in sorted(folder.glob("*.test")) for case in parse(file.read_text("utf-8"), file.stem)
    ]


# -- sections ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Section:
    line: int
    word: str
    rest: str  # of the line at the margin
    body: str  # the indented lines

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.body.splitlines() if line.strip()]


def _sections(text: str, file: str) -> Iterator[_Section]:
    found: _Section | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#") or (not line.strip() and found is None):
            continue
        if line[:1].isspace() or not line:
            if found is None:
                raise BadCase(f"{file}:{number}: an indented line without a word above it")
            found = replace(found, body=f"{found.body}{line}\n")
            continue
        if found is not None:
            yield found
        start = re.match(r"[a-z]+", line)
        if start is None:
            raise BadCase(f"{file}:{number}: no word of the format: {line!r}")
        found = _Section(number, start.group(), line[start.end() :].strip(), "")
    if found is not None:
        yield found


def parse(text: str, file: str) -> list[Case]:
    """Return the cases of one file."""
    reader = _Reader(file)
    for section in _sections(text, file):
        reader.read(section)
    reader.finish()
    return reader.cases


class _Reader:
    """Puts sections together; `step` is the one that params and expectations belong to."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.cases: list[Case] = []
        self._world: World | None = None
        self._title: _Section | None = None
        self._steps: list[Step] = []

    def read(self, section: _Section) -> None:
        try:
            self._read(section)
        except (ValueError, KeyError) as error:
            raise BadCase(f"{self.file}:{section.line}: {section.word}: {error}") from error

    def finish(self) -> None:
        """Close the case that is being read."""
        if self._title is None:
            return
        if self._world is None:
            raise BadCase(f"{self.file}:{self._title.line}: no schema above the case")
        if not any(_is_judged(step) for step in self._steps):
            raise BadCase(f"{self.file}:{self._title.line}: the case expects nothing")
        title = self._title.rest.removeprefix(":").strip()
        self.cases.append(Case(self.file, self._title.line, title, self._world, tuple(self._steps)))
        self._title, self._steps = None, []

    def _read(self, section: _Section) -> None:
        match section.word:
            case "schema":
                self.finish()
                self._world = World(section.body, ())
            case "data":
                self.finish()
                if self._world is None:
                    raise BadCase("no schema above the data")
                records = tuple(_record(line) for line in section.lines)
                self._world = replace(self._world, records=records)
            case "title":
                self.finish()
                self._title = section
            case "query" | "mutate" | "file" | "branch" | "mark":
                if self._title is None:
                    raise BadCase("no title above the step")
                self._steps.append(_step(section))
            case _:
                self._steps[-1] = _judged(self._last(), section)

    def _last(self) -> Step:
        if not self._steps:
            raise BadCase("no step above it")
        return self._steps[-1]


def _is_judged(step: Step) -> bool:
    if isinstance(step, Query):
        return step.rows is not None or step.refusal is not None
    return isinstance(step, Mutate) and (step.wrote is not None or step.refusal is not None)


# -- steps -------------------------------------------------------------------------------------------

_STEP = re.compile(r"(?:\((?P<params>.*)\))?\s*(?:on (?P<branch>\S+))?\s*(?:at (?P<at>\S+))?")
_FILE = re.compile(r"(?P<kind>query|mutate)\s*(?:run (?P<name>\S+))?")


def _step(section: _Section) -> Step:
    if section.word == "branch":
        return Branch(section.rest)
    if section.word == "mark":
        return Mark(section.rest)
    if section.word == "file":
        written = _FILE.fullmatch(section.rest)
        if written is None:
            raise BadCase(f"expected 'file query [run NAME]', found {section.rest!r}")
        kind = Query if written["kind"] == "query" else Mutate
        return kind(section.body, section.line, written["name"])
    options = _STEP.fullmatch(section.rest)
    if options is None:
        raise BadCase(f"expected '($p: Type) on BRANCH at MARK', found {section.rest!r}")
    text = f"query q({options['params'] or ''}) {{\n{section.body}}}"
    if section.word == "query":
        return Query(text, section.line, branch=options["branch"], at=options["at"])
    return Mutate(text, section.line, branch=options["branch"])


def _judged(step: Step, section: _Section) -> Step:
    """Return the step with what a section says about it."""
    if not isinstance(step, Query | Mutate):
        raise BadCase("it belongs to a query or a mutation")
    match section.word, step:
        case "params", _:
            return replace(step, params=json.loads(section.rest + section.body))
        case "refuse", _:
            return replace(step, refusal=Refusal(section.rest, tuple(section.lines)))
        case "columns", Query():
            return replace(step, columns=tuple(section.rest.split()))
        case "expect", Query():
            if (section.rest == "no rows") == bool(section.lines) or section.rest not in ("", "no rows"):
                raise BadCase("write rows below it, or 'expect no rows'")
            return replace(step, rows=tuple(json.loads(f"[{line}]") for line in section.lines))
        case "wrote", Mutate():
            nodes, edges = re.fullmatch(r"(\d+) nodes?, (\d+) edges?", section.rest).groups()  # type: ignore[union-attr]
            return replace(step, wrote=(int(nodes), int(edges)))
        case _:
            raise BadCase("not a word of the format here")


def _record(line: str) -> dict[str, Any]:
    """Return an envelope: `Person {"name": "Ada"}`, or `Knows Ada -> Bo {"since": 3}`."""
    edge = re.fullmatch(r"(\w+)\s+(\S+)\s+->\s+(\S+)\s*(\{.*\})?", line)
    if edge is not None:
        name, source, target, data = edge.groups()
        return {"edge": name, "from": source, "to": target, "data": json.loads(data or "{}")}
    node = re.fullmatch(r"(\w+)\s+(\{.*\})", line)
    if node is None:
        raise BadCase(f"no record: {line!r}")
    return {"type": node[1], "data": json.loads(node[2])}


# -- comparing ---------------------------------------------------------------------------------------


def same(expected: Any, found: Any) -> bool:
    """Compare JSON values: kinds must agree; `"~1.5"` is a number nearby, `"*"` any value but null."""
    if isinstance(expected, str) and expected == "*":
        return found is not None
    if isinstance(expected, str) and re.fullmatch(r"~-?\d+(\.\d+)?", expected):
        return isinstance(found, float) and abs(found - float(expected[1:])) <= 1e-6 * max(1.0, abs(found))
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and list(expected) == list(found)
            and all(same(expected[key], found[key]) for key in expected)
        )
    if isinstance(expected, list):
        return isinstance(found, list) and same_rows(expected, found)
    return type(expected) is type(found) and bool(expected == found)


def same_rows(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Compare lists of JSON values, in order."""
    return len(expected) == len(found) and all(map(same, expected, found))
