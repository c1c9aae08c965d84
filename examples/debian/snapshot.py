"""Snapshot: lists of packages, cut down to what the graph needs, in a few small files.

    python -m examples.debian.snapshot --lists /var/lib/apt/lists --to examples/debian/snapshot

Room    the example. Run when the snapshot in the repository is to be renewed; the job itself never does.
Given   the lists of a machine that has apt (`apt-get update` fetches them).
Gives   `part-N_Packages.xz`: stanzas as in the lists, by package and version; pieces, for tasks to share.
Rule    the same lists give the same bytes. Addresses of maintainers are left out; names stay as they are.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from examples.debian.index import FIELDS, lists_in, maintainer_name, opened, sort_key, stanzas_of

HERE = Path(__file__).parent / "snapshot"
PIECES = 8


def stanza_text(stanza: dict[str, str]) -> str:
    """Return a stanza as the snapshot holds it.

    >>> print(
    ...     stanza_text(
    ...         {"Package": "bc", "Maintainer": "Ryan <r@example.org>", "Description": "maths\\nmore"}
    ...     )
    ... )
    Package: bc
    Maintainer: Ryan
    Description: maths
    <BLANKLINE>
    """
    kept = dict(stanza)
    if "Maintainer" in kept:
        kept["Maintainer"] = maintainer_name(kept["Maintainer"])
    if "Description" in kept:
        kept["Description"] = kept["Description"].partition("\n")[0]
    return "".join(f"{name}: {' '.join(kept[name].split())}\n" for name in FIELDS if name in kept)


def read(files: Iterable[Path]) -> Iterator[dict[str, str]]:
    """Yield the stanzas of lists."""
    for file in files:
        with opened(file) as lines:
            yield from stanzas_of(lines)


def write(files: Sequence[Path], folder: Path, pieces: int = PIECES) -> list[Path]:
    """Write the snapshot of lists, in pieces of about one size, and return its files."""
    ordered = sorted(read(files), key=lambda one: (one["Package"], sort_key(one["Version"])))
    texts = [stanza_text(stanza) for stanza in ordered]
    share, total, parts = sum(map(len, texts)) / pieces, 0, list[list[str]]([[] for _ in range(pieces)])
    for text in texts:
        parts[int(total / share)].append(text)
        total += len(text)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, part in enumerate(parts):
        path = folder / f"part-{number}_Packages.xz"
        path.write_bytes(lzma.compress("\n".join(part).encode(), preset=9 | lzma.PRESET_EXTREME))
        written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a snapshot, and say how large it is."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.debian.snapshot", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--lists", type=Path, default=Path("/var/lib/apt/lists"), help="where apt keeps its lists"
    )
    parser.add_argument("--to", type=Path, default=HERE, help="the folder to write to")
    given = parser.parse_args(arguments)
    files = lists_in(given.lists)
    if not files:
        parser.error(
            f"{given.lists} has no lists of packages (*_Packages, also .gz, .lz4, .xz, .zst): apt-get update"
        )
    for path in write(files, given.to):
        Console().print(f"{path} {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
