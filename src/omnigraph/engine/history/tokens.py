"""Tokens: places in a feed as opaque text.

Room    engine.history. A token is versioned, says what it is for, and carries a checksum: damage and mix-ups
        are refused, not guessed at. It holds no secret and grants nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any

from omnigraph.base.errors import CursorRejected

VERSION = b"\x01"
CHECK = 8  # bytes of the checksum


def seal(use: str, values: dict[str, Any]) -> str:
    """Return values as a token for one use."""
    content = json.dumps([use, values], ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(VERSION + _check(content) + content).rstrip(b"=").decode()


def unseal(use: str, token: str) -> dict[str, Any]:
    """Return the values of a token that `seal` made for this use."""
    try:
        raw = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise rejected("it is not a token") from error
    if raw[:1] != VERSION:
        raise rejected("it is not of this release")
    check, content = raw[1 : 1 + CHECK], raw[1 + CHECK :]
    if check != _check(content):
        raise rejected("it is damaged")
    made_for, values = json.loads(content)
    if made_for != use:
        raise rejected(f"it is a {made_for}, and a {use} is needed here")
    return dict(values)


def rejected(reason: str) -> CursorRejected:
    """Return the error about a token."""
    return CursorRejected(
        f"the token cannot be used: {reason}",
        remedy="Give a token as it was received, with the branch and the filter that it was received for",
        reason=reason,
    )


def _check(content: bytes) -> bytes:
    return hashlib.sha256(VERSION + content).digest()[:CHECK]
