"""Policies: check a bundle, ask it, try it on expected answers, print it as Cedar.

A bundle is a file, or what a server asks for a graph now: that can be asked by whoever administers the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.surfaces.cli.settings import is_served
from omnigraph.surfaces.cli.support.call import Call, call_of
from omnigraph.surfaces.cli.support.command_line import Commands

if TYPE_CHECKING:  # Cedar is an extra: other commands do without
    from omnigraph.surfaces.cli.support.served_policy import RemotePolicy
    from omnigraph.surfaces.policy.cases import CaseOutcome
    from omnigraph.surfaces.policy.policy import Policy, PolicyDecision

app = Commands(help="Check policies: who may do what on which branches.")
File = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="The policy bundle (YAML).")]
OldFile = Annotated[
    Path | None, typer.Option("--policy", "--config", hidden=True, help="Old spelling of --file.")
]
Served = Annotated[
    str | None, typer.Argument(help="Instead of a file: a served graph, http(s)://..., or a configured name.")
]


@app.command("validate", example="omnigraph policy validate --file policy.yaml")
def validate(ctx: typer.Context, address: Served = None, file: File = None, old_file: OldFile = None) -> None:
    """Check a policy bundle; exit 1 if it is refused."""
    call = call_of(ctx)
    with _chosen(call, address, file, old_file) as policy:
        document = policy.facts()
    actors, rules = document["actors"], document["rules"]
    call.output.result(document, f"OK: {counted(actors, 'actor')}, {counted(rules, 'rule')}")


@app.command("test", example="omnigraph policy test --file policy.yaml --tests policy-tests.yaml")
def run_tests(
    ctx: typer.Context,
    tests: Annotated[Path, typer.Option("--tests", metavar="FILE", help="Questions and expected answers.")],
    address: Served = None,
    file: File = None,
    old_file: OldFile = None,
) -> int:
    """Ask a policy questions whose answers are known; exit 1 if one differs."""
    from omnigraph.surfaces.policy.cases import read_cases, run_cases

    call = call_of(ctx)
    cases = read_cases(tests)
    with _chosen(call, address, file, old_file) as policy:
        outcomes = run_cases(policy, cases)
    ok = all(outcome.passed for outcome in outcomes)
    document = {"ok": ok, "cases": [outcome.to_json() for outcome in outcomes]}
    call.output.result(document, *_case_lines(outcomes))
    return 0 if ok else 1


@app.command(
    "explain", example="omnigraph policy explain --file policy.yaml --actor ada --action read --branch main"
)
def explain(
    ctx: typer.Context,
    actor: Annotated[str, typer.Option("--actor", metavar="ACTOR", help="Who asks.")],
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="For what: read, change, ...")],
    address: Served = None,
    target_branch: Annotated[
        str | None,
        typer.Option("--target-branch", metavar="NAME", help="The branch to make, merge into, delete, ..."),
    ] = None,
    file: File = None,
    old_file: OldFile = None,
) -> None:
    """Say what a policy decides, and why; --branch names the branch that is read, written or merged."""
    call = call_of(ctx)
    branch = call.settings.branch if call.settings.branch_given else None
    with _chosen(call, address, file, old_file) as policy:
        decision = policy.decide(actor, action, branch, target_branch)
    call.output.result(decision.to_json(), *_decision_lines(decision))


@app.command("export", example="omnigraph policy export --file policy.yaml")
def export(
    ctx: typer.Context,
    file: File = None,
    old_file: OldFile = None,
    cedar: Annotated[bool, typer.Option("--cedar", help="As Cedar policies, which is the default.")] = True,
) -> None:
    """Print a policy bundle as Cedar policies."""
    call = call_of(ctx)
    text = _policy(call, file, old_file).cedar
    call.output.result({"cedar": text}, text.rstrip("\n"))


def _policy(call: Call, file: Path | None, old_file: Path | None) -> Policy:
    from omnigraph.surfaces.policy.policy import Policy

    if old_file is not None:
        call.output.note("'--policy' and '--config' are now '--file'")
    given = [path for path in (file, old_file) if path is not None]
    if len(given) != 1:
        raise InvalidRequest("one policy is checked at a time", remedy="Give --file FILE")
    return Policy.read(given[0])


@contextmanager
def _chosen(
    call: Call, address: str | None, file: Path | None, old_file: Path | None
) -> Iterator[Policy | RemotePolicy]:
    """Return the policy of a file, or for a block that which a server asks for a graph."""
    if address is None:
        yield _policy(call, file, old_file)
        return
    from omnigraph.surfaces.cli.support.served_policy import RemotePolicy
    from omnigraph.surfaces.client.calls import Calls

    where = call.settings.address(address)
    if file or old_file or not is_served(where):
        raise InvalidRequest(
            "a policy is a file, or what a server asks",
            remedy="Give --file FILE, or http(s)://HOST/graphs/ID",
        )
    with closing(call.transport(where)) as transport:
        yield RemotePolicy(Calls(transport))


def _case_lines(outcomes: tuple[CaseOutcome, ...]) -> Iterator[str]:
    for outcome in outcomes:
        word = "ok" if outcome.passed else "FAILED"
        yield f"{word:<6} {outcome.case.id}: {outcome.decision.message}"
    failed = sum(not outcome.passed for outcome in outcomes)
    yield f"{counted(len(outcomes), 'case')}, {failed} failed"


def _decision_lines(decision: PolicyDecision) -> Iterator[str]:
    yield f"{'allow' if decision.allowed else 'deny'}: {decision.message}"
    for near in decision.nearest:
        yield f"  nearest rule {near.rule!r}: {'; '.join(near.failed)}"
