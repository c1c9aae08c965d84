"""Query text: `.gq` given as text or as a path.

Room    engine. Shared by reads and mutations.
"""

from __future__ import annotations

import os
from pathlib import Path

from omnigraph.base.errors import InvalidRequest

QueryText = str | os.PathLike[str]


def read_query(gq: QueryText) -> tuple[str, str]:
    """Return the text and the name that messages use for it.

    A string that ends in `.gq` and has no brace is a path: no query is spelt like that.
    """
    if isinstance(gq, str) and not (gq.rstrip().endswith(".gq") and "{" not in gq):
        return gq, "query.gq"
    path = Path(gq)
    try:
        return path.read_text(encoding="utf-8"), path.name
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{path.name} is not UTF-8 text: {error.reason} at byte {error.start}", remedy="Save it as UTF-8"
        ) from error
    except OSError as error:
        raise InvalidRequest(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="Check the path"
        ) from error
