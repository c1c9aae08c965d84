"""YAML documents, read strictly, with the place of everything that is wrong.

The one way to check a YAML file: pipeline files, project files and the operator config are read with it.
A reader asks a mapping for each key by name; `end` reports every other key, with those that are allowed
there. Reading goes on after a mistake, so that one look finds all of them.

It works on the nodes that libyaml composes, because Python values no longer know where they stood.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from omnigraph.base.dataclass import dataclass
from omnigraph.base.frozen import FrozenMap
from omnigraph.language.diagnostics import Reporter, Rule, SourceError, SourceText, Span, did_you_mean

KeySpans = FrozenMap[str, Span]  # where the values of a mapping stand, by key; "" is the mapping itself
MAX_DEPTH = 100  # libyaml composes recursively: without a limit, a file of brackets ends the process
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where there is one: 14 times as fast
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


@dataclass(frozen=True, slots=True)
class YamlRules:
    """The mistakes that any YAML document can have, in the codes of one kind of file."""

    error: type[SourceError]
    syntax: Rule
    unknown_key: Rule
    wrong_value: Rule
    missing: Rule
    twice: Rule

    @classmethod
    def coded(cls, prefix: str, error: type[SourceError]) -> YamlRules:
        """Return the rules with codes of a prefix.

        >>> YamlRules.coded("PL", SourceError).missing.code
        'PL004'
        """
        return cls(
            error,
            Rule(f"{prefix}001", "syntax", "the file is not YAML, or not one mapping", 0),
            Rule(f"{prefix}002", "unknown_key", "a mapping has a key that means nothing there", 0),
            Rule(f"{prefix}003", "wrong_value", "a value is not of the kind that its key takes", 0),
            Rule(f"{prefix}004", "missing", "something that is needed is not there", 0),
            Rule(f"{prefix}005", "twice", "a key or a name is given twice", 0),
        )


def read_text(path: str | os.PathLike[str], rules: YamlRules) -> SourceText:
    """Return the text of a file; one that is not there or cannot be read is an OSError."""
    content = Path(path).read_bytes()
    try:
        return SourceText(content.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        reporter = Reporter(SourceText(content.decode("utf-8", "replace"), str(path)))
        reporter.report(rules.syntax, f"not YAML: broken UTF-8 at byte {error.start}", None)
        raise rules.error(reporter.source, reporter.diagnostics) from None


class YamlDocument:
    """One YAML text, and what is wrong with it so far.

    With `may_be_empty` a key with nothing after it counts as absent, and so does an empty file.
    """

    def __init__(self, source: SourceText, rules: YamlRules, *, may_be_empty: bool = False) -> None:
        self.rules = rules
        self.reporter = Reporter(source)
        self.may_be_empty = may_be_empty

    def root(self, what: str) -> YamlMapping:
        """Return the mapping that the document is; `what` is its name in messages."""
        node = self._compose()
        if not isinstance(node, yaml.MappingNode) and not (node is None and self.may_be_empty):
            self.reporter.report(self.rules.syntax, "the file is not a mapping of keys to values", None)
            self.refuse()
        return YamlMapping(self, node, what)

    def refuse(self) -> None:
        """Raise everything that is wrong, if anything is."""
        if self.reporter.diagnostics:
            raise self.rules.error(self.reporter.source, self.reporter.diagnostics)

    def span(self, node: yaml.Node) -> Span:
        """Return where a node stands."""
        end = node.end_mark.index
        if not isinstance(node, yaml.ScalarNode):  # the end of a block is where the next thing begins
            end = min(end, node.start_mark.index + 1)
        return self.reporter.source.span(node.start_mark.index, end)

    def _compose(self) -> yaml.Node | None:
        text = self.reporter.source.text
        try:
            self._check_depth(text)
            node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            words = " ".join(part for part in (error.context, error.problem) if part)
            self._refuse_syntax(words, 0 if mark is None else mark.index)
        except yaml.YAMLError as error:  # control characters have no mark
            self._refuse_syntax(str(error), None)
        return node

    def _check_depth(self, text: str) -> None:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    at = None if event.start_mark is None else event.start_mark.index
                    self._refuse_syntax(f"nested more than {MAX_DEPTH} deep", at)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1

    def _refuse_syntax(self, problem: str, at: int | None) -> NoReturn:
        span = None if at is None else self.reporter.source.span(at, at + 1)
        self.reporter.report(self.rules.syntax, f"not YAML: {problem}", span)
        raise self.rules.error(self.reporter.source, self.reporter.diagnostics)


class YamlMapping:
    """The members of one mapping. Each is asked for by name; `end` reports those that nobody asked for."""

    def __init__(self, document: YamlDocument, node: yaml.Node | None, what: str) -> None:
        self._document = document
        self._reporter = document.reporter
        self._rules = document.rules
        self._what = what
        self._node = node
        self._asked: dict[str, None] = {}
        self._values: dict[str, yaml.Node] = {}
        self._keys: dict[str, yaml.Node] = {}
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._take(key, value)
        elif node is not None:
            self._wrong(node, what, "a mapping")

    def _take(self, key: yaml.Node, value: yaml.Node) -> None:
        if not isinstance(key, yaml.ScalarNode):
            message = f"a key of {self._what} is not a text"
            self._reporter.report(self._rules.wrong_value, message, self._document.span(key))
            return
        name = str(key.value)
        if name in self._values:
            message = f"{name!r} stands twice in {self._what}"
            self._reporter.report(self._rules.twice, message, self._document.span(key))
            return
        self._values[name], self._keys[name] = value, key

    # -- what there is -----------------------------------------------------------------------------

    def names(self) -> Iterator[str]:
        """Yield all keys, where any is allowed."""
        for name in self._values:
            self._asked[name] = None
            yield name

    def has(self, key: str) -> bool:
        """Say whether a key is there."""
        return key in self._values

    def text(self, key: str, *, needed: bool = False, one_of: Sequence[str] = ()) -> str | None:
        """Return a text that is not empty, or None; a boolean is none: YAML makes one of a bare `no`."""
        node = self._value_node(key)
        if node is None:
            if needed:
                self.missing(key)
            return None
        allowed = " or ".join(one_of) if one_of else "a text"
        if not isinstance(node, yaml.ScalarNode) or _kind(node) not in _TEXTS or not node.value:
            self._wrong(node, f"{key!r} of {self._what}", allowed)
            return None
        text = str(node.value)
        if one_of and text not in one_of:
            message = f"{key!r} of {self._what} is {text!r}, and takes {allowed}"
            hint = did_you_mean(text, one_of)
            self._reporter.report(self._rules.wrong_value, message, self._document.span(node), hint)
            return None
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text stands for a list of one."""
        node = self._value_node(key)
        if isinstance(node, yaml.ScalarNode):
            text = self.text(key)
            return () if text is None else (text,)
        texts: list[str] = []
        for item in self._item_nodes(node, key):
            if isinstance(item, yaml.ScalarNode) and _kind(item) in _TEXTS:
                texts.append(str(item.value))
            else:
                self._wrong(item, f"an item of {key!r} of {self._what}", "a text")
        return tuple(texts)

    def options(self, key: str) -> FrozenMap[str, str]:
        """Return a mapping of names to texts; booleans and numbers are texts as Spark writes them."""
        mapping = self.mapping(key)
        options: dict[str, str] = {}
        for name in mapping.names():
            node = mapping._values[name]
            if not isinstance(node, yaml.ScalarNode) or _kind(node) == "null":
                self._wrong(node, f"{name!r} of {key!r}", "a text, a number or a boolean")
            elif _kind(node) == "bool":
                options[name] = "true" if node.value.lower() in ("true", "yes", "on") else "false"
            else:
                options[name] = str(node.value)
        return FrozenMap(options)

    def value(self, key: str) -> Any:
        """Return a value of any kind as Python has it, or None."""
        node = self._value_node(key)
        if node is None:
            return None
        try:
            return yaml.SafeLoader("").construct_document(node)
        except (yaml.YAMLError, ValueError) as error:  # a tag that nobody knows; the 31st of February
            problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
            message = f"{key!r} of {self._what}: {problem}"
            self._reporter.report(self._rules.wrong_value, message, self._document.span(node))
            return None

    def mapping(self, key: str, what: str | None = None) -> YamlMapping:
        """Return the members of a mapping; an absent one has none."""
        return YamlMapping(self._document, self._value_node(key), what or f"{key!r} of {self._what}")

    def items(self, key: str, what: str, *, needed: bool = False) -> list[YamlMapping]:
        """Return the mappings of a list; where one is needed, an empty list is none."""
        node = self._value_node(key)
        if needed and (node is None or node.value == []):
            self.missing(key)
        return [YamlMapping(self._document, item, what) for item in self._item_nodes(node, key)]

    def _value_node(self, key: str) -> yaml.Node | None:
        self._asked[key] = None
        node = self._values.get(key)
        absent = node is not None and self._document.may_be_empty and _kind(node) == "null"
        return None if absent else node

    def _item_nodes(self, node: yaml.Node | None, key: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        if node is not None:
            self._wrong(node, f"{key!r} of {self._what}", "a list")
        return []

    # -- what is wrong -----------------------------------------------------------------------------

    def end(self) -> None:
        """Report the keys that nobody asked for."""
        for name, key in self._keys.items():
            if name not in self._asked:
                message = f"{self._what} has no key {name!r}; the keys are {', '.join(self._asked)}"
                hint = did_you_mean(name, self._asked)
                self._reporter.report(self._rules.unknown_key, message, self._document.span(key), hint)

    def missing(self, key: str) -> None:
        """Report that a key is not there, unless the mapping is none, which is reported already."""
        if self._node is None or isinstance(self._node, yaml.MappingNode):
            self._reporter.report(self._rules.missing, f"{self._what} needs {key!r}", self.own_span())

    def _wrong(self, node: yaml.Node, what: str, allowed: str) -> None:
        kind, hint = _KINDS.get(_kind(node), "a text"), None
        if isinstance(node, yaml.ScalarNode):
            if _kind(node) == "str" and not node.value:
                kind = "an empty text"
            elif _kind(node) == "bool" and not node.style:
                hint = f"write '{node.value}' in quotes if a text is meant"
        message = f"{what} takes {allowed}, not {kind}"
        self._reporter.report(self._rules.wrong_value, message, self._document.span(node), hint)

    # -- spans -------------------------------------------------------------------------------------

    def key_span(self, key: str) -> Span:
        """Return where a key stands."""
        return self._document.span(self._keys[key])

    def own_span(self) -> Span | None:
        """Return where the mapping stands."""
        return None if self._node is None else self._document.span(self._node)

    def spans(self) -> KeySpans:
        """Return where the values stand."""
        own = self.own_span()
        spans = {} if own is None else {"": own}
        return FrozenMap(spans | {name: self._document.span(node) for name, node in self._values.items()})


def _kind(node: yaml.Node) -> str:
    return str(node.tag).removeprefix(_TAG)
