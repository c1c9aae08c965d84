"""Access: who may ask a server what, from its settings: tokens, policies, or nobody asked.

Made once when the process starts; a request gets the guard of its actor on its graph. A graph that an actor
has no part in is answered like one that there is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, PermissionDenied
from omnigraph.engine.access import Action, Guard
from omnigraph.surfaces.server.identity import AccessMode, Identity, StartState, start_state
from omnigraph.surfaces.server.jwt import JwtSettings, JwtVerifier
from omnigraph.surfaces.server.settings import ServerSettings
from omnigraph.surfaces.server.tokens import TokenSource

if TYPE_CHECKING:
    from omnigraph.surfaces.policy.policy import Policy

SERVER = "server"


@dataclass(frozen=True, slots=True)
class ReadingGuard:
    """Allows to read, and nothing else: what a token is good for without a policy."""

    resource: str

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Raise PermissionDenied for everything but a read."""
        if action is not Action.READ:
            raise PermissionDenied(
                f"no policy allows to {action.value.replace('_', ' ')} here",
                remedy="Whoever runs the server can give it a policy",
                action=action.value,
                resource=self.resource,
            )


@dataclass(frozen=True, eq=False)
class AccessRules:
    """What decides about requests: the identities, and a policy for each graph and for the server."""

    state: StartState
    identity: Identity | None = None
    policies: Mapping[str, Policy] | None = None  # by graph id; a graph without one is only read
    of_server: Policy | None = None

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self.state.mode is AccessMode.OPEN

    def guard(self, actor: str | None, graph_id: str) -> Guard | None:
        """Return who is asked before an actor does something on a graph."""
        if self.is_open:
            return None
        policy = (self.policies or {}).get(graph_id)
        return ReadingGuard(graph_id) if policy is None else policy.guard(actor, graph_id)

    def knows(self, actor: str | None, graph_id: str) -> bool:
        """Say whether an actor is to know that a graph is there: a policy names him, or there is none."""
        policy = None if self.is_open else (self.policies or {}).get(graph_id)
        return policy is None or (actor is not None and actor in policy.bundle.actors)

    def check_server(self, actor: str | None, action: Action) -> None:
        """Raise PermissionDenied unless an actor may do something that concerns no single graph."""
        if self.is_open:
            return
        if self.of_server is None:
            ReadingGuard(SERVER).check(action)
        else:
            self.of_server.server_guard(actor).check(action)


OPEN = AccessRules(StartState(AccessMode.OPEN))


def read_access(settings: ServerSettings) -> AccessRules:
    """Read tokens and policies; raises InvalidRequest if a server must not start like this."""
    tokens = TokenSource.from_environment(
        settings.environment, file=settings.tokens, command=settings.tokens_command
    )
    told = JwtSettings.from_environment(settings.environment)
    jwt = None if told is None else JwtVerifier(told)
    graphs, of_server = read_policies(settings)
    known = tokens is not None or jwt is not None
    state = start_state(
        tokens=known,
        policy=bool(graphs) or of_server is not None,
        unauthenticated=settings.unauthenticated,
        host=settings.host,
        allow_public=settings.allow_public,
    )
    return AccessRules(state, Identity(tokens, jwt) if known else None, graphs, of_server)


def read_policies(settings: ServerSettings) -> tuple[dict[str, Policy], Policy | None]:
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
    return graphs, of_server
