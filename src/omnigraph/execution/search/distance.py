"""Distance: which of many tokens are within some edits of one.

Room    execution.search. Pure: Levenshtein's table, one cell of all tokens at a time, and only the cells that
        can still stay within the edits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def within(token: str, letters: NDArray[np.uint32], edits: int) -> NDArray[np.bool_]:
    """Say which rows of a matrix of code points, tokens of one length, are within so many edits.

    >>> rows = np.frombuffer("catcowdog".encode("utf-32-le"), dtype=np.uint32).reshape(3, 3)
    >>> within("cot", rows, 1).tolist()
    [True, True, False]
    """
    count, length = letters.shape
    far = edits + 1
    if abs(len(token) - length) > edits:
        return np.zeros(count, dtype=bool)
    start: NDArray[np.int16] = np.full(count, far, dtype=np.int16)
    before = {j: np.full(count, j, dtype=np.int16) for j in range(min(length, edits) + 1)}
    for i, letter in enumerate(token, start=1):
        row: dict[int, NDArray[np.int16]] = {}
        if i <= edits:
            row[0] = np.full(count, i, dtype=np.int16)
        for j in range(max(1, i - edits), min(length, i + edits) + 1):
            changed = before.get(j - 1, start) + (letters[:, j - 1] != ord(letter))
            row[j] = np.minimum(changed, np.minimum(before.get(j, start), row.get(j - 1, start)) + 1)
        before = row
    found: NDArray[np.bool_] = before[length] <= edits
    return found
