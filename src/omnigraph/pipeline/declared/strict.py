"""Strict: YAML text as nodes that know their place, read without guessing.

    **YAML nodes** -> pipeline -> frames -> load

Room    pipeline.declared. Knows nothing of pipelines: members of mappings, items of lists, scalars.
Rule    every member is asked for by name and every other one is reported, with what is allowed there. Reading
        goes on after a problem, so that one look finds all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from omnigraph.base.frozen import FrozenMap
from omnigraph.language.diagnostics import Reporter, Source, Span
from omnigraph.language.suggest import did_you_mean
from omnigraph.pipeline.declared.rules import (
    MISSING,
    SYNTAX,
    TWICE,
    UNKNOWN_KEY,
    WRONG_VALUE,
    PipelineError,
)

Places = FrozenMap[str, Span]  # where the values of a mapping stand, by key; "" is the mapping itself
_TAG = "tag:yaml.org,2002:"
_KINDS = {
    "bool": "a boolean",
    "null": "nothing",
    "seq": "a list",
    "map": "a mapping",
    "int": "a number",
    "float": "a number",
    "timestamp": "a date",
}
_TEXTS = frozenset({"str", "int", "float", "timestamp"})  # written without quotes, they are meant as texts


def compose(source: Source) -> tuple[yaml.Node, Reporter]:
    """Return the root of a YAML text, and where to report what is wrong with it."""
    reporter = Reporter(source)
    try:
        root = yaml.compose(source.text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = 0 if mark is None else mark.index
        words = " ".join(part for part in (error.context, error.problem) if part)
        reporter.report(SYNTAX, f"not YAML: {words}", source.span(at, at + 1))
    except (yaml.YAMLError, RecursionError) as error:  # control characters; lists in lists without end
        reporter.report(SYNTAX, f"not YAML: {error}", None)
    else:
        if isinstance(root, yaml.MappingNode):
            return root, reporter
        reporter.report(SYNTAX, "the file is not a mapping of keys to values", None)
    raise PipelineError(source, reporter.found)


class Members:
    """The members of one mapping. Each is asked for once; `end` reports those that nobody asked for."""

    def __init__(self, node: yaml.Node | None, what: str, reporter: Reporter) -> None:
        self._reporter = reporter
        self._what = what
        self._asked: dict[str, None] = {}
        self._nodes: dict[str, yaml.Node] = {}
        self._keys: dict[str, yaml.Node] = {}
        self._node = node
        self._empty = node is None
        if node is not None and not isinstance(node, yaml.MappingNode):
            self._wrong(node, what, "a mapping")
            self._empty = True
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            name = self._key(key)
            if name is None:
                continue
            if name in self._nodes:
                reporter.report(TWICE, f"{name!r} stands twice in {what}", self.span(key))
                continue
            self._nodes[name], self._keys[name] = value, key

    def _key(self, key: yaml.Node) -> str | None:
        if isinstance(key, yaml.ScalarNode):
            return str(key.value)
        self._reporter.report(WRONG_VALUE, f"a key of {self._what} is not a text", self.span(key))
        return None

    # -- what there is -----------------------------------------------------------------------------

    def names(self) -> Iterator[str]:
        """Yield all keys, where any is allowed."""
        for name in self._nodes:
            self._asked[name] = None
            yield name

    def has(self, key: str) -> bool:
        """Say whether a key is there."""
        return key in self._nodes

    def node(self, key: str) -> yaml.Node | None:
        """Return a value as it stands, or None."""
        self._asked[key] = None
        return self._nodes.get(key)

    def text(self, key: str, *, needed: bool = False, one_of: Sequence[str] = ()) -> str | None:
        """Return a text that is not empty, or None; a boolean is none: YAML makes one of a bare `no`."""
        node = self.node(key)
        if node is None:
            if needed:
                self.missing(key)
            return None
        allowed = " or ".join(one_of) if one_of else "a text"
        if not isinstance(node, yaml.ScalarNode) or _kind(node) not in _TEXTS or not node.value:
            self._wrong(node, f"{key!r} of {self._what}", allowed)
            return None
        found = str(node.value)
        if one_of and found not in one_of:
            hint = did_you_mean(found, one_of)
            self._reporter.report(
                WRONG_VALUE,
                f"{key!r} of {self._what} is {found!r}, and takes {allowed}",
                self.span(node),
                hint,
            )
            return None
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text stands for a list of one."""
        node = self.node(key)
        if isinstance(node, yaml.ScalarNode):
            found = self.text(key)
            return () if found is None else (found,)
        items = [] if node is None else self._items(node, f"{key!r} of {self._what}")
        good = [item for item in items if isinstance(item, yaml.ScalarNode) and _kind(item) in _TEXTS]
        for item in items:
            if item not in good:
                self._wrong(item, f"an item of {key!r} of {self._what}", "a text")
        return tuple(str(item.value) for item in good)

    def settings(self, key: str) -> FrozenMap[str, str]:
        """Return a mapping of names to texts; booleans and numbers are texts as Spark writes them."""
        within = self.mapping(key)
        found: dict[str, str] = {}
        for name in within.names():
            node = within.node(name)
            if not isinstance(node, yaml.ScalarNode) or _kind(node) == "null":
                self._wrong(node, f"{name!r} of {key!r}", "a text, a number or a boolean")
            elif _kind(node) == "bool":
                found[name] = "true" if node.value.lower() in ("true", "yes", "on") else "false"
            else:
                found[name] = str(node.value)
        return FrozenMap(found)

    def mapping(self, key: str, what: str | None = None) -> Members:
        """Return the members of a mapping; an absent one has none."""
        return Members(self.node(key), what or f"{key!r} of {self._what}", self._reporter)

    def items(self, key: str, what: str, *, needed: bool = False) -> list[Members]:
        """Return the mappings of a list; where one is needed, an empty list is none."""
        node = self.node(key)
        if needed and (node is None or node.value == []):
            self.missing(key)
        found = [] if node is None else self._items(node, f"{key!r} of {self._what}")
        return [Members(item, what, self._reporter) for item in found]

    def _items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self._wrong(node, what, "a list")
        return []

    # -- what is wrong -----------------------------------------------------------------------------

    def end(self) -> None:
        """Report the keys that nobody asked for."""
        for name in self._nodes:
            if name not in self._asked:
                hint = did_you_mean(name, self._asked)
                allowed = ", ".join(self._asked)
                self._reporter.report(
                    UNKNOWN_KEY,
                    f"{self._what} has no key {name!r}; the keys are {allowed}",
                    self.span(self._keys[name]),
                    hint,
                )

    def missing(self, key: str) -> None:
        """Report that a key is not there; where there is no mapping at all, that is reported already."""
        if not self._empty:
            self._reporter.report(MISSING, f"{self._what} needs {key!r}", self.place())

    def _wrong(self, node: yaml.Node | None, what: str, allowed: str) -> None:
        assert node is not None
        empty = isinstance(node, yaml.ScalarNode) and _kind(node) == "str" and not node.value
        found = "an empty text" if empty else _KINDS.get(_kind(node), "a text")
        bare = isinstance(node, yaml.ScalarNode) and node.style is None and _kind(node) == "bool"
        hint = f"write '{node.value}' in quotes if a text is meant" if bare else None
        self._reporter.report(WRONG_VALUE, f"{what} takes {allowed}, not {found}", self.span(node), hint)

    # -- places ------------------------------------------------------------------------------------

    def span(self, node: yaml.Node) -> Span:
        """Return where a node stands."""
        end = node.end_mark.index
        if not isinstance(node, yaml.ScalarNode):  # the end of a block is where the next thing begins
            end = min(end, node.start_mark.index + 1)
        return self._reporter.source.span(node.start_mark.index, end)

    def key_span(self, key: str) -> Span:
        """Return where a key stands."""
        return self.span(self._keys[key])

    def place(self) -> Span | None:
        """Return where the mapping stands."""
        return None if self._node is None else self.span(self._node)

    def places(self) -> Places:
        """Return where the values stand."""
        own = self.place()
        found = {} if own is None else {"": own}
        return FrozenMap(found | {name: self.span(node) for name, node in self._nodes.items()})


def _kind(node: yaml.Node) -> str:
    return str(node.tag).removeprefix(_TAG)
