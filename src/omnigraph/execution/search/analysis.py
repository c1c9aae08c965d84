"""Analysis: from text to the tokens that search compares.

Room    execution.search. Pure. Documents and queries go through the same steps, in this order: words are runs
        of letters and digits; words over 40 characters are dropped; lower case; accents folded to ASCII;
        English stop words dropped; stems by Snowball's English stemmer (Porter2).
Why     folding comes before stemming, so that "résumé" and "resume" meet; stop words go before stemming, so
        that "owned" and "willing" stay although their stems "own" and "will" are stop words.
        docs/decisions/0012-search-is-exact.md tells where Lance's analyser differs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from Stemmer import Stemmer

LONGEST = 40
_STOPS = """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can did do does doing down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just me more most my myself now of off on
    once only or other our ours ourselves out over own re same she should so some such than that the their
    theirs them themselves then there these they this those through to too under until up very was we were
    what when where which while who whom why will with you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOPS.split())  # the list of Lance's English analyser
# Latin letters that Unicode does not take apart.
_LATIN = {
    "æ": "ae",
    "ð": "d",
    "ø": "o",
    "þ": "th",
    "ß": "ss",
    "đ": "d",
    "ħ": "h",
    "ı": "i",
    "ĸ": "k",
    "ł": "l",
    "ŋ": "n",
    "œ": "oe",
    "ŧ": "t",
}


def analyse(text: str) -> list[str]:
    """Return the tokens of a text, in order and with repetitions.

    >>> analyse("The Crème-Brûlée was RUNNING!")
    ['creme', 'brule', 'run']
    """
    return [token for token in stems(words(text)) if token is not None]


def words(text: str) -> list[str]:
    """Split at everything that is not a letter or a digit; an accent written apart belongs to its letter."""
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    return "".join(c if c.isalnum() else " " for c in composed).split()


def stems(found: Sequence[str]) -> list[str | None]:
    """Return the token of each word; None where the word is dropped."""
    plain = [plain_word(word) for word in found]
    kept = [word for word in plain if word is not None]
    stemmed = iter(Stemmer("english", 0).stemWords(kept))  # a stemmer serves one thread; making one is cheap
    return [None if word is None else next(stemmed) for word in plain]


def plain_word(word: str) -> str | None:
    """Return a word as it is before stemming; None where it is dropped."""
    if not word or len(word) > LONGEST:
        return None
    lower = word.lower() if word.isascii() else "".join(map(fold, word))
    return None if not lower or lower in STOP_WORDS else lower


@lru_cache(maxsize=8_192)
def fold(letter: str) -> str:
    """Return a letter in lower case without its accents; letters outside the Latin script keep theirs.

    >>> fold("É"), fold("ß"), fold("ﬁ"), fold("й")
    ('e', 'ss', 'fi', 'й')
    """
    lower = letter.lower()
    apart = unicodedata.normalize("NFKD", lower)
    latin = "".join(_LATIN.get(part, part) for part in apart).lower()
    return "".join(c for c in latin if c.isascii() and c.isalnum()) or lower
