"""Environment variables: each has a short name and a long one, the same for every surface."""

from __future__ import annotations

import os
from collections.abc import Mapping

SHORT, LONG = "OG_", "OMNIGRAPH_"


def variable(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a variable by its short name, or else by its long one; an empty one is not set.

    >>> variable("GRAPH", {"OG_GRAPH": "", "OMNIGRAPH_GRAPH": "kb.og"})
    'kb.og'
    """
    return environment.get(SHORT + name) or environment.get(LONG + name) or None
