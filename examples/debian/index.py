"""Index: the archive's own lists of packages, as plain values.

Room    the example. Knows neither Spark nor the graph: text in, values out, in an executor or in a test.
Given   a list as apt keeps it (`*_Packages`, plain or compressed): stanzas of fields, a blank line between.
Gives   stanzas as dictionaries, relations as clauses of alternatives, versions as texts that sort.
Rule    what does not have the form of a list is refused with the text that has not, never skipped.
"""

from __future__ import annotations

import io
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa

# The fields of a stanza that the graph is made of; the snapshot holds these and no others.
FIELDS = (
    "Package",
    "Version",
    "Architecture",
    "Essential",
    "Priority",
    "Section",
    "Installed-Size",
    "Maintainer",
    "Homepage",
    "Pre-Depends",
    "Depends",
    "Recommends",
    "Conflicts",
    "Provides",
    "Description",
)
# How a list may be compressed, by the end of its name. Arrow reads lz4, which Python does not.
COMPRESSIONS = {"": None, ".gz": "gzip", ".lz4": "lz4", ".zst": "zstd", ".xz": "xz"}
_OLD_OPERATORS = {"<": "<=", ">": ">="}  # how the two were spelt before there was a strict form
_ALTERNATIVE = re.compile(
    r"""\s* (?P<name>[A-Za-z0-9][A-Za-z0-9+.-]*) (?: :[a-z0-9-]+ )?   # apt, python3:any
        \s* (?: \( \s* (?P<op><<|<=|=|>=|>>|<|>) \s* (?P<version>[0-9A-Za-z][^\s()]*) \s* \) )?   # (>= 2.34)
        \s*""",
    re.VERBOSE,
)
_ADDRESS = re.compile(r"\s*<[^<>]*>")
_PAIRS = re.compile(r"(\D*)(\d*)")


class Wanted(NamedTuple):
    """A package, real or virtual, that a relation names, and which of its versions."""

    name: str
    op: str | None = None
    version: str | None = None

    @property
    def constraint(self) -> str | None:
        """The condition on the version, as it is written: `>= 2.34`."""
        return None if self.op is None else f"{self.op} {self.version}"

    def __str__(self) -> str:
        return self.name if self.op is None else f"{self.name} ({self.constraint})"


def lists_in(folder: Path) -> list[Path]:
    """Return the lists of a folder, by name: of a snapshot, or of a machine that has apt.

    >>> lists_in(Path(__file__).parent / "snapshot")[0].name
    'part-0_Packages.xz'
    """
    names = (f"*_Packages{suffix}" for suffix in COMPRESSIONS)
    return sorted(path for name in names for path in folder.glob(name) if path.is_file())


def opened(path: Path) -> IO[str]:
    """Open a list as text, whichever way it is compressed."""
    suffix = path.suffix if path.suffix in COMPRESSIONS else ""
    if suffix == ".xz":  # the one that Arrow does not read
        return lzma.open(path, "rt", encoding="utf-8")
    raw = pa.input_stream(str(path), compression=COMPRESSIONS[suffix])
    return io.TextIOWrapper(raw, encoding="utf-8")


def stanzas_of(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the stanzas of a list, each with those of its fields that the graph is made of.

    >>> list(stanzas_of(["Package: apt\\n", "Size: 1\\n", "Version: 2.6.1\\n", "\\n", "Package: bc\\n"]))
    [{'Package': 'apt', 'Version': '2.6.1'}, {'Package': 'bc'}]
    """
    stanza: dict[str, str] = {}
    field = ""
    for line in lines:
        if line[0] in " \t" and not line.isspace():
            if field in FIELDS:
                stanza[field] += "\n" + line.strip()
        elif line.isspace():
            if stanza:
                yield stanza
            stanza, field = {}, ""
        else:
            field, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"not a field of a list of packages: {line.strip()[:80]!r}")
            if field in FIELDS:
                stanza[field] = value.strip()
    if stanza:
        yield stanza


def maintainer_name(text: str) -> str:
    """Return the name of a maintainer, without the address.

    >>> maintainer_name("Debian Games Team <games@example.org>")
    'Debian Games Team'
    >>> maintainer_name("games@example.org")
    'games'
    """
    name = _ADDRESS.sub("", text).strip() or text.strip("<> ")
    return name.partition("@")[0].strip()


def relation(text: str) -> list[list[Wanted]]:
    """Return a relation as clauses that must all hold, each a choice of alternatives.

    >>> relation("libc6 (>= 2.34), mawk | awk:any")  # doctest: +NORMALIZE_WHITESPACE
    [[Wanted(name='libc6', op='>=', version='2.34')],
     [Wanted(name='mawk', op=None, version=None), Wanted(name='awk', op=None, version=None)]]
    """
    return [[_wanted(one, text) for one in clause.split("|")] for clause in text.split(",") if clause.strip()]


def _wanted(alternative: str, text: str) -> Wanted:
    found = _ALTERNATIVE.fullmatch(alternative)
    if found is None:
        raise ValueError(f"not a relation between packages: {alternative.strip()!r} in {text[:200]!r}")
    return Wanted(found["name"], _OLD_OPERATORS.get(found["op"], found["op"]), found["version"])


def sort_key(version: str) -> str:
    """Return a text for a version; texts compare by code point as Debian compares the versions.

    Of two versions the parts are compared in turn: epoch, what is upstream's, revision. In a part, stretches
    of other characters and of digits alternate. Digits count as a number; of the others a tilde comes first,
    even before the end, then letters, then the rest.

    >>> sort_key("1.0~rc1") < sort_key("1.0") < sort_key("1.0-1") < sort_key("1.0+b1") < sort_key("1.0.1")
    True
    >>> sort_key("9") < sort_key("10") < sort_key("1:1")
    True
    """
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "0")
    return _number(epoch) + _part(upstream) + _part(revision)


def _part(text: str) -> str:
    """Return the key of one part; `\\x02` ends a stretch of characters, so a tilde is below it."""
    pairs = (pair for pair in _PAIRS.findall(text) if any(pair))
    return "".join(f"{_characters(other)}\x02{_number(digits)}" for other, digits in pairs) + "\x02"


def _characters(text: str) -> str:
    ranks = (1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 0x100 for c in text)
    return "".join(map(chr, ranks))


def _number(digits: str) -> str:
    """Return digits after their number, so that longer ones are greater."""
    digits = digits.lstrip("0")
    return chr(0x21 + len(digits)) + digits
