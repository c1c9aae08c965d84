"""Namespaces: `branches`, `commits`, `tags` and `schema` of a remote graph, as of an embedded one."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from omnigraph.base.arguments import checked_methods
from omnigraph.base.errors import (
    BranchExists,
    BranchNotFound,
    GraphError,
    NotFound,
    PermissionDenied,
    TagExists,
    TagNotFound,
)
from omnigraph.base.times import At
from omnigraph.catalog import diagram
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.encode import dumps
from omnigraph.catalog.lint import lint
from omnigraph.catalog.steps import Dedupe
from omnigraph.engine.branches import Branch
from omnigraph.engine.commits import Tag
from omnigraph.engine.options import View
from omnigraph.engine.schema.hard_drop import ReclaimedType
from omnigraph.engine.schema.schema import SchemaText, load_schema, read_schema
from omnigraph.language.diagnostics import Diagnostic, SourceText
from omnigraph.storage.history import LIMIT, Page, check_page
from omnigraph.storage.manifest.records import CommitRecord
from omnigraph.surfaces.client import decode
from omnigraph.surfaces.client.calls import Calls, Json, moment, no_actor
from omnigraph.surfaces.client.failures import diagnostic
from omnigraph.surfaces.client.steps import RemoteSchemaPlan, RemoteSchemaReceipt, steps
from omnigraph.surfaces.client.transport import segment


@checked_methods
class RemoteBranches:
    """The branches of one graph."""

    def __init__(self, calls: Calls, view: View) -> None:
        self._calls = calls
        self._view = view

    def create(
        self, name: str, from_: str | None = None, *, at: At | None = None, dry_run: bool = False
    ) -> Branch:
        """Fork a branch from another one's head, or from any state that `at` names."""
        from_, at = self._view.read(from_, at)
        body = {"name": name, "from": from_, "snapshot": moment(at), "dry_run": dry_run or None}

        def already(error: GraphError) -> Json | None:
            """Say whether the branch that is in the way is the one that a lost reply was about."""
            if not isinstance(error, BranchExists):
                return None
            there = self._document(name.strip())
            alike = at is not None or there.get("parent") in (None, from_)
            return there if there.get("ahead") == 0 and alike else None

        return decode.branch(self._calls.write("POST", "/branches", body, dry_run=dry_run, settle=already))

    def list(self, *, counts: bool = False) -> tuple[Branch, ...]:
        """Return main and then the other branches by name; with `counts` also heads, ahead and behind."""
        document = self._calls.read("/branches", counts=counts or None)
        return tuple(decode.branch(entry) for entry in document["details"])

    def get(self, name: str) -> Branch:
        """Return one branch with its head and counts."""
        return decode.branch(self._document(name))

    def rename(self, old: str, new: str, *, dry_run: bool = False) -> Branch:
        """Give a branch another name; whoever uses the old one gets `branch_not_found` from then on."""

        def already(error: GraphError) -> Json | None:
            return self._document(new.strip()) if isinstance(error, BranchNotFound) else None

        body = {"name": new, "dry_run": dry_run or None}
        return decode.branch(self._calls.write("PATCH", _branch(old), body, dry_run=dry_run, settle=already))

    def delete(self, name: str, *, dry_run: bool = False) -> Branch:
        """Delete a branch that nothing was forked from and nothing of which is tagged; return what it was."""
        was = None
        if not dry_run:  # a lost reply would have said what it was; whether it may be deleted is said below
            with suppress(BranchNotFound, PermissionDenied):
                was = self._document(name)

        def already(error: GraphError) -> Json | None:
            return was if isinstance(error, BranchNotFound) else None

        query = {"dry_run": dry_run or None}
        document = self._calls.write("DELETE", _branch(name), query=query, dry_run=dry_run, settle=already)
        return decode.branch({**(was or {}), **document})

    def _document(self, name: str) -> Json:
        return self._calls.read(_branch(name))


def _branch(name: str) -> str:
    return f"/branches/{segment(name)}"


