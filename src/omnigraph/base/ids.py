"""Ids, randomness and the clock: what a write takes from the machine that it runs on.

Ids are ULIDs, sortable by time, as upper-case text of 26 characters. Nothing else in the package draws random
numbers or reads a clock (src/ruff.toml), so a simulation that replaces both here has replaced all of them.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Protocol

from ulid import ULID

if TYPE_CHECKING:  # only ids by the array need them: the command line starts without
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

LENGTH = 26
SHORTEST = 6  # characters that may stand for a whole id
_DIGITS = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
# The last four digits are looked up at once; the others stay the same for a million ids in a row.
_TAIL_BITS, _TAIL_LENGTH = 20, 4
_TAILS = 1 << _TAIL_BITS


def new_id() -> str:
    """Return a fresh ULID."""
    return str(_new_ulid())


def _new_ulid() -> ULID:
    source = _source.get()
    return (
        ULID()
        if source is None
        else ULID.from_int(source.now_ms() << _RANDOM_BITS | source.bits(_RANDOM_BITS))
    )


def new_ids(count: int) -> pa.Array:
    """Return fresh ULIDs, ascending: one time and one random start, then up by one.

    They are distinct by construction; that they differ from all others rests on the start, as for one id.
    """
    import numpy as np
    import pyarrow as pa

    if count * LENGTH > np.iinfo(np.int32).max:
        raise ValueError(f"{count} ids do not fit one array; ask for fewer at a time")
    # Randomness of its own: within a millisecond, single ids count up from one another.
    # The highest bit stays free, so that counting up never reaches into the time.
    first = (int(_new_ulid()) >> _RANDOM_BITS << _RANDOM_BITS) | random_bits(_RANDOM_BITS - 1)
    text = np.empty(count, [("head", f"V{LENGTH - _TAIL_LENGTH}"), ("tail", f"V{_TAIL_LENGTH}")])
    done = 0
    while done < count:
        head, tail = divmod(first + done, _TAILS)
        run = slice(done, min(done + _TAILS - tail, count))
        text["head"][run] = np.void(_digits(head))
        text["tail"][run] = _tails()[tail : tail + run.stop - run.start]
        done = run.stop
    offsets = np.arange(count + 1, dtype=np.int32) * LENGTH
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def _digits(number: int) -> bytes:
    """Return all digits but the last four."""
    return bytes(_DIGITS[(number >> shift) & 31] for shift in range(105, -1, -5))


@cache
def _tails() -> NDArray[np.void]:
    """Return the last four digits of every number."""
    import numpy as np

    numbers = np.arange(_TAILS, dtype=np.int64)
    digits = np.empty((_TAILS, _TAIL_LENGTH), np.uint8)
    for place in range(_TAIL_LENGTH):
        shift = 5 * (_TAIL_LENGTH - 1 - place)
        digits[:, place] = np.frombuffer(_DIGITS, np.uint8)[(numbers >> shift) & 31]
    return digits.view(f"V{_TAIL_LENGTH}").reshape(_TAILS)


def is_id(text: str) -> bool:
    """Say whether `text` is spelt like an id made by `new_id`."""
    try:
        return str(ULID.from_str(text)) == text
    except ValueError:
        return False


def is_short_id(text: str) -> bool:
    """Say whether `text` can be the beginning of an id, long enough to name one.

    >>> is_short_id("01ARZ3ND"), is_short_id("01ARZ"), is_short_id("release")
    (True, False, False)
    """
    return SHORTEST <= len(text) < LENGTH and not text.encode("ascii", "replace").translate(None, _DIGITS)


def minted_us(text: str) -> int:
    """Return when an id was made, in microseconds since 1970 (ids know the millisecond).

    >>> minted_us("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    1469922850259000
    """
    return (int(ULID.from_str(text)) >> _RANDOM_BITS) * 1000


# -- randomness ------------------------------------------------------------------------------------


class RandomSource(Protocol):
    """What ids and random numbers are drawn from in place of the machine."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for ids."""
        ...

    def bits(self, count: int) -> int:
        """Draw a number of this many bits."""
        ...


_source: ContextVar[RandomSource | None] = ContextVar("_source", default=None)


@contextmanager
def drawing_from(source: RandomSource) -> Iterator[None]:
    """Have this thread draw from a source for the length of a block, so that a simulation can repeat it."""
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)


def random_bits(count: int) -> int:
    """Draw a number of this many bits."""
    source = _source.get()
    return secrets.randbits(count) if source is None else source.bits(count)


def random_fraction() -> float:
    """Draw a number from 0 up to 1."""
    return random_bits(53) / (1 << 53)


SECRET_BITS = 256


def new_secret() -> str:
    """Return a secret that nobody can guess: 43 characters that need no quoting in a header or an address."""
    drawn = random_bits(SECRET_BITS).to_bytes(SECRET_BITS // 8, "big")
    return base64.urlsafe_b64encode(drawn).rstrip(b"=").decode()


# -- clock ---------------------------------------------------------------------------------------
#
# The one source of time, passed in so that tests can move it.


class Clock(Protocol):
    """Wall time for records, monotonic time for measuring, and waiting."""

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # Linux


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back, and goes on while the machine sleeps, where it can."""
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Stopwatch:
    """How long something took; by the wall, if the machine was suspended and did not measure it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began, self._began_us = clock.monotonic(), clock.now_us()

    def seconds(self) -> float:
        """Return the seconds since it was made, by the clock that says more."""
        by_wall = (self._clock.now_us() - self._began_us) / 1e6
        return max(self._clock.monotonic() - self._began, by_wall)
