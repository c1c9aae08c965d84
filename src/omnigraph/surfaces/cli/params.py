"""Params: the parameters of a query as a command line gives them.

Room    surfaces.cli. Shared by every command that runs a query: the flags, how they combine, what a value is.
Given   `--params` or `--params-file`, a JSON object; `--param k=v`, text; `--param k:=JSON`.
Gives   `GivenParams`; with the parameters that a query declares, the values to bind.
Rule    text is read as the declared type says, never guessed. `--param` is stronger than the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.query import BadParameters, Parameter, bind_params, param_from_text
from omnigraph.engine.load.strict_json import BLANKS, InvalidJson, parse

Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="K=V",
        help="One parameter: k=v, read as its declared type; or k:=JSON. Repeat it for more.",
    ),
]
Params = Annotated[
    str | None, typer.Option("--params", metavar="JSON", help="All parameters as a JSON object.")
]
ParamsFile = Annotated[
    Path | None, typer.Option("--params-file", metavar="FILE", help="The same, read from a file.")
]


@dataclass(frozen=True)
class GivenParams:
    """What was given, before anybody knows the types: JSON values, and texts."""

    values: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def bound(self, declared: Sequence[Parameter]) -> dict[str, Any]:
        """Return the JSON values of a query's parameters, or refuse with everything that does not fit.

        >>> from omnigraph.catalog.types import PropertyType, Scalar
        >>> GivenParams(texts={"age": "36"}).bound([Parameter("age", PropertyType(Scalar.I32))])
        {'age': 36}
        """
        known = {parameter.name: parameter for parameter in declared}
        found: dict[str, Any] = dict(self.values)
        wrong: list[BadParameters] = []
        for name, text in self.texts.items():
            try:
                found[name] = param_from_text(known[name], text) if name in known else text
            except BadParameters as error:
                wrong.append(error)
        if wrong:
            problems = [problem for error in wrong for problem in error.fields["problems"]]
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise BadParameters(f"{problems[0]}{more}", remedy=wrong[0].remedy, problems=tuple(problems))
        bind_params(declared, found)
        return found


def read_params(single: Iterable[str] | None, whole: str | None, file: Path | None) -> GivenParams:
    """Read the flags.

    >>> read_params(["name=Ada", "tags:=[1]"], '{"name": "Bo", "age": 3}', None)
    GivenParams(values={'age': 3, 'tags': [1]}, texts={'name': 'Ada'})
    """
    if whole is not None and file is not None:
        raise InvalidRequest("--params and --params-file exclude each other", remedy="Give one")
    values = _whole(whole, file)
    texts: dict[str, str] = {}
    seen: set[str] = set()
    for one in single or ():
        name, is_json, text = _single(one)
        if name in seen:
            raise InvalidRequest(f"--param {name} is given twice", remedy="Give it once")
        seen.add(name)
        values.pop(name, None)
        if is_json:
            values[name] = _json(text, f"--param {name}")
        else:
            texts[name] = text
    return GivenParams(values, texts)


def _whole(text: str | None, file: Path | None) -> dict[str, Any]:
    where = "--params"
    if file is not None:
        where = str(file)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"cannot read {where}: {error}", remedy="Check the path") from error
    found = {} if text is None else _json(text, where)
    if found is not None and not isinstance(found, dict):
        raise InvalidRequest(f"{where}: params must be a JSON object", remedy='Write {"name": value}')
    return found or {}


def _single(given: str) -> tuple[str, bool, str]:
    name, equals, text = given.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":").removeprefix("$")
    if not equals or not name:
        raise InvalidRequest(f"--param {given!r} is not k=v", remedy="Write name=value, or name:=JSON")
    return name, is_json, text


def _json(text: str, where: str) -> Any:
    try:
        return parse(text.strip(BLANKS))
    except InvalidJson as error:
        raise InvalidRequest(f"{where}: not JSON: {error}", remedy="Text needs double quotes") from None
