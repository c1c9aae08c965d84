"""Spec: a pipeline file as a value, and everything that can be wrong with one.

    YAML document -> **pipeline** -> frames -> load

Given   the text of a file, or its path. Paths inside count from the folder of the file.
Gives   a `Pipeline` with what was written, and where; or `PipelineError` with everything that the file alone
        shows to be wrong. Whether it can be done is for check.py to say.
Rule    a published code keeps its meaning for good; a rule that goes leaves its code unused. `PL0xx` is what
        the file alone shows, `PL1xx` what Spark says of its sources and transforms, `PL2xx` what the schema
        says of its targets, `PL3xx` advice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeAlias

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.load.assembly import LoadMode
from omnigraph.language.diagnostics import (
    Reporter,
    Rule,
    Severity,
    SourceError,
    SourceText,
    Span,
    did_you_mean,
)
from omnigraph.language.yaml_document import KeySpans, YamlDocument, YamlMapping, YamlRules, read_text
from omnigraph.pipeline.bulk.row_locations import reject_file
from omnigraph.pipeline.options import ADDRESS
from omnigraph.storage.manifest.records import MAIN

# == what can be wrong =============================================================================


class PipelineError(SourceError):
    """A pipeline file was refused; `diagnostics` holds every reason. Mend the file, then check it again."""

    code = "pipeline_invalid"


# -- the file alone ----------------------------------------------------------------------------------

PIPELINE_FILE = YamlRules.coded("PL", PipelineError)  # PL001 to PL005
SYNTAX, UNKNOWN_KEY, WRONG_VALUE = PIPELINE_FILE.syntax, PIPELINE_FILE.unknown_key, PIPELINE_FILE.wrong_value
MISSING, TWICE = PIPELINE_FILE.missing, PIPELINE_FILE.twice
REGISTRY = {rule.code: rule for rule in (SYNTAX, UNKNOWN_KEY, WRONG_VALUE, MISSING, TWICE)}


def _rule(code: str, name: str, title: str, severity: Severity = Severity.ERROR) -> Rule:
    if code in REGISTRY:
        raise ValueError(f"two pipeline rules have the code {code}")
    REGISTRY[code] = Rule(code, name, title, int(code[2]), severity)
    return REGISTRY[code]


BAD_NAME = _rule("PL006", "bad_name", "a name cannot be used in SQL as it stands")
UNKNOWN_NAME = _rule("PL007", "unknown_name", "a name is that of no source and no transform")
CYCLE = _rule("PL008", "cycle", "transforms need each other, so none can be first")
SAME_BRANCH = _rule("PL009", "same_branch", "a branch is to be merged into itself")

# -- sources and transforms, as Spark sees them ------------------------------------------------------

SOURCE = _rule("PL101", "unreadable_source", "Spark cannot read a source")
WATERMARK = _rule("PL102", "watermark", "the watermark is no column of the source, or has no order")
SQL = _rule("PL103", "sql", "Spark refuses an SQL text, or it is no query")
PYTHON = _rule("PL104", "python", "a Python transform cannot be found, or fails, or returns no DataFrame")
TAKEN_NAME = _rule("PL105", "taken_name", "a table of Spark's own catalog has the name")

# -- targets against the schema ----------------------------------------------------------------------

BRANCH = _rule("PL201", "unknown_branch", "a branch does not exist")
TYPE = _rule("PL202", "unknown_type", "a target names an unknown type")
COLUMN = _rule("PL203", "unknown_column", "a mapping names a column that the rows do not have")
PROPERTY = _rule("PL204", "unknown_property", "a column is no property of the type")
MISFIT = _rule("PL205", "column_type", "no value of a column's type fits the property")
REQUIRED = _rule("PL206", "required", "a required property has no column")
KEY = _rule("PL207", "key", "a property of the key has no column")
ENDS = _rule("PL208", "ends", "an edge has no column for one of its ends")
END_TYPE = _rule("PL209", "end_type", "a column cannot hold the ids of the nodes at that end")
COLUMN_TWICE = _rule("PL210", "column_twice", "two columns mean the same property")

# -- advice ------------------------------------------------------------------------------------------

NO_NODES = _rule("PL301", "no_nodes", "edges end at nodes that are neither stored nor loaded", Severity.WARN)
UNUSED = _rule("PL302", "unused", "nothing uses a source or a transform", Severity.WARN)
REPLACES = _rule(
    "PL303", "replaces", "run --since is refused: a target replaces its type by new rows only", Severity.WARN
)


# == what a file says ==============================================================================

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
    spans: KeySpans = field(default=KeySpans(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SqlSpec:
    """Rows that a query makes of others."""

    name: str
    sql: str
    spans: KeySpans = field(default=KeySpans(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PythonSpec:
    """Rows that a function of a module beside the file makes of others."""

    name: str
    module: str
    function: str
    inputs: tuple[str, ...] = ()
    spans: KeySpans = field(default=KeySpans(), compare=False, repr=False)


TransformSpec: TypeAlias = SqlSpec | PythonSpec


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Where rows go."""

    type: str
    rows: str  # the source or transform
    mode: LoadMode
    columns: Mapping[str, str] = FrozenMap()  # column -> property, `from` or `to`
    spans: KeySpans = field(default=KeySpans(), compare=False, repr=False)
    column_spans: KeySpans = field(default=KeySpans(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExpectationSpec:
    """A query that must find nothing."""

    name: str
    sql: str
    spans: KeySpans = field(default=KeySpans(), compare=False, repr=False)


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
    rejects: str | None = None  # the Parquet file that lists rejected rows
    then: ThenSpec | None = None
    source: SourceText = field(
        default_factory=lambda: SourceText("", "pipeline.yaml"), compare=False, repr=False
    )
    spans: KeySpans = field(default=KeySpans(), compare=False, repr=False)

    @property
    def watermarks(self) -> tuple[SourceSpec, ...]:
        """The sources that can be read from where an earlier run stopped."""
        return tuple(source for source in self.sources if source.watermark is not None)

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

    >>> try:
    ...     parse_pipeline("targets: [{type: Book, from: raw, mode: merge}]")
    ... except PipelineError as error:
    ...     print(error.summary)
    'from' is 'raw', which is no source and no transform at pipeline.yaml:1:30 [PL007]
    """
    document = YamlDocument(SourceText(text, file), PIPELINE_FILE)
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
        pipeline = Pipeline(
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
            spans=top.spans(),
        )
        top.end()
        self._references(pipeline)
        return pipeline

    # -- where rows come from ----------------------------------------------------------------------

    def _sources(self, entries: YamlMapping) -> tuple[SourceSpec, ...]:
        sources = []
        for name in entries.names():
            self._name(name, entries.key_span(name), "source")
            entry = entries.mapping(name, f"source {name!r}")
            sources.append(
                SourceSpec(
                    name,
                    entry.text("format", needed=True) or "",
                    entry.texts("path"),
                    entry.options("options"),
                    entry.text("schema"),
                    entry.text("watermark"),
                    KeySpans({**entry.spans(), "": entries.key_span(name)}),
                )
            )
            entry.end()
        return tuple(sources)

    def _transforms(self, entries: YamlMapping) -> tuple[TransformSpec, ...]:
        transforms: list[TransformSpec] = []
        for name in entries.names():
            self._name(name, entries.key_span(name), "transform")
            entry = entries.mapping(name, f"transform {name!r}")
            sql, python, inputs = entry.text("sql"), entry.text("python"), entry.texts("inputs")
            spans = KeySpans({**entry.spans(), "": entries.key_span(name)})
            if entry.has("sql") == entry.has("python"):
                both = "both 'sql' and 'python'" if sql else "neither 'sql' nor 'python'"
                self._wrong(f"transform {name!r} has {both}; it needs one of them", spans[""])
            elif entry.has("sql") and entry.has("inputs"):
                self._wrong(f"transform {name!r} is SQL, which names its inputs itself", spans["inputs"])
            if sql is not None:
                transforms.append(SqlSpec(name, sql, spans))
            elif python is not None:
                transforms.append(self._python(name, python, inputs, spans))
            entry.end()
        return tuple(transforms)

    def _python(self, name: str, reference: str, inputs: tuple[str, ...], spans: KeySpans) -> PythonSpec:
        if FUNCTION.fullmatch(reference) is None:
            self._wrong(f"{reference!r} is not MODULE:FUNCTION, such as 'transforms:clean'", spans["python"])
        module, _, function = reference.partition(":")
        return PythonSpec(name, module, function, inputs, spans)

    def _name(self, name: str, span: Span, kind: str) -> None:
        """Take in the name of a source or transform; they share one name space, as tables of one query."""
        if NAME.fullmatch(name) is None:
            self._reporter.report(
                BAD_NAME, f"{kind} {name!r}: a name has letters, digits and _, and starts with no digit", span
            )
        if name in self._named:
            self._reporter.report(TWICE, f"{name!r} is the name of a source already", span)
        self._named.setdefault(name, span)

    # -- where rows go -----------------------------------------------------------------------------

    def _targets(self) -> tuple[TargetSpec, ...]:
        targets: dict[str, TargetSpec] = {}
        for entry in self._top.items("targets", "a target", needed=True):
            type_name, rows = entry.text("type", needed=True), entry.text("from", needed=True)
            mode = next((m for m in MODES if m == entry.text("mode", needed=True, one_of=MODES)), None)
            column_entries = entry.mapping("columns", "'columns' of a target")
            texts = {name: column_entries.text(name) for name in column_entries.names()}
            entry.end()
            if type_name is None or rows is None or mode is None:
                continue
            spans = entry.spans()
            if type_name in targets:
                self._reporter.report(
                    TWICE, f"type {type_name!r} is the target of two entries", spans["type"], _UNION
                )
            columns = FrozenMap({name: text for name, text in texts.items() if text is not None})
            targets[type_name] = TargetSpec(type_name, rows, mode, columns, spans, column_entries.spans())
        return tuple(targets.values())

    def _expectations(self) -> tuple[ExpectationSpec, ...]:
        expectations: dict[str, ExpectationSpec] = {}
        for entry in self._top.items("expectations", "an expectation"):
            name, sql = entry.text("name", needed=True), entry.text("sql", needed=True)
            entry.end()
            if name is None or sql is None:
                continue
            spans = entry.spans()
            if name in expectations:
                self._reporter.report(TWICE, f"two expectations have the name {name!r}", spans["name"])
            expectations[name] = ExpectationSpec(name, sql, spans)
        return tuple(expectations.values())

    def _violations(self) -> tuple[OnViolation, str | None]:
        """Read what happens to rows that break a rule, and where those go that are rejected."""
        top = self._top
        on_violation, rejects = top.text("on_violation", one_of=("fail", "reject")), top.text("rejects")
        if on_violation == "reject":
            if not top.has("rejects"):
                top.missing("rejects")
            elif rejects is not None:
                self._check_rejects(rejects)
            return "reject", rejects
        if rejects is not None and on_violation in (None, "fail"):
            self._wrong("'rejects' has a meaning with 'on_violation: reject' only", top.spans()["rejects"])
        return "fail", rejects

    def _check_rejects(self, rejects: str) -> None:
        try:
            reject_file(rejects)
        except InvalidRequest as error:
            self._wrong(f"'rejects': {error.message}", self._top.spans()["rejects"])

    def _then(self, branch: str) -> ThenSpec | None:
        entry = self._top.mapping("then", "'then'")
        if not self._top.has("then"):
            return None
        merge, preview = entry.text("merge"), entry.text("preview")
        entry.end()
        if entry.has("merge") == entry.has("preview"):
            span = self._top.spans()["then"]
            self._wrong("'then' takes {merge: BRANCH} or {preview: BRANCH}, and one of them", span)
            return None
        into = merge or preview
        if into is None:
            return None
        if into == branch:
            key = "merge" if entry.has("merge") else "preview"
            self._reporter.report(
                SAME_BRANCH,
                f"the rows go to {branch!r} already: nothing is left to merge into it",
                entry.spans()[key],
                "name another 'branch' for the rows, or leave 'then' out",
            )
        return ThenSpec("preview" if merge is None else "merge", into)

    # -- names -------------------------------------------------------------------------------------

    def _references(self, pipeline: Pipeline) -> None:
        """Report names of rows that do not exist; those in SQL are for Spark to find."""
        for target in pipeline.targets:
            self._reference("'from'", target.rows, target.spans["from"])
        for transform in pipeline.transforms:
            for name in transform.inputs if isinstance(transform, PythonSpec) else ():
                self._reference(f"an input of {transform.name!r}", name, transform.spans["inputs"])

    def _reference(self, what: str, name: str, span: Span) -> None:
        if name not in self._named:
            hint = did_you_mean(name, self._named)
            message = f"{what} is {name!r}, which is no source and no transform"
            self._reporter.report(UNKNOWN_NAME, message, span, hint)

    def _wrong(self, message: str, span: Span) -> None:
        self._reporter.report(WRONG_VALUE, message, span)


_UNION = "put the rows together by a transform: select ... union all select ..."