@checked_methods
class RemoteCommits:
    """The commits of one graph."""

    def __init__(self, calls: Calls, view: View) -> None:
        self._calls = calls
        self._view = view

    def list(
        self,
        branch: str | None = None,
        limit: int = 50,
        before: str | None = None,
        *,
        actor: str | None = None,
    ) -> Page:
        """Return the commits of a branch, newest first, those it inherited included.

        `before` is the id of a commit: the page starts after it. `actor` chooses the commits of one actor.
        """
        check_page(limit)
        line, at = self._view.read(branch, None)
        if at is not None and before is None:
            return self._up_to(line, moment(at) or "", limit, actor)
        return decode.commit_page(
            self._calls.read("/commits", branch=line, limit=limit, before=before, actor=actor)
        )

    def _up_to(self, branch: str, at: str, limit: int, actor: str | None) -> Page:
        """Return the page that begins with a commit of the past."""
        first = self.get(at)
        if actor is not None and first.actor != actor:
            return self.list(branch, limit, at, actor=actor)
        if limit <= 1:
            return Page((first,), None if first.parent is None else first.id)
        rest = self.list(branch, limit - 1, first.id, actor=actor)
        return Page((first, *rest.commits), rest.next)

    def graph(self, branch: str | None = None, limit: int = 50) -> tuple[CommitRecord, ...]:
        """Return the commits of a branch and of what was merged into them, as far as it can be found.

        A merged commit whose branch was deleted is only named by the merge.
        """
        commits: dict[str, CommitRecord] = {}
        waiting = deque([partial(self.list, branch, limit)])
        while waiting:
            for commit in waiting.popleft()():
                if commit.id in commits or len(commits) >= LIMIT:
                    break
                commits[commit.id] = commit
                merged = None if commit.merged_parent is None else self._merged(commit.merged_parent)
                if merged is not None:
                    waiting.append(partial(self._up_to, merged.branch, merged.id, limit, None))
        return tuple(commits.values())

    def _merged(self, commit_id: str) -> CommitRecord | None:
        try:
            return self.get(commit_id)
        except NotFound:
            return None

    def get(self, at: At, *, branch: str | None = None) -> CommitRecord:
        """Return one commit by its id, whichever branch made it; or that of any other moment."""
        path = f"/commits/{segment(moment(at) or '')}"
        found = decode.commit_record(self._calls.read(path, branch=self._view.line(branch)))
        assert found is not None
        return found


