"""Text: the functions of texts. A text is a row of code points; its case has no locale.

Arrow's kernels take one pattern for all rows. A pattern that differs from row to row is met by comparing
stretches of bytes, or, where nothing but a search will do, once for each combination of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.execution.functions.choice import merge
from omnigraph.execution.functions.columns import (
    Column,
    Kernel,
    Numbers,
    as_arrays,
    by_distinct,
    cast,
    combinations_of,
    first_true,
    numbers_of,
    refuse,
    validity,
)
from omnigraph.language.schema.check.members import pattern_problem

TEXTS = pa.list_(pa.field("item", pa.string()))
_LARGEST = 2**63 - 1
_ZERO = np.zeros(1, np.int32)
_MOST_PATTERNS = 64  # each is a pass over the rows


def concatenate(left: Column, right: Column) -> Column:
    """Return two texts as one."""
    return pc.binary_join_element_wise(left, right, "")


# -- parts -------------------------------------------------------------------------------------------


def bounds_of(values: pa.Array) -> Numbers:
    """Return where the values of an array of texts or lists begin in its data; and where the last ends."""
    offsets = values.buffers()[1]
    if offsets is None or not len(values):
        return np.zeros(len(values) + 1, np.int32)
    return np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)


def every_other(count: int, valid: pa.Array | None) -> pa.Array:
    """Return the places of the first of each pair, null where a row is."""
    places = np.arange(0, 2 * count, 2)
    return pa.array(places, mask=None if valid is None else ~valid.to_numpy(zero_copy_only=False))


def paired_bounds(starts: Numbers, ends: Numbers) -> Numbers:
    """Return bounds of stretches and of the gaps between them, in turn: only Arrow's `take` copies then."""
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2], bounds[1::2] = starts, ends
    if len(ends):
        bounds[-1] = ends[-1]
    return bounds


def _stretches(
    texts: pa.Array, starts: Numbers, ends: Numbers, kind: pa.DataType, valid: pa.Array | None
) -> pa.Array:
    """Return a stretch of each text's own bytes, as text or as bytes."""
    buffers = [None, pa.py_buffer(paired_bounds(starts, ends)), texts.buffers()[2]]
    return pa.Array.from_buffers(kind, 2 * len(texts), buffers).take(every_other(len(texts), valid))


