"""Types: read the type of a property from the parse tree.

    text -> parse tree -> **tree** -> checked schema -> catalog

Room    language.schema. The grammar takes any nesting of words, lists and arguments; here it is held to
        the types that exist.
"""

from __future__ import annotations

from omnigraph.language.diagnostics import Reporter, Rule, Span
from omnigraph.language.lalr import ParseTree, Token, first_subtree, subtree, subtrees, tokens, word_text
from omnigraph.language.schema import rules
from omnigraph.language.schema.tree import (
    SCALARS,
    BadType,
    EnumType,
    ListType,
    ScalarType,
    Shape,
    TypeExpr,
    VectorType,
)
from omnigraph.language.suggest import did_you_mean

MAX_DIMENSION = 2**31 - 1
# What people coming from elsewhere write.
ELSEWHERE = {
    "string": "String",
    "text": "String",
    "str": "String",
    "int": "I64",
    "integer": "I64",
    "long": "I64",
    "float": "F64",
    "double": "F64",
    "number": "F64",
    "boolean": "Bool",
    "timestamp": "DateTime",
    "bytes": "Blob",
    "binary": "Blob",
}


class TypeBuilder:
    """Builds the types of one piece of the text."""

    def __init__(self, reporter: Reporter, offset: int) -> None:
        self._reporter = reporter
        self._offset = offset

    def build(self, tree: ParseTree) -> TypeExpr:
        """Build one type; a wrong one is reported and becomes `BadType`."""
        return TypeExpr(self._shape(tree), _nullable(tree), self._span(tree))

    def _shape(self, tree: ParseTree) -> Shape:
        base = subtree(tree.children[0])
        match base.rule:
            case "list":
                return self._list(base)
            case "enum":
                return self._enum(base)
            case _:
                return self._scalar(base)

    def _scalar(self, tree: ParseTree) -> Shape:
        word, *rest = (child for child in tree.children if isinstance(child, ParseTree))
        name = word_text(word)
        if name == "Vector":
            return self._vector(tree, rest[0] if rest else None)
        if name not in SCALARS:
            known = ELSEWHERE.get(name.casefold())
            hint = f"did you mean {known!r}?" if known else did_you_mean(name, (*SCALARS, "Vector", "enum"))
            choices = f"the types are {', '.join(SCALARS)}, Vector(n), enum(...) and lists"
            return self._bad(rules.UNKNOWN_TYPE, f"unknown type {name!r}", self._span(word), hint or choices)
        if rest:
            return self._bad(
                rules.TYPE_FORM, f"{name} takes no arguments", self._span(rest[0]), f"write {name}"
            )
        return ScalarType(name)

    def _vector(self, tree: ParseTree, arguments: ParseTree | None) -> Shape:
        span = self._span(tree)
        if arguments is None:
            return self._bad(rules.TYPE_FORM, "Vector needs a dimension", span, "write Vector(768)")
        text = self._dimension(arguments)
        if not text.isdecimal() or not text.isascii() or len(text.lstrip("0")) > 10 or int(text) >= 2**32:
            message = f"invalid Vector dimension: {text[:40]}"
            return self._bad(rules.VECTOR_DIMENSION, message, span, "write a whole number, as in Vector(768)")
        dimension = int(text)
        if dimension == 0:
            message = "Vector dimension must be greater than zero"
            return self._bad(rules.VECTOR_DIMENSION, message, span, None)
        if dimension > MAX_DIMENSION:
            message = f"Vector dimension {dimension} exceeds maximum supported {MAX_DIMENSION}"
            return self._bad(rules.VECTOR_DIMENSION, message, span, None)
        return VectorType(dimension)

    def _list(self, tree: ParseTree) -> Shape:
        item = first_subtree(tree, "type")
        base = subtree(item.children[0])
        # Only one level is ever looked at: however deep the text nests, this does not.
        if base.rule != "scalar":
            message = f"a list of {'lists' if base.rule == 'list' else 'enums'} does not exist"
            return self._bad(
                rules.TYPE_FORM, message, self._span(tree), "a list holds scalars, as in [String]"
            )
        shape = self._shape(item)
        if isinstance(shape, VectorType):
            message = "a list of vectors does not exist"
            return self._bad(rules.TYPE_FORM, message, self._span(tree), "a list holds scalars, as in [F32]")
        if not isinstance(shape, ScalarType):
            return BadType()
        if _nullable(item):
            hint = f"write [{shape.name}]?"
            message = "the items of a list cannot be nullable"
            return self._bad(rules.TYPE_FORM, message, self._span(item), hint)
        if shape.name == "Blob":
            return self._bad(rules.LIST_OF_BLOB, "list of Blob is not supported", self._span(tree), None)
        return ListType(shape.name)

    def _enum(self, tree: ParseTree) -> Shape:
        variants = [(word_text(v), self._span(v)) for v in subtrees(tree, "variant")]
        quoted = next(((text, span) for text, span in variants if text.startswith('"')), None)
        if quoted is not None:
            hint = f"write {quoted[0][1:-1]}"
            return self._bad(rules.TYPE_FORM, "enum values are not quoted", quoted[1], hint)
        seen: set[str] = set()
        for text, span in variants:
            if text in seen:
                message = f"enum type cannot include duplicate values: {text!r}"
                return self._bad(rules.DUPLICATE_VARIANT, message, span, "remove the repeated value")
            seen.add(text)
        return EnumType(tuple(text for text, _ in variants))

    def _bad(self, rule: Rule, message: str, span: Span, suggestion: str | None) -> BadType:
        self._reporter.report(rule, message, span, suggestion)
        return BadType()

    def _dimension(self, arguments: ParseTree) -> str:
        """Return the one number between the parentheses, or all that stands there, to be shown."""
        values = [child for child in arguments.children if isinstance(child, ParseTree)]
        if len(values) == 1 and isinstance(token := values[0].children[0], Token) and token.type == "NUMBER":
            return token.text
        span = self._span(arguments)
        return self._reporter.source.text[span.start + 1 : span.end - 1].strip()

    def _span(self, tree: ParseTree) -> Span:
        return self._reporter.source.span(self._offset + tree.start, self._offset + tree.end)


def _nullable(tree: ParseTree) -> bool:
    return bool(tokens(tree, "OPTIONAL"))
