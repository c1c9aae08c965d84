"""Diagnostics: what is wrong with a source text, where, and what to write instead.

Shared by the schema and the query language, and by everything that shows their errors.

A `Diagnostic` is a rule, a span of a source and a message; a `SourceError` carries all those of a text;
`render` shows them; `did_you_mean` finds the known name that a misspelt one was probably meant to be.

Offsets count characters from 0, lines and columns from 1. A code never changes its meaning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.text_table import LISTED, at_most

SHOWN_WIDTH = 160  # a longer source line is cut around the offending text
TAB = "    "
MIN_LIKENESS = 0.7  # of a misspelt name to the known one that is suggested
LONGEST_COMPARED = 80  # comparing is quadratic; nobody misspells a name longer than this by a letter or two


class Severity(Enum):
    """Whether a finding stops the work."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong; the registry of a language is the list of its rules."""

    code: str
    name: str
    title: str
    stage: int  # the order in which a reader of the text would meet the rule; breaks ties of position
    severity: Severity = Severity.ERROR
    prefix: str = ""  # how the stage introduces itself, such as "parse error"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text: `[start, end)` in characters, with the line and column of its start."""

    start: int
    end: int
    line: int
    column: int


class SourceText:
    """A text with a name, which can tell the line and column of any offset."""

    __slots__ = ("_starts", "file", "text")

    def __init__(self, text: str, file: str = "schema.pg") -> None:
        self.text = text
        self.file = file
        self._starts = [0, *(at + 1 for at, char in enumerate(text) if char == "\n")]

    def __reduce__(self) -> tuple[Any, ...]:
        return SourceText, (self.text, self.file)

    def span(self, start: int, end: int) -> Span:
        """Return the span of two offsets; both are clamped to the text.

        >>> SourceText("ab\\ncd").span(4, 5)
        Span(start=4, end=5, line=2, column=2)
        """
        start = max(0, min(start, len(self.text)))
        line = bisect_right(self._starts, start)
        return Span(start, max(start, min(end, len(self.text))), line, start - self._starts[line - 1] + 1)

    def line(self, number: int) -> str:
        """Return a line of the text without its line break."""
        begin = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[begin:end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `span` is None only for a finding about something that the text does not mention."""

    rule: Rule
    message: str
    span: Span | None
    suggestion: str | None = None

    @property
    def code(self) -> str:
        """The stable, machine-readable name of the rule."""
        return self.rule.code

    @property
    def severity(self) -> Severity:
        """Whether the finding stops the work."""
        return self.rule.severity

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON values."""
        span = self.span
        return {
            "code": self.code,
            "name": self.rule.name,
            "severity": self.severity.value,
            "message": self.message,
            "span": None
            if span is None
            else {"start": span.start, "end": span.end, "line": span.line, "column": span.column},
            "suggestion": self.suggestion,
        }


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by position, then by stage; findings without a position come last. Exact repeats go."""

    def place(diagnostic: Diagnostic) -> tuple[float, int, str, str]:
        start = float("inf") if diagnostic.span is None else diagnostic.span.start
        return start, diagnostic.rule.stage, diagnostic.code, diagnostic.message

    return tuple(sorted(dict.fromkeys(diagnostics), key=place))


@dataclass
class Reporter:
    """Collects the findings of one text, so that a check can go on after the first."""

    source: SourceText
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def report(self, rule: Rule, message: str, span: Span | None, suggestion: str | None = None) -> None:
        """Add a finding."""
        self.diagnostics.append(Diagnostic(rule, message, span, suggestion))


class SourceError(InvalidRequest):
    """A text was refused; `diagnostics` holds every reason, in the order of the text."""

    code = "compile_error"

    def __init__(self, source: SourceText, diagnostics: Sequence[Diagnostic]) -> None:
        ordered = in_order(diagnostics)
        super().__init__(
            _summary(source, ordered),
            kind="parse" if ordered[0].rule.prefix.startswith("parse") else "type",
            spans=tuple(d.span for d in ordered),
            diagnostics=ordered,
            source=source,
        )

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All findings, by position."""
        diagnostics: tuple[Diagnostic, ...] = self.fields["diagnostics"]
        return diagnostics

    @property
    def source(self) -> SourceText:
        """The text that was refused."""
        source: SourceText = self.fields["source"]
        return source

    def __str__(self) -> str:
        """Return the findings as plain text, each with its line underlined."""
        return render(self.source, self.diagnostics)


class SchemaError(SourceError):
    """A schema text was refused."""


class QueryError(SourceError):
    """A query text was refused."""


def _summary(source: SourceText, diagnostics: Sequence[Diagnostic]) -> str:
    first = diagnostics[0]
    more = f" (and {len(diagnostics) - 1} more)" if len(diagnostics) > 1 else ""
    return f"{_introduced(first)} at {_place(source, first)} [{first.code}]{more}"


def _introduced(diagnostic: Diagnostic) -> str:
    prefix = diagnostic.rule.prefix
    return f"{prefix}: {diagnostic.message}" if prefix else diagnostic.message


def _place(source: SourceText, diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    return source.file if span is None else f"{source.file}:{span.line}:{span.column}"


def render(source: SourceText, diagnostics: Iterable[Diagnostic]) -> str:
    """Show findings the way a compiler does: place, message, source line, underline, help.

    >>> rule = Rule("PG000", "example", "An example", 1, prefix="parse error")
    >>> print(render(SourceText("node a {}"), [Diagnostic(rule, "bad name", Span(5, 6, 1, 6), "write 'A'")]))
    schema.pg:1:6: error[PG000]: parse error: bad name
      |
    1 | node a {}
      |      ^
      = help: write 'A'
    """
    shown = tuple(diagnostics)
    rendered = tuple(_render_diagnostic(source, diagnostic) for diagnostic in shown[:LISTED])
    return "\n\n".join(at_most(rendered, len(shown)))


def _render_diagnostic(source: SourceText, diagnostic: Diagnostic) -> str:
    head = f"{_place(source, diagnostic)}: {diagnostic.severity.value}[{diagnostic.code}]"
    lines = [f"{head}: {_introduced(diagnostic)}"]
    gutter = ""
    if diagnostic.span is not None:
        number = str(diagnostic.span.line)
        gutter = " " * len(number)
        text, marks = _excerpt(source, diagnostic.span)
        lines += [f"{gutter} |", f"{number} | {text}".rstrip(), f"{gutter} | {marks}"]
    if diagnostic.suggestion is not None:
        lines.append(f"{gutter} = help: {diagnostic.suggestion}")
    return "\n".join(lines)


def _excerpt(source: SourceText, span: Span) -> tuple[str, str]:
    """Return the source line and the underline; what runs on past the line is underlined to its end."""
    line = source.line(span.line)
    begin = span.column - 1
    length = max(1, min(span.end - span.start, len(line) - begin))
    first = max(0, begin - SHOWN_WIDTH // 2) if len(line) > SHOWN_WIDTH else 0
    shown = line[first : first + SHOWN_WIDTH]
    lead = "…" if first else ""
    before = lead + shown[: begin - first].replace("\t", TAB)
    marked = shown[begin - first : begin - first + length].replace("\t", TAB)
    after = shown[begin - first + length :].replace("\t", TAB)
    printable = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in before + marked + after
    )
    return printable, " " * len(before) + "^" * max(1, len(marked))


# -- suggestions -------------------------------------------------------------------------------------


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, ignoring case, or None when none is close.

    >>> nearest("Persn", ["Person", "Company"])
    'Person'
    >>> nearest("string", ["String", "I32"])
    'String'
    """
    if len(name) > LONGEST_COMPARED:
        return None
    folded: dict[str, str] = {}
    for candidate in sorted(known):
        if candidate != name and len(candidate) <= LONGEST_COMPARED:
            folded.setdefault(candidate.casefold(), candidate)
    from difflib import get_close_matches  # only for a text that is wrong

    matches = get_close_matches(name.casefold(), folded, n=1, cutoff=MIN_LIKENESS)
    return folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return the suggestion as a question, or None."""
    match = nearest(name, known)
    return None if match is None else f"did you mean {match!r}?"