def _substring(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    text, *places = arguments
    for place, what in zip(places, ("from", "n"), strict=False):
        _not_negative(arguments, place, what)
    if all(isinstance(place, pa.Scalar) for place in places):
        start = places[0].as_py()
        stop = start + places[1].as_py() if len(places) == 2 else None
        if start > _LARGEST or (stop is not None and stop > _LARGEST):
            stop, start = None, min(start, _LARGEST)
        return pc.utf8_slice_codeunits(text, start, stop)
    return _varying_substring(as_arrays(text, *places))


def _not_negative(arguments: Sequence[Column], place: Column, what: str) -> None:
    if pa.types.is_unsigned_integer(place.type):
        return
    arrays = as_arrays(*arguments)
    negative = as_arrays(pc.fill_null(pc.less(place, 0), False), arrays[0])[0]
    if not pc.any(negative).as_py():
        return
    row = first_true(negative.to_numpy(zero_copy_only=False), arrays)
    if row is not None:
        shown = f"substring({', '.join('{}' for _ in arguments)})"
        why, remedy = f"{what} is negative", "Places are counted from 0, greatest(x, 0) leaves no negative"
        refuse(shown, arguments, row, reason="bad_value", why=why, remedy=remedy)


def _varying_substring(arrays: Sequence[pa.Array]) -> pa.Array:
    """Cut other places out of each text: code points are counted once over all bytes."""
    texts, *places = arrays
    bounds = bounds_of(texts)
    data = texts.buffers()[2]
    octets = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    begins = (octets[bounds[0] : bounds[-1]] & 0xC0) != 0x80
    letters = np.append(np.flatnonzero(begins) + bounds[0], bounds[-1])  # where each code point begins
    before = np.concatenate([_ZERO, np.cumsum(begins, dtype=np.int32)])[bounds - bounds[0]]
    first, last = before[:-1], before[1:]
    lengths = last - first
    start = np.clip(_small(places[0]), 0, lengths)
    stop = lengths
    if len(places) == 2:
        stop = start + np.clip(_small(places[1]), 0, lengths - start)
    return _stretches(texts, letters[first + start], letters[first + stop], pa.string(), validity(arrays))


def _small(counts: pa.Array) -> Numbers:
    """Return integers of any type as I64; one that is larger is past every end."""
    if pa.types.is_uint64(counts.type):
        counts = pc.min_element_wise(counts, pa.scalar(_LARGEST, pa.uint64()), skip_nulls=False)
    return np.asarray(numbers_of(cast(counts, pa.int64()), np.int64))


# -- tests -------------------------------------------------------------------------------------------


def contains(text: Column, part: Column) -> Column:
    """Return whether a text occurs in another, exactly."""
    if isinstance(part, pa.Scalar):
        return pc.match_substring(text, part.as_py())
    return _by_pattern(contains, lambda a, b: b in a, pa.bool_(), (text, part))


def _by_pattern(
    kernel: Callable[..., Column], python: Callable[..., Any], kind: pa.DataType, arguments: Sequence[Column]
) -> pa.Array:
    """Ask a kernel that takes one pattern once for each; where they are many, ask Python for each pair."""
    text, *patterns = as_arrays(*arguments)
    choice, combinations = combinations_of(patterns)
    if len(combinations) > _MOST_PATTERNS:
        return by_distinct(python, kind, arguments)
    parts = [
        kernel(text.filter(pa.array(choice == number)), *(pa.scalar(value, pa.string()) for value in values))
        for number, values in enumerate(combinations)
    ]
    return merge(choice, parts, kind)


def starts_with(text: Column, part: Column) -> Column:
    """Return whether a text begins with another, exactly."""
    if isinstance(part, pa.Scalar):
        return pc.starts_with(text, part.as_py())
    return _has_end(text, part, at_start=True)


def ends_with(text: Column, part: Column) -> Column:
    """Return whether a text ends with another, exactly."""
    if isinstance(part, pa.Scalar):
        return pc.ends_with(text, part.as_py())
    return _has_end(text, part, at_start=False)


def _has_end(text: Column, part: Column, *, at_start: bool) -> pa.Array:
    """Compare as many bytes of each text as the other has; they are code points where they are equal."""
    texts, parts = as_arrays(text, part)
    bounds, lengths = bounds_of(texts), np.diff(bounds_of(parts))
    starts, ends = bounds[:-1], bounds[1:]
    wanted = np.minimum(lengths, ends - starts)
    valid = validity((texts, parts))
    first, last = (starts, starts + wanted) if at_start else (ends - wanted, ends)
    # As bytes, for a stretch may cut a code point in two.
    return pc.equal(_stretches(texts, first, last, pa.binary(), valid), parts.cast(pa.binary()))


def _matches(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    text, pattern = arguments
    if isinstance(pattern, pa.Scalar):
        _check_patterns(arguments, pa.array([pattern.as_py()]))
        return pc.match_substring_regex(text, pattern.as_py())
    _check_patterns(arguments, pattern)
    compiled = cache(_compiled)
    return by_distinct(lambda a, b: compiled(b).search(a) is not None, kind, arguments)


def _check_patterns(arguments: Sequence[Column], patterns: pa.Array) -> None:
    problems = {known: pattern_problem(known) for known in patterns.unique().to_pylist() if known is not None}
    bad = [pattern for pattern, problem in problems.items() if problem is not None]
    if bad:
        row = pc.index(patterns, bad[0]).as_py()
        values = [a if isinstance(a, pa.Scalar) or len(a) else pa.scalar(None, a.type) for a in arguments]
        why = f"no regular expression: {problems[bad[0]]}"
        refuse("matches({}, {})", values, row, reason="bad_value", why=why, remedy="Write a pattern of RE2")


def _compiled(pattern: str) -> Any:
    import re2  # few queries have a pattern for each row

    return re2.compile(pattern)


# -- changes -----------------------------------------------------------------------------------------


def _replaced(text: Column, old: pa.Scalar, new: pa.Scalar) -> Column:
    if not old.as_py():
        return text  # Arrow would search for it for ever
    return pc.replace_substring(text, old.as_py(), new.as_py())


def _replace(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    text, old, new = arguments
    if isinstance(old, pa.Scalar) and isinstance(new, pa.Scalar):
        return _replaced(text, old, new)
    return _by_pattern(_replaced, lambda a, b, c: a.replace(b, c) if b else a, kind, arguments)


def _split(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    text, separator = arguments
    arrays = as_arrays(text, separator)
    empty = pc.equal(separator, "")
    if pc.any(empty).as_py():
        row = first_true(np.asarray(as_arrays(pc.fill_null(empty, False), arrays[0])[0]), arrays)
        if row is not None:
            why, remedy = "the separator is empty", "Give the text that stands between the parts"
            refuse("split({}, {})", arguments, row, reason="bad_value", why=why, remedy=remedy)
    if isinstance(separator, pa.Scalar):
        if not len(arrays[0]) or not separator.as_py():
            return pa.nulls(len(arrays[0]), TEXTS)
        return cast(pc.split_pattern(arrays[0], separator.as_py()), TEXTS)
    return by_distinct(lambda a, b: a.split(b) if b else None, TEXTS, arguments)


def _of_one(function: Callable[..., Any]) -> Kernel:
    return lambda arguments, kind: function(arguments[0])


def _of_two(function: Callable[[Column, Column], Column]) -> Kernel:
    return lambda arguments, kind: function(arguments[0], arguments[1])


def _trim(text: Column) -> Column:
    return pc.utf8_trim_whitespace(text)


def _length(text: Column) -> Column:
    return cast(pc.utf8_length(text), pa.int64())


KERNELS: dict[str, Kernel] = {
    "lower": _of_one(pc.utf8_lower),
    "upper": _of_one(pc.utf8_upper),
    "trim": _of_one(_trim),
    "length": _of_one(_length),
    "substring": _substring,
    "replace": _replace,
    "split": _split,
    "contains": _of_two(contains),
    "starts_with": _of_two(starts_with),
    "ends_with": _of_two(ends_with),
    "matches": _matches,
}
