"""Spec: a pipeline file as a value.

    YAML nodes -> **pipeline** -> frames -> load

Room    pipeline.declared. What was written, and where; whether it can be done is asked in check.py.
Given   the text of a file, or its path. Paths inside count from the folder of the file.
Gives   a `Pipeline`, or `PipelineError` with everything that the file alone shows to be wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.load.load import LoadMode
from omnigraph.language.diagnostics import Reporter, Source, Span
from omnigraph.language.suggest import did_you_mean
from omnigraph.language.yaml_document import Places, YamlDocument, YamlMapping, read_text
from omnigraph.pipeline.bulk.row_locations import reject_file
from omnigraph.pipeline.declared.rules import (
    BAD_NAME,
    PIPELINE_FILE,
    SAME_BRANCH,
    TWICE,
    UNKNOWN_NAME,
    WRONG_VALUE,
)
from omnigraph.pipeline.options import ADDRESS
from omnigraph.storage.manifest.records import MAIN

OnViolation = Literal["fail", "reject"]
MODES: tuple[LoadMode, ...] = ("append", "merge", "overwrite")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Rows that any reader of Spark gives."""

    name: str
    format: str
    paths: tuple[str, ...] = ()
    options: Mapping[str, str] = FrozenMap()
    schema: str | None = None  # as Spark's DDL has it
    watermark: str | None = None  # the column that only grows
    places: Places = field(default=Places(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SqlSpec:
    """Rows that a query makes of others."""

    name: str
    sql: str
    places: Places = field(default=Places(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PythonSpec:
    """Rows that a function of a module beside the file makes of others."""

    name: str
    module: str
    function: str
    inputs: tuple[str, ...] = ()
    places: Places = field(default=Places(), compare=False, repr=False)


TransformSpec: TypeAlias = SqlSpec | PythonSpec


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Where rows go."""

    type: str
    rows: str  # the source or transform
    mode: LoadMode
    columns: Mapping[str, str] = FrozenMap()  # column -> property, `from` or `to`
    places: Places = field(default=Places(), compare=False, repr=False)
    column_places: Places = field(default=Places(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExpectationSpec:
    """A query that must find nothing."""

    name: str
    sql: str
    places: Places = field(default=Places(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ThenSpec:
    """What follows the commit: a merge, or a look at what one would do."""

    action: Literal["merge", "preview"]
    into: str


@dataclass(frozen=True)
class Pipeline:
    """A pipeline file."""

    name: str
    folder: Path
    targets: tuple[TargetSpec, ...]
    graph: str | None = None
    branch: str = MAIN
    from_branch: str = MAIN
    message: str | None = None
    sources: tuple[SourceSpec, ...] = ()
    transforms: tuple[TransformSpec, ...] = ()
    expectations: tuple[ExpectationSpec, ...] = ()
    on_violation: OnViolation = "fail"
    rejects: str | None = None  # the Parquet file that rejected rows are told in
    then: ThenSpec | None = None
    source: Source = field(default_factory=lambda: Source("", "pipeline.yaml"), compare=False, repr=False)
    places: Places = field(default=Places(), compare=False, repr=False)

    @property
    def watermarks(self) -> tuple[SourceSpec, ...]:
        """The sources that can be read from where an earlier run stopped."""
        return tuple(one for one in self.sources if one.watermark is not None)

    def address(self, path: str) -> str:
        """Return a path from the folder of the file; an address of another kind as it is.

        >>> pipeline = Pipeline("p", Path("/data"), ())
        >>> pipeline.address("a.csv"), pipeline.address("s3a://bucket/a.csv"), pipeline.address("/b.csv")
        ('/data/a.csv', 's3a://bucket/a.csv', '/b.csv')
        """
        return path if ADDRESS.match(path) else str(self.folder / path)


def read_pipeline(path: str | os.PathLike[str]) -> Pipeline:
    """Read a pipeline file."""
    file = Path(path)
    try:
        source = read_text(file, PIPELINE_FILE)
    except OSError as error:
        raise InvalidRequest(
            f"cannot read pipeline {str(file)!r}: {error.strerror}", remedy="Check the path"
        ) from error
    return parse_pipeline(source.text, file=source.file, folder=file.absolute().parent)


def parse_pipeline(text: str, *, file: str = "pipeline.yaml", folder: Path | None = None) -> Pipeline:
    """Read the text of a pipeline file.

    >>> parse_pipeline("targets: [{type: Book, from: raw, mode: merge}]")
    Traceback (most recent call last):
    ...
    omnigraph.pipeline.declared.rules.PipelineError: 'from' is 'raw', which is no source and no transform at \
pipeline.yaml:1:30 [PL007]
    """
    document = YamlDocument(Source(text, file), PIPELINE_FILE)
    reader = _Reader(document.root("the pipeline"), document.reporter)
    pipeline = reader.pipeline(Path(file).stem, folder or Path.cwd())
    document.refuse()
    return pipeline


class _Reader:
    """Reads the members of one file, in the order in which people meet them."""

    def __init__(self, top: YamlMapping, reporter: Reporter) -> None:
        self._top = top
        self._reporter = reporter
        self._named: dict[str, Span] = {}

    def pipeline(self, stem: str, folder: Path) -> Pipeline:
        """Read everything; what is wrong is in the report."""
        top = self._top
        name, graph = top.text("name") or stem, top.text("graph")
        branch, origin = top.text("branch") or MAIN, top.text("from") or MAIN
        message = top.text("message")
        sources = self._sources(top.mapping("sources", "'sources'"))
        transforms = self._transforms(top.mapping("transforms", "'transforms'"))
        targets, expectations = self._targets(), self._expectations()
        on_violation, rejects = self._violations()
        found = Pipeline(
            name=name,
            folder=folder,
            graph=graph,
            branch=branch,
            from_branch=origin,
            message=message,
            sources=sources,
            transforms=transforms,
            targets=targets,
            expectations=expectations,
            on_violation=on_violation,
            rejects=rejects,
            then=self._then(branch),
            source=self._reporter.source,
            places=top.places(),
        )
        top.end()
        self._references(found)
        return found

    # -- where rows come from ----------------------------------------------------------------------

    def _sources(self, entries: YamlMapping) -> tuple[SourceSpec, ...]:
        found = []
        for name in entries.names():
            self._name(name, entries.key_span(name), "source")
            one = entries.mapping(name, f"source {name!r}")
            found.append(
                SourceSpec(
                    name,
                    one.text("format", needed=True) or "",
                    one.texts("path"),
                    one.options("options"),
                    one.text("schema"),
                    one.text("watermark"),
                    Places({**one.places(), "": entries.key_span(name)}),
                )
            )
            one.end()
        return tuple(found)

    def _transforms(self, entries: YamlMapping) -> tuple[TransformSpec, ...]:
        found: list[TransformSpec] = []
        for name in entries.names():
            self._name(name, entries.key_span(name), "transform")
            one = entries.mapping(name, f"transform {name!r}")
            sql, python, inputs = one.text("sql"), one.text("python"), one.texts("inputs")
            places = Places({**one.places(), "": entries.key_span(name)})
            if one.has("sql") == one.has("python"):
                both = "both 'sql' and 'python'" if sql else "neither 'sql' nor 'python'"
                self._wrong(f"transform {name!r} has {both}; it needs one of them", places[""])
            elif one.has("sql") and one.has("inputs"):
                self._wrong(f"transform {name!r} is SQL, which names its inputs itself", places["inputs"])
            if sql is not None:
                found.append(SqlSpec(name, sql, places))
            elif python is not None:
                found.append(self._python(name, python, inputs, places))
            one.end()
        return tuple(found)

    def _python(self, name: str, said: str, inputs: tuple[str, ...], places: Places) -> PythonSpec:
        if FUNCTION.fullmatch(said) is None:
            self._wrong(f"{said!r} is not MODULE:FUNCTION, such as 'transforms:clean'", places["python"])
        module, _, function = said.partition(":")
        return PythonSpec(name, module, function, inputs, places)

    def _name(self, name: str, span: Span, kind: str) -> None:
        """Take in the name of a source or transform; they share one room, as tables of one query."""
        if NAME.fullmatch(name) is None:
            self._reporter.report(
                BAD_NAME, f"{kind} {name!r}: a name has letters, digits and _, and starts with no digit", span
            )
        if name in self._named:
            self._reporter.report(TWICE, f"{name!r} is the name of a source already", span)
        self._named.setdefault(name, span)

    # -- where rows go -----------------------------------------------------------------------------

    def _targets(self) -> tuple[TargetSpec, ...]:
        found: dict[str, TargetSpec] = {}
        for one in self._top.items("targets", "a target", needed=True):
            type_name, rows = one.text("type", needed=True), one.text("from", needed=True)
            mode = next((m for m in MODES if m == one.text("mode", needed=True, one_of=MODES)), None)
            mapped = one.mapping("columns", "'columns' of a target")
            columns = {name: mapped.text(name) for name in mapped.names()}
            one.end()
            if type_name is None or rows is None or mode is None:
                continue
            places = one.places()
            if type_name in found:
                self._reporter.report(
                    TWICE, f"type {type_name!r} is the target of two entries", places["type"], _UNION
                )
            given = FrozenMap({name: text for name, text in columns.items() if text is not None})
            found[type_name] = TargetSpec(type_name, rows, mode, given, places, mapped.places())
        return tuple(found.values())

    def _expectations(self) -> tuple[ExpectationSpec, ...]:
        found: dict[str, ExpectationSpec] = {}
        for one in self._top.items("expectations", "an expectation"):
            name, sql = one.text("name", needed=True), one.text("sql", needed=True)
            one.end()
            if name is None or sql is None:
                continue
            places = one.places()
            if name in found:
                self._reporter.report(TWICE, f"two expectations have the name {name!r}", places["name"])
            found[name] = ExpectationSpec(name, sql, places)
        return tuple(found.values())

    def _violations(self) -> tuple[OnViolation, str | None]:
        """Read what happens to rows that break a rule, and where those go that are rejected."""
        top = self._top
        said, rejects = top.text("on_violation", one_of=("fail", "reject")), top.text("rejects")
        if said == "reject":
            if not top.has("rejects"):
                top.missing("rejects")
            elif rejects is not None:
                self._check_rejects(rejects)
            return "reject", rejects
        if rejects is not None and said in (None, "fail"):
            self._wrong("'rejects' has a meaning with 'on_violation: reject' only", top.places()["rejects"])
        return "fail", rejects

    def _check_rejects(self, rejects: str) -> None:
        try:
            reject_file(rejects)
        except InvalidRequest as error:
            self._wrong(f"'rejects': {error.message}", self._top.places()["rejects"])

    def _then(self, branch: str) -> ThenSpec | None:
        one = self._top.mapping("then", "'then'")
        if not self._top.has("then"):
            return None
        merge, preview = one.text("merge"), one.text("preview")
        one.end()
        if one.has("merge") == one.has("preview"):
            place = self._top.places()["then"]
            self._wrong("'then' takes {merge: BRANCH} or {preview: BRANCH}, and one of them", place)
            return None
        into = merge or preview
        if into is None:
            return None
        if into == branch:
            key = "merge" if one.has("merge") else "preview"
            self._reporter.report(
                SAME_BRANCH,
                f"the rows go to {branch!r} already: nothing is left to merge into it",
                one.places()[key],
                "name another 'branch' for the rows, or leave 'then' out",
            )
        return ThenSpec("preview" if merge is None else "merge", into)

    # -- names -------------------------------------------------------------------------------------

    def _references(self, found: Pipeline) -> None:
        """Report names of rows that do not exist; those in SQL are for Spark to find."""
        for target in found.targets:
            self._reference("'from'", target.rows, target.places["from"])
        for transform in found.transforms:
            for name in transform.inputs if isinstance(transform, PythonSpec) else ():
                self._reference(f"an input of {transform.name!r}", name, transform.places["inputs"])

    def _reference(self, what: str, name: str, span: Span) -> None:
        if name not in self._named:
            hint = did_you_mean(name, self._named)
            said = f"{what} is {name!r}, which is no source and no transform"
            self._reporter.report(UNKNOWN_NAME, said, span, hint)

    def _wrong(self, message: str, span: Span) -> None:
        self._reporter.report(WRONG_VALUE, message, span)


_UNION = "put the rows together by a transform: select ... union all select ..."
