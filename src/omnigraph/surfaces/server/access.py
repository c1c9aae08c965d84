"""Access: who may ask a server what, from its settings: tokens, policies, or nobody asked.

Made once when the process starts; a request gets the guard of its actor on its graph. A graph that an actor
has no part in is answered like one that there is not. Policies are read again when a file of them changes;
one that is refused leaves all of them as they were.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, InvalidRequest, PermissionDenied, counted
from omnigraph.base.ids import Clock, SystemClock
from omnigraph.engine.access import Action, Guard
from omnigraph.surfaces.policy.audit import AuditRecord, log_audit
from omnigraph.surfaces.server.identity import AccessMode, Identity, StartState, start_state
from omnigraph.surfaces.server.jwt import JwtSettings, JwtVerifier
from omnigraph.surfaces.server.settings import ServerSettings
from omnigraph.surfaces.server.tokens import FileWatch, TokenSource

if TYPE_CHECKING:
    from omnigraph.surfaces.policy.policy import Policy

log = logging.getLogger(__name__)
SERVER = "server"


@dataclass(frozen=True, slots=True)
class ReadingGuard:
    """Allows to read, and nothing else: what a token is good for without a policy."""

    resource: str
    actor: str | None
    audit: Callable[[AuditRecord], None]

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Raise PermissionDenied for everything but a read."""
        allowed = action is Action.READ
        outcome = "allow" if allowed else "deny"
        self.audit(AuditRecord(self.actor, action.value, self.resource, branch, target, outcome, None))
        if not allowed:
            raise PermissionDenied(
                f"no policy allows to {action.value.replace('_', ' ')} here",
                remedy="Whoever runs the server can give it a policy",
                action=action.value,
                resource=self.resource,
            )


@dataclass(frozen=True, eq=False)
class Policies:
    """The policies of a server at one moment; a graph without one is only read."""

    graphs: Mapping[str, Policy] = field(default_factory=dict)
    of_server: Policy | None = None


class PolicyFiles:
    """The policies of a server, read again when their files change. Safe for many threads."""

    def __init__(self, settings: ServerSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._watches = [FileWatch(file, clock or SystemClock()) for file in _files(settings)]
        self._lock = threading.Lock()
        self._policies = read_policies(settings)

    @property
    def now(self) -> Policies:
        """The policies that hold now; whoever comes while they are read takes those before."""
        if self._watches and self._lock.acquire(blocking=False):
            try:
                changed = [watch.changed() for watch in self._watches]  # each of them looks
                if any(changed):
                    self._read()
            finally:
                self._lock.release()
        return self._policies

    def reload(self) -> bool:
        """Read the files again, as at SIGHUP; say whether that went well."""
        with self._lock:
            return self._read()

    def _read(self) -> bool:
        try:
            self._policies = read_policies(self._settings)
        except GraphError as error:
            log.error("the policies were not reloaded, the earlier ones stay: %s", error)
            return False
        log.info("reloaded the policies: %s", counted(len(self._watches), "file"))
        return True


@dataclass(frozen=True, eq=False)
class AccessRules:
    """What decides about requests: the identities, and a policy for each graph and for the server."""

    state: StartState
    identity: Identity | None = None
    files: PolicyFiles | None = None
    decided: Callable[[str, str], None] | None = None  # is told each action and its decision

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self.state.mode is AccessMode.OPEN

    @property
    def policies(self) -> Policies:
        """The policies that hold now."""
        return Policies() if self.files is None else self.files.now

    def guard(self, actor: str | None, graph_id: str, request_id: str | None = None) -> Guard | None:
        """Return who is asked before an actor does something on a graph."""
        if self.is_open:
            return None
        audit = partial(self.audit, request_id=request_id)
        policy = self.policies.graphs.get(graph_id)
        if policy is None:
            return ReadingGuard(graph_id, actor, audit)
        return policy.guard(actor, graph_id, audit)

    def knows(self, actor: str | None, graph_id: str) -> bool:
        """Say whether an actor is to know that a graph is there: a policy names him, or there is none."""
        policy = None if self.is_open else self.policies.graphs.get(graph_id)
        return policy is None or (actor is not None and actor in policy.bundle.actors)

    def check_server(self, actor: str | None, action: Action) -> None:
        """Raise PermissionDenied unless an actor may do something that concerns no single graph."""
        if self.is_open:
            return
        policy = self.policies.of_server
        if policy is None:
            ReadingGuard(SERVER, actor, self.audit).check(action)
        else:
            policy.server_guard(actor, self.audit).check(action)

    def audit(self, record: AuditRecord, request_id: str | None = None) -> None:
        """Record and count a decision."""
        log_audit(replace(record, request_id=request_id))
        if self.decided is not None:
            self.decided(record.action, record.decision)

    def reload(self) -> None:
        """Read tokens and policies again; waits for commands."""
        for source in (self.identity, self.files):
            if source is not None:
                source.reload()


OPEN = AccessRules(StartState(AccessMode.OPEN))


def read_access(settings: ServerSettings) -> AccessRules:
    """Read tokens and policies; raises InvalidRequest if a server must not start like this."""
    tokens = TokenSource.from_environment(
        settings.environment, file=settings.tokens, command=settings.tokens_command
    )
    told = JwtSettings.from_environment(settings.environment)
    jwt = None if told is None else JwtVerifier(told)
    files = PolicyFiles(settings)
    known = tokens is not None or jwt is not None
    state = start_state(
        tokens=known,
        policy=bool(files.now.graphs) or files.now.of_server is not None,
        unauthenticated=settings.unauthenticated,
        host=settings.host,
        allow_public=settings.allow_public,
    )
    return AccessRules(state, Identity(tokens, jwt) if known else None, files)


def _files(settings: ServerSettings) -> list[Path]:
    of_graphs = [address.policy for address in settings.graphs if address.policy is not None]
    return sorted({*settings.policies, *of_graphs})


def read_policies(settings: ServerSettings) -> Policies:
    """Return the policies by graph, and that of the server; a policy for all graphs fills the gaps."""
    by_file: dict[Path, Policy] = {}

    def read(file: Path) -> Policy:
        if file not in by_file:
            from omnigraph.surfaces.policy.policy import Policy

            by_file[file] = Policy.read(file)
        return by_file[file]

    of_server = of_graphs = None
    for file in settings.policies:
        if read(file).kind == SERVER:
            of_server = read(file)
        else:
            of_graphs = read(file)
    graphs: dict[str, Policy] = {}
    for address in settings.graphs:
        policy = of_graphs if address.policy is None else read(address.policy)
        if policy is not None and policy.kind == SERVER:
            raise InvalidRequest(
                f"{address.policy} is the policy of a server, and not of graph {address.graph_id!r}",
                remedy="Give it with --policy",
            )
        if policy is not None:
            graphs[address.graph_id] = policy
    return Policies(graphs, of_server)
