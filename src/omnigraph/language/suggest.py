"""Suggest: the known name that a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

MIN_LIKENESS = 0.7
LONGEST = 80  # comparing is quadratic; nobody misspells a name longer than this by a letter or two


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, ignoring case, or None when none is close.

    >>> nearest("Persn", ["Person", "Company"])
    'Person'
    >>> nearest("string", ["String", "I32"])
    'String'
    """
    if len(name) > LONGEST:
        return None
    folded: dict[str, str] = {}
    for candidate in sorted(known):
        if candidate != name and len(candidate) <= LONGEST:
            folded.setdefault(candidate.casefold(), candidate)
    from difflib import get_close_matches  # only for a text that is wrong

    matches = get_close_matches(name.casefold(), folded, n=1, cutoff=MIN_LIKENESS)
    return folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return the suggestion as a question, or None."""
    match = nearest(name, known)
    return None if match is None else f"did you mean {match!r}?"
