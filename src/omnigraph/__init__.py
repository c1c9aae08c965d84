"""OmniGraph: a typed, versioned property-graph database kept as open Lance files.

    import omnigraph as og

    with og.init(None, "node Person { name: String @key }") as g:  # None: a temporary graph
        g.load([{"type": "Person", "data": {"name": "Ada"}}], mode="append")
        print(g.query("query all() { match { $p: Person } return { $p.name } }"))

What `__all__` lists is public, and so is `omnigraph.pipeline`; everything else is internal. A name is
imported when it is first used: `import omnigraph` by itself loads neither Arrow nor Lance. Type checkers
read `__init__.pyi`, which says the same; a test compares the two.
"""

from importlib import import_module
from typing import Any

_NAMES_BY_MODULE = {
    "base.arguments": "BadArgument",
    "base.errors": """
        AlreadyInitialized AmbiguousCommit AuthenticationError BadMoment BranchExists BranchNotFound
        Busy ChangeFeedGap CommitNotFound ConflictError ConstraintViolation CopyInterrupted
        DeadlineExceeded DestinationRefused EntityNotFound
        GraphClosed GraphError GraphNotFound HistoryReclaimed IntegrityError InvalidRequest
        KeyConflict Kind LimitExceeded MethodNotAllowed NotFound OutcomeUnknown PastState
        PermissionDenied PreconditionFailed PublishContention QueryNotFound SchemaUnsupported
        StaleVersion StorageDenied StorageError TagExists TagNotFound TypeNotFound Unavailable
        UnsupportedMedia
    """,
    "catalog.query.params": "BadParameters",
    "engine.backup": "CloneReport CopyReport restore",
    "engine.branches": "Branch",
    "engine.commits": "Tag",
    "engine.doctor.report": "DoctorReport",
    "engine.embed.request": "EmbedReport",
    "engine.graph": "Graph",
    "engine.history.changes": "Change",
    "engine.history.diff": "Diff",
    "engine.lint": "LintResult lint",
    "engine.merge.conflicts": "Conflict MergeConflict SchemaConflict",
    "engine.merge.merge": "MergeOutcome",
    "engine.open": "upgrade",
    "engine.table": "TypeRows",
    "engine.write": "Receipt",
    "execution.result": "Result",
    "execution.search.embedding": "EmbeddingRefused EmbeddingUnavailable",
    "language.diagnostics": "Diagnostic QueryError SchemaError SourceError",
    "storage.claims": "KeyReused",
    "storage.cleanup": "Cleaned",
    "storage.manifest.records": "Commit",
    "storage.manifest.upgrade": "UpgradeReport",
    "storage.tables.compaction": "OptimizePolicy",
    "surfaces.connect": "connect init",
    "surfaces.policy.policy": "Policy",
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
_OTHER_NAMES = {"Commit": "CommitRecord"}  # what the defining module calls it
_NAMESPACES = {"aio": "surfaces.aio"}  # modules whose names are called as `omnigraph.aio.connect`

__all__ = [*sorted([*_MODULES, *_NAMESPACES]), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _NAMESPACES:
        value = import_module(f"omnigraph.{_NAMESPACES[name]}")
    elif name in _MODULES:
        module = import_module(f"omnigraph.{_MODULES[name]}")
        value = getattr(module, _OTHER_NAMES.get(name, name))
    else:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("omnigraph")
    except PackageNotFoundError:  # running from a source tree that was never installed
        return "0+unknown"