@checked_methods
class RemoteTags:
    """The tags of one graph."""

    def __init__(self, calls: Calls, view: View) -> None:
        self._calls = calls
        self._view = view

    def create(
        self,
        name: str,
        at: At | None = None,
        *,
        branch: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> Tag:
        """Name a commit: the head of a branch, or any state that `at` names."""
        no_actor(actor)
        line, at = self._view.read(branch, at)
        body = {
            "name": name,
            "at": moment(at),
            "branch": line,
            "message": message,
            "dry_run": dry_run or None,
        }

        def already(error: GraphError) -> Json | None:
            if not isinstance(error, TagExists):
                return None
            there = self._calls.read(_tag(name))
            return there if there.get("message") == message else None

        return decode.tag(self._calls.write("POST", "/tags", body, dry_run=dry_run, settle=already))

    def list(self) -> tuple[Tag, ...]:
        """Return all tags, by name."""
        return tuple(decode.tag(entry) for entry in self._calls.read("/tags")["tags"])

    def get(self, name: str) -> Tag:
        """Return one tag."""
        return decode.tag(self._calls.read(_tag(name)))

    def delete(self, name: str, *, dry_run: bool = False) -> Tag:
        """Take a name away; the commit stays. Returns what the tag was."""
        was = self._calls.read(_tag(name))
        if dry_run:
            return decode.tag(was)

        def already(error: GraphError) -> Json | None:
            return was if isinstance(error, TagNotFound) else None

        self._calls.write("DELETE", _tag(name), settle=already)
        return decode.tag(was)


def _tag(name: str) -> str:
    return f"/tags/{segment(name)}"


@checked_methods
class RemoteSchemas:
    """The schema of a graph's branches."""

    def __init__(self, calls: Calls, view: View) -> None:
        self._calls = calls
        self._view = view

    def catalog(self, branch: str | None = None, at: At | None = None) -> Catalog:
        """Return the resolved schema of a branch, now or then."""
        return Catalog.from_json(dumps(self._document(branch, at)["catalog"]))

    def for_reads(self, branch: str | None = None, at: At | None = None) -> Catalog:
        """Return the schema that reads of a state go by: the names of today, the types of the state."""
        return self.pinned(branch, at)[1]

    def pinned(self, branch: str | None, at: At | None) -> tuple[str, Catalog]:
        """Return the commit of a state, and the schema that reads of it go by."""
        document = self._document(branch, at, for_reads=True)
        return document["graph_commit_id"], Catalog.from_json(dumps(document["catalog"]))

    def show(self, branch: str | None = None, at: At | None = None) -> str:
        """Return the schema text that was accepted."""
        return str(self._document(branch, at)["schema_source"])

    def _document(self, branch: str | None, at: At | None, *, for_reads: bool | None = None) -> Json:
        line, at = self._view.read(branch, at)
        return self._calls.read("/schema", branch=line, snapshot=moment(at), for_reads=for_reads)

    def plan(
        self,
        schema: SchemaText,
        *,
        branch: str | None = None,
        allow_data_loss: bool = False,
        if_commit: str | None = None,
        check_rows: bool = False,
        dedupe: Dedupe | None = None,
    ) -> RemoteSchemaPlan:
        """Say what applying a schema would do; reads the branch's head, writes nothing.

        With `check_rows` the rows that are there are judged as well, as `apply` does before it writes.
        `dedupe` says which edges stay where several would share a key: see `apply`.
        """
        source = _checked(schema)
        document = self._calls.ask(
            "/schema/plan",
            source,
            schema_source=source.text,
            branch=self._view.line(branch),
            allow_data_loss=allow_data_loss,
            if_commit=if_commit,
            check_rows=check_rows,
            dedupe=dedupe,
        )
        return _plan(document)

    def apply(
        self,
        schema: SchemaText,
        *,
        branch: str | None = None,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
        if_commit: str | None = None,
        dedupe: Dedupe | None = None,
        idempotency_key: str | None = None,
    ) -> RemoteSchemaReceipt:
        """Change the schema of a branch: one commit with all its table changes, or none.

        With `allow_data_loss` every drop is hard: once the commit is there, the history of its table is
        deleted, down to what the heads of live branches need. Under an idempotency key it is done once.

        An edge type gets a key only if no two edges share it, or `dedupe` says which one stays: with "equal"
        edges that have equal properties become one, with "latest" the one that changed last.
        """
        no_actor(actor)
        target = self._view.write(branch)
        source = _checked(schema)
        body = {
            "schema_source": source.text,
            "branch": target,
            "allow_data_loss": allow_data_loss,
            "message": message,
            "dedupe": dedupe,
        }
        document = self._calls.write(
            "POST", "/schema/apply", body, if_commit=if_commit, key=idempotency_key, source=source
        )
        return RemoteSchemaReceipt(
            _plan(document),
            self._applied(document.get("commit"), target),
            decode.cost(document.get("cost")),
            tuple(decode.fields_of(ReclaimedType, entry) for entry in document["reclaimed"]),
            tuple(document["warnings"]),
            bool(document.get("replayed")),
        )

    def _applied(self, commit: Any, branch: str) -> CommitRecord | None:
        """Return the commit of an apply; a receipt names it only."""
        if commit is None:
            return None
        whole = commit if isinstance(commit, dict) else self._calls.read(f"/commits/{segment(commit)}")
        return decode.commit_record(whole)

    def lint(self, schema: SchemaText, *, branch: str | None = None) -> tuple[Diagnostic, ...]:
        """Say everything there is to say about a schema text, migration included; raises nothing."""
        text, file = read_schema(schema)
        return lint(text, self.catalog(branch), file=file)

    def diagram(self, branch: str | None = None, *, form: Literal["mermaid", "dot"] = "mermaid") -> str:
        """Return a picture of the schema, as text."""
        catalog = self.catalog(branch)
        return diagram.mermaid(catalog) if form == "mermaid" else diagram.dot(catalog)


def _checked(schema: SchemaText) -> SourceText:
    """Return a schema text that is one; what is wrong with it is said without asking the server."""
    load_schema(schema)
    text, file = read_schema(schema)
    return SourceText(text.decode() if isinstance(text, bytes) else text, file)


def _plan(document: Json) -> RemoteSchemaPlan:
    return RemoteSchemaPlan(
        document["supported"],
        steps(document["steps"]),
        tuple(diagnostic(entry) for entry in document.get("notes", ())),
        document,
    )
