"""Words: a graph and the names after it, for commands that work on named things.

Room    surfaces.cli. `branch create x` takes the configured graph, `branch create kb.og x` names one.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.cli.settings import Settings


def graph_and_words(
    settings: Settings, words: Sequence[str], graph_uri: str | None, *wanted: str
) -> tuple[str, list[str]]:
    """Return the address of the graph and as many words as are wanted; one more in front is the address."""
    count = len(wanted)
    if not count <= len(words) <= count + 1:
        names = " ".join(wanted)
        raise InvalidRequest(
            f"{len(words)} words were given", remedy=f"Give {names}, or the graph and {names}"
        )
    address = words[0] if len(words) > count else None
    return settings.address(address, graph_uri), list(words[len(words) - count :])
