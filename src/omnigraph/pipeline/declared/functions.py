"""Functions: a Python transform, found beside the pipeline file.

Room    pipeline.declared. A module is run from its file under a name that nobody else has, and is not left
        among the imported ones: so Spark sends its functions to executors by value, wherever they are, and
        two pipelines may both have a `transforms.py`.
Given   the folder of the file, a module and the name of a function in it.
Gives   the function; `BadFunction` says why there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.ids import new_id
from omnigraph.language.suggest import did_you_mean
from omnigraph.pipeline.declared.words import spark_words

Transform = Callable[..., Any]


class BadFunction(Exception):
    """There is no such function, or it does not do what a transform does; the text says why."""


class Functions:
    """The functions of the modules in one folder; each module runs once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, ModuleType] = {}

    def find(self, module: str, name: str) -> Transform:
        """Return a function."""
        if module not in self._modules:
            self._modules[module] = self._run(module)
        members = vars(self._modules[module])
        found = members.get(name)
        if not callable(found):
            hint = did_you_mean(name, (one for one in members if callable(members[one])))
            raise BadFunction(f"module {module!r} has no function {name!r}" + (f"; {hint}" if hint else ""))
        return found  # type: ignore[no-any-return]

    def _run(self, module: str) -> ModuleType:
        file = self._folder.joinpath(*module.split(".")).with_suffix(".py")
        loaded = ModuleType(f"_omnigraph_{new_id()}_{file.stem}")
        loaded.__file__ = str(file)
        try:
            code = compile(file.read_bytes(), str(file), "exec")
        except OSError as error:
            raise BadFunction(f"there is no file {str(file)!r}: {error.strerror}") from error
        except (SyntaxError, ValueError) as error:
            raise BadFunction(f"{str(file)!r} is not Python: {error}") from error
        sys.modules[loaded.__name__] = loaded  # while it runs: dataclasses look their module up
        try:
            exec(code, vars(loaded))
        except Exception as error:
            raise BadFunction(f"{str(file)!r} failed: {type(error).__name__}: {error}") from error
        finally:
            del sys.modules[loaded.__name__]
        return loaded


def call(function: Transform, session: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Return what a transform makes of its inputs, which it is given by their names."""
    try:
        made = function(session, **inputs)
        if isinstance(made, DataFrame):
            made.schema  # noqa: B018 - what Spark refuses only now is the fault of this transform
    except Exception as error:
        raise BadFunction(f"it raised {type(error).__name__}: {spark_words(error)}") from error
    if not isinstance(made, DataFrame):
        raise BadFunction(f"it returned {type(made).__name__}, not a DataFrame")
    return made
