"""Strict JSON: one value, exactly, with every member once.

Room    engine.load. Python's own scanner does the work. It is narrowed to the standard: no NaN, no second
        member of the same name at any depth, nothing after the value.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from omnigraph.engine.validate.values import shown

BLANKS = " \t\r\n"


class InvalidJson(ValueError):
    """The text is not one JSON value; says what is wrong and, where known, at which column."""


class DuplicateMember(InvalidJson):
    """An object has two members of one name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"duplicate JSON member {shown(name)}")


def parse(text: str) -> Any:
    """Return the value of a text without blanks around it.

    >>> parse('{"a": [1, {"b": null}]}')
    {'a': [1, {'b': None}]}
    """
    try:
        value, end = _DECODER.raw_decode(text)
    except InvalidJson:
        raise
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} at column {error.pos + 1}") from None
    except RecursionError:
        raise InvalidJson("arrays and objects are nested too deeply") from None
    except ValueError:
        raise InvalidJson("a number has too many digits") from None
    if end != len(text):
        raise InvalidJson(f"more text after the value, at column {end + 1}")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise DuplicateMember(name)
            seen.add(name)
    return found


def _no_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_no_constant)
