"""What type checkers and editors know of the package; `__init__.py` imports the same names lazily."""

from omnigraph.base.arguments import (
    BadArgument as BadArgument,
)
from omnigraph.base.errors import (
    AlreadyInitialized as AlreadyInitialized,
)
from omnigraph.base.errors import (
    AmbiguousCommit as AmbiguousCommit,
)
from omnigraph.base.errors import (
    AuthenticationError as AuthenticationError,
)
from omnigraph.base.errors import (
    BadMoment as BadMoment,
)
from omnigraph.base.errors import (
    BranchExists as BranchExists,
)
from omnigraph.base.errors import (
    BranchNotFound as BranchNotFound,
)
from omnigraph.base.errors import (
    Busy as Busy,
)
from omnigraph.base.errors import (
    ChangeFeedGap as ChangeFeedGap,
)
from omnigraph.base.errors import (
    CommitNotFound as CommitNotFound,
)
from omnigraph.base.errors import (
    ConflictError as ConflictError,
)
from omnigraph.base.errors import (
    ConstraintViolation as ConstraintViolation,
)
from omnigraph.base.errors import (
    CopyInterrupted as CopyInterrupted,
)
from omnigraph.base.errors import (
    DeadlineExceeded as DeadlineExceeded,
)
from omnigraph.base.errors import (
    DestinationRefused as DestinationRefused,
)
from omnigraph.base.errors import (
    EntityNotFound as EntityNotFound,
)
from omnigraph.base.errors import (
    GraphClosed as GraphClosed,
)
from omnigraph.base.errors import (
    GraphError as GraphError,
)
from omnigraph.base.errors import (
    GraphNotFound as GraphNotFound,
)
from omnigraph.base.errors import (
    HistoryReclaimed as HistoryReclaimed,
)
from omnigraph.base.errors import (
    IntegrityError as IntegrityError,
)
from omnigraph.base.errors import (
    InvalidRequest as InvalidRequest,
)
from omnigraph.base.errors import (
    KeyConflict as KeyConflict,
)
from omnigraph.base.errors import (
    Kind as Kind,
)
from omnigraph.base.errors import (
    LimitExceeded as LimitExceeded,
)
from omnigraph.base.errors import (
    MethodNotAllowed as MethodNotAllowed,
)
from omnigraph.base.errors import (
    NotFound as NotFound,
)
from omnigraph.base.errors import (
    OutcomeUnknown as OutcomeUnknown,
)
from omnigraph.base.errors import (
    PastState as PastState,
)
from omnigraph.base.errors import (
    PermissionDenied as PermissionDenied,
)
from omnigraph.base.errors import (
    PreconditionFailed as PreconditionFailed,
)
from omnigraph.base.errors import (
    PublishContention as PublishContention,
)
from omnigraph.base.errors import (
    QueryNotFound as QueryNotFound,
)
from omnigraph.base.errors import (
    SchemaUnsupported as SchemaUnsupported,
)
from omnigraph.base.errors import (
    StaleVersion as StaleVersion,
)
from omnigraph.base.errors import (
    StorageDenied as StorageDenied,
)
from omnigraph.base.errors import (
    StorageError as StorageError,
)
from omnigraph.base.errors import (
    TagExists as TagExists,
)
from omnigraph.base.errors import (
    TagNotFound as TagNotFound,
)
from omnigraph.base.errors import (
    TypeNotFound as TypeNotFound,
)
from omnigraph.base.errors import (
    Unavailable as Unavailable,
)
from omnigraph.base.errors import (
    UnsupportedMedia as UnsupportedMedia,
)
from omnigraph.catalog.query.params import (
    BadParameters as BadParameters,
)
from omnigraph.engine.backup import (
    CloneReport as CloneReport,
)
from omnigraph.engine.backup import (
    CopyReport as CopyReport,
)
from omnigraph.engine.backup import (
    restore as restore,
)
from omnigraph.engine.branches import (
    Branch as Branch,
)
from omnigraph.engine.commits import (
    Tag as Tag,
)
from omnigraph.engine.doctor.report import (
    DoctorReport as DoctorReport,
)
from omnigraph.engine.embed.request import (
    EmbedReport as EmbedReport,
)
from omnigraph.engine.graph import (
    Graph as Graph,
)
from omnigraph.engine.history.changes import (
    Change as Change,
)
from omnigraph.engine.history.diff import (
    Diff as Diff,
)
from omnigraph.engine.lint import (
    LintResult as LintResult,
)
from omnigraph.engine.lint import (
    lint as lint,
)
from omnigraph.engine.merge.conflicts import (
    Conflict as Conflict,
)
from omnigraph.engine.merge.conflicts import (
    MergeConflict as MergeConflict,
)
from omnigraph.engine.merge.conflicts import (
    SchemaConflict as SchemaConflict,
)
from omnigraph.engine.merge.merge import (
    MergeOutcome as MergeOutcome,
)
from omnigraph.engine.open import (
    upgrade as upgrade,
)
from omnigraph.engine.table import (
    TypeRows as TypeRows,
)
from omnigraph.engine.write import (
    Receipt as Receipt,
)
from omnigraph.execution.result import (
    Result as Result,
)
from omnigraph.execution.search.embedding import (
    EmbeddingRefused as EmbeddingRefused,
)
from omnigraph.execution.search.embedding import (
    EmbeddingUnavailable as EmbeddingUnavailable,
)
from omnigraph.language.diagnostics import (
    Diagnostic as Diagnostic,
)
from omnigraph.language.diagnostics import (
    QueryError as QueryError,
)
from omnigraph.language.diagnostics import (
    SchemaError as SchemaError,
)
from omnigraph.language.diagnostics import (
    SourceError as SourceError,
)
from omnigraph.storage.claims import (
    KeyReused as KeyReused,
)
from omnigraph.storage.cleanup import (
    Cleaned as Cleaned,
)
from omnigraph.storage.manifest.records import CommitRecord as Commit
from omnigraph.storage.manifest.upgrade import (
    UpgradeReport as UpgradeReport,
)
from omnigraph.storage.tables.compaction import (
    OptimizePolicy as OptimizePolicy,
)
from omnigraph.surfaces import (
    aio as aio,
)
from omnigraph.surfaces.connect import (
    connect as connect,
)
from omnigraph.surfaces.connect import (
    init as init,
)
from omnigraph.surfaces.policy.policy import (
    Policy as Policy,
)

