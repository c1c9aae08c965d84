"""Formats: the storage format of this release, and the steps that lead to it from older ones. No I/O.

Every version of a chain and of the registry carries the number of its format. A step turns the map of one
format into that of the next. The same steps read past versions, which are never rewritten, and upgrade the
newest ones (manifest/upgrade.py). A new format is a new number and a row in `STEPS`, and an older release
refuses what carries it: so whatever an older release would lose or misread needs one.

    1   the first
    2   cleanup: a chain's `control` may hold `kept`, `swept_us` and `condemned`, which a release of format 1
        drops with its next control write; `__kept/` holds versions below the floor. `precedence` came later:
        whoever ignores it loses nothing

The reasons are in docs/decisions/0025-format-stamps-and-upgrades.md.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import FormatTooNew, FormatTooOld, FormatUnreadable
from omnigraph.base.frozen import FrozenMap

FORMAT = 2
FORMAT_KEY = "omnigraph.format"
Content = Mapping[str, str]  # what one version of a chain or of the registry says
Rewrite = Callable[[Content], Content]


@dataclass(frozen=True, slots=True)
class FormatStep:
    """From one format to the next: what becomes of the map of a chain, and of that of the registry."""

    chain: Rewrite
    registry: Rewrite


def _all_marks(content: Content) -> Content:
    """Give `control` the marks that format 1 did not have from its beginning."""
    marks = {"reclaimed": {}, "name": None, **json.loads(content["control"])}
    return {**content, "control": json.dumps(marks, ensure_ascii=False, separators=(",", ":"))}


def _same(content: Content) -> Content:
    return content


STEPS: Mapping[int, FormatStep] = FrozenMap({1: FormatStep(chain=_all_marks, registry=_same)})


def stamp() -> dict[str, str]:
    """Return what a new map says of its format."""
    return {FORMAT_KEY: str(FORMAT)}


def format_of(content: Content, where: str) -> int:
    """Return the format of a map, if this release can read it; else say what to do about it."""
    text = content.get(FORMAT_KEY)
    if text is None or not (text.isascii() and text.isdigit()):
        raise FormatUnreadable(
            f"{where} has no readable format stamp (found {text!r})",
            remedy="It is not a graph made by this system, or its manifest is damaged",
            number=text,
            supported=FORMAT,
        )
    number = int(text)
    if number > FORMAT:
        raise FormatTooNew(
            f"{where} is in storage format {number}; this release serves format {FORMAT}",
            remedy="Upgrade this installation, or export the graph with the release that wrote it",
            number=number,
            supported=FORMAT,
        )
    if any(before not in STEPS for before in range(number, FORMAT)):
        raise _too_old(
            number, where, "Export it with the release that wrote it, then init and load it with this one"
        )
    return number


def check_served(content: Content, where: str, address: str) -> None:
    """Refuse the newest version of something in another format than ours; a graph is used in one alone."""
    number = format_of(content, where)
    if number < FORMAT:
        command = f"omnigraph upgrade {shlex.quote(address)}"
        raise _too_old(
            number,
            f"{where} at {address}",
            f"Upgrade it in place, with all its history: '{command}', or og.upgrade({address!r})",
        )


def chain_of_today(content: Content, where: str) -> Content:
    """Return the map of a chain as this release would have written it."""
    return _of_today(content, where, lambda step: step.chain)


def registry_of_today(content: Content, where: str) -> Content:
    """Return the map of the registry as this release would have written it."""
    return _of_today(content, where, lambda step: step.registry)


def _of_today(content: Content, where: str, rewrite_of: Callable[[FormatStep], Rewrite]) -> Content:
    first = format_of(content, where)
    for number in range(first, FORMAT):
        content = rewrite_of(STEPS[number])(content)
    return content if first == FORMAT else {**content, **stamp()}


def _too_old(number: int, what: str, remedy: str) -> FormatTooOld:
    return FormatTooOld(
        f"{what} is in storage format {number}; this release serves format {FORMAT}",
        remedy=remedy,
        number=number,
        supported=FORMAT,
    )
