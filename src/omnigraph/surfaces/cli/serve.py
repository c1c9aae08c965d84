"""Serve: one or several graphs over HTTP. What a server needs is imported when one is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.cli.settings import Settings, is_served, read_project
from omnigraph.surfaces.cli.support.call import Address, GraphUri, call_of
from omnigraph.surfaces.environment import variable

if TYPE_CHECKING:
    from omnigraph.surfaces.server.settings import ServedAddress

Bind = Annotated[
    str | None,
    typer.Option(
        "--bind", metavar="HOST:PORT", help="Where to listen; 127.0.0.1:8080 if not given, port 0 picks one."
    ),
]
GraphId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="The graph's name in paths; from its address if not given."),
]
Unauthenticated = Annotated[
    bool, typer.Option("--unauthenticated", help="Let everybody do everything, without a token.")
]
AllowPublic = Annotated[
    bool, typer.Option("--allow-public", help="With --unauthenticated: also from other machines.")
]
PolicyFile = Annotated[
    list[Path] | None,
    typer.Option("--policy", metavar="FILE", help="Who may do what; one for graphs, one for the server."),
]
Queries = Annotated[
    Path | None, typer.Option("--queries", metavar="DIR", help="Stored queries: a folder of .gq files.")
]
Tokens = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help="Who has which token; read again when it changes."),
]
TokensCommand = Annotated[
    str | None,
    typer.Option(
        "--tokens-command", metavar="CMD", help="A program that prints who has which token; at SIGHUP again."
    ),
]
ConfigFlag = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Serve the graphs that a project file names."),
]
RequireAll = Annotated[
    bool, typer.Option("--require-all-graphs", help="Do not start if any graph cannot be opened.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse every write.")]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        "--cors", metavar="ORIGIN", help="Let pages of this origin call the server. Repeat for more."
    ),
]
Optimize = Annotated[
    str | None,
    typer.Option(
        "--optimize", metavar="WHEN", help="Optimize in the background where it is due: every=5m, thresholds."
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse scans without an index, and answers without a bound.")
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", metavar="NAME=VALUE", help="Another limit than the usual one: see docs/server.md. Repeat."
    ),
]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, help="So many processes.")]


def serve(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    bind: Bind = None,
    graph_id: GraphId = None,
    unauthenticated: Unauthenticated = False,
    allow_public: AllowPublic = False,
    policy: PolicyFile = None,
    queries: Queries = None,
    tokens: Tokens = None,
    tokens_command: TokensCommand = None,
    config: ConfigFlag = None,
    require_all_graphs: RequireAll = False,
    read_only: ReadOnly = False,
    cors: Cors = None,
    optimize: Optimize = None,
    workers: Workers = 1,
    strict: Strict = False,
    limit: Limit = None,
) -> int:
    """Serve graphs over HTTP until the process is told to end."""
    call = call_of(ctx)
    try:
        from omnigraph.surfaces.server.limits import Limits
        from omnigraph.surfaces.server.process import serve as run
        from omnigraph.surfaces.server.settings import DEFAULT_BIND, ServerSettings, UpkeepPolicy
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"a server needs {error.name}",
            remedy="Install omnigraph[server]: pip install 'omnigraph[server]'",
        ) from error
    graphs = _served(call.settings, address, graph_uri, graph_id, config, queries)
    if optimize is None and config is not None:
        optimize = read_project(config).find("project", "server", "optimize")
    if optimize is not None and read_only:
        raise InvalidRequest("a server that only reads cannot optimize", remedy="Leave out --optimize")
    port = variable("PORT") or None
    return run(
        ServerSettings(
            graphs=graphs,
            bind=bind or variable("BIND") or (f"0.0.0.0:{port}" if port else DEFAULT_BIND),
            unauthenticated=unauthenticated or _is_set("UNAUTHENTICATED"),
            allow_public=allow_public,
            read_only=read_only,
            strict=strict or _is_set("STRICT"),
            require_all_graphs=require_all_graphs or _is_set("REQUIRE_ALL_GRAPHS"),
            policies=tuple(policy or ()),
            tokens=tokens,
            tokens_command=tokens_command,
            cors=tuple(cors or ()),
            workers=workers,
            upkeep=None if optimize is None else UpkeepPolicy.read(optimize),
            limits=Limits.told(limit or (), os.environ, _limits_of(call.settings, config)),
            environment=os.environ,
        )
    )


def _served(
    settings: Settings,
    address: str | None,
    graph_uri: str | None,
    graph_id: str | None,
    config: Path | None,
    queries: Path | None,
) -> tuple[ServedAddress, ...]:
    """Return the graphs to serve: the one that is named, or those of a project file."""
    from omnigraph.surfaces.server.graphs import id_of
    from omnigraph.surfaces.server.settings import ServedAddress

    if config is None or address or graph_uri:
        where = settings.address(address, graph_uri)
        if is_served(where):
            raise InvalidRequest(
                "serve works on the storage of a graph, and a server does not give that out",
                remedy="Give the address of the storage: a path or s3://..., on a machine that reaches it",
            )
        return (ServedAddress(graph_id or id_of(where), where, queries),)
    project = read_project(config)
    names = project.find("project", "graphs") or {}
    if not names:
        raise InvalidRequest(f"{config} names no graph", remedy="Add graphs: with a uri for each")
    only = project.find("project", "server", "graph")
    if only is not None and only not in names:
        raise InvalidRequest(f"{config}: server.graph is {only!r}, which is not among graphs")
    served = []
    for name in [only] if only else names:
        uri = project.graph_uri(name)
        if uri is None:
            raise InvalidRequest(f"{config}: graph {name!r} has no uri")
        folder = project.find("project", "graphs", name, "queries")
        stored = project.project_folder / folder if isinstance(folder, str) else queries
        file = project.find("project", "graphs", name, "policy", "file")
        served.append(
            ServedAddress(
                graph_id if only and graph_id else name,
                uri,
                stored,
                None if file is None else project.project_folder / file,
            )
        )
    return tuple(served)


def _limits_of(settings: Settings, config: Path | None) -> Mapping[str, Any]:
    """Return the limits that a project file asks for: the one that is named, or that of the folder."""
    project = settings.config if config is None else read_project(config)
    return project.find("project", "server", "limits") or {}


def _is_set(name: str) -> bool:
    return (variable(name) or "").lower() in ("1", "true", "yes", "on")