__version__: str

__all__ = [
    "AlreadyInitialized",
    "AmbiguousCommit",
    "AuthenticationError",
    "BadArgument",
    "BadMoment",
    "BadParameters",
    "Branch",
    "BranchExists",
    "BranchNotFound",
    "Busy",
    "Change",
    "ChangeFeedGap",
    "Cleaned",
    "CloneReport",
    "Commit",
    "CommitNotFound",
    "Conflict",
    "ConflictError",
    "ConstraintViolation",
    "CopyInterrupted",
    "CopyReport",
    "DeadlineExceeded",
    "DestinationRefused",
    "Diagnostic",
    "Diff",
    "DoctorReport",
    "EmbedReport",
    "EmbeddingRefused",
    "EmbeddingUnavailable",
    "EntityNotFound",
    "Graph",
    "GraphClosed",
    "GraphError",
    "GraphNotFound",
    "HistoryReclaimed",
    "IntegrityError",
    "InvalidRequest",
    "KeyConflict",
    "KeyReused",
    "Kind",
    "LimitExceeded",
    "LintResult",
    "MergeConflict",
    "MergeOutcome",
    "MethodNotAllowed",
    "NotFound",
    "OptimizePolicy",
    "OutcomeUnknown",
    "PastState",
    "PermissionDenied",
    "Policy",
    "PreconditionFailed",
    "PublishContention",
    "QueryError",
    "QueryNotFound",
    "Receipt",
    "Result",
    "SchemaConflict",
    "SchemaError",
    "SchemaUnsupported",
    "SourceError",
    "StaleVersion",
    "StorageDenied",
    "StorageError",
    "Tag",
    "TagExists",
    "TagNotFound",
    "TypeNotFound",
    "TypeRows",
    "Unavailable",
    "UnsupportedMedia",
    "UpgradeReport",
    "__version__",
    "aio",
    "connect",
    "init",
    "lint",
    "restore",
    "upgrade",
]
