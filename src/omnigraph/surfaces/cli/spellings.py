"""Spellings: what people wrote before, read as what it is called now.

Room    surfaces.cli. An old spelling of two words becomes one hidden command of that name, which warns
        and goes on; old names of one word are plain hidden commands and need nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

PAIRS = frozenset({("query", "lint"), ("query", "check")})
RUNNERS = frozenset({"query", "read", "mutate", "change"})
ALIAS = "--alias"
QUERY_ALIAS = "query --alias"


def today(words: Sequence[str]) -> list[str]:
    """Return a line, without its global flags, in today's spelling.

    >>> today(["query", "lint", "--query", "q.gq"])
    ['query lint', '--query', 'q.gq']
    >>> today(["query", "--alias", "friends", "Ada"])
    ['query --alias', 'friends', 'Ada']
    """
    if tuple(words[:2]) in PAIRS:
        return [" ".join(words[:2]), *words[2:]]
    if words and words[0] in RUNNERS:
        return _alias(list(words))
    return list(words)


def _alias(words: list[str]) -> list[str]:
    """Move the name of an alias to the front, if the line has one."""
    end = words.index("--") if "--" in words else len(words)
    for at, word in enumerate(words[:end]):
        name, equals, value = word.partition("=")
        if name != ALIAS:
            continue
        named = [value] if equals else words[at + 1 : at + 2]
        return [QUERY_ALIAS, *named, *words[1:at], *words[at + (1 if equals else 2) :]]
    return words
