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
    found = set_variable(name, environment)
    return None if found is None else environment[found]


def names_of(name: str) -> list[str]:
    """Return the whole names of a variable, the short one first."""
    return [prefix + name for prefix in (SHORT, LONG)]


def set_variable(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the whole name of the variable that is set, the short one first."""
    return next((whole for whole in names_of(name) if environment.get(whole)), None)
