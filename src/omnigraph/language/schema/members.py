"""Members: the type of a property, and what stands between the parentheses of an annotation or a constraint.

    text -> parse tree -> **tree** -> checked schema -> catalog

The grammar takes any nesting of words, lists and arguments; here a type is held to those that exist, and a
list of arguments to the form that its annotation or constraint has.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from omnigraph.base.dataclass import dataclass
from omnigraph.language.diagnostics import Rule, Span, did_you_mean
from omnigraph.language.lalr import ParseTree, Token, first_subtree, subtree, subtrees, tokens, word_text
from omnigraph.language.literals import LiteralKind, LiteralSyntax, unquote
from omnigraph.language.schema import rules
from omnigraph.language.schema.tree import KeywordSyntax
from omnigraph.language.syntax import (
    MAX_DIMENSION,
    SCALARS,
    BadType,
    BuildContext,
    EnumType,
    Ident,
    ListType,
    ScalarType,
    Shape,
    TypeExpr,
    VectorType,
)

BOOLEANS = ("true", "false")
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


# -- types -------------------------------------------------------------------------------------------


class TypeBuilder:
    """Builds the types of one declaration."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context

    def build(self, tree: ParseTree) -> TypeExpr:
        """Build one type; a wrong one is reported and becomes `BadType`."""
        return TypeExpr(self._shape(tree), _nullable(tree), self._context.span(tree))

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
            return self._bad(
                rules.UNKNOWN_TYPE, f"unknown type {name!r}", self._context.span(word), hint or choices
            )
        if rest:
            return self._bad(
                rules.TYPE_FORM, f"{name} takes no arguments", self._context.span(rest[0]), f"write {name}"
            )
        return ScalarType(name)

    def _vector(self, tree: ParseTree, arguments: ParseTree | None) -> Shape:
        span = self._context.span(tree)
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
                rules.TYPE_FORM, message, self._context.span(tree), "a list holds scalars, as in [String]"
            )
        shape = self._shape(item)
        if isinstance(shape, VectorType):
            message = "a list of vectors does not exist"
            return self._bad(
                rules.TYPE_FORM, message, self._context.span(tree), "a list holds scalars, as in [F32]"
            )
        if not isinstance(shape, ScalarType):
            return BadType()
        if _nullable(item):
            hint = f"write [{shape.name}]?"
            message = "the items of a list cannot be nullable"
            return self._bad(rules.TYPE_FORM, message, self._context.span(item), hint)
        if shape.name == "Blob":
            return self._bad(
                rules.LIST_OF_BLOB, "list of Blob is not supported", self._context.span(tree), None
            )
        return ListType(shape.name)

    def _enum(self, tree: ParseTree) -> Shape:
        variants = [(word_text(v), self._context.span(v)) for v in subtrees(tree, "variant")]
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
        self._context.report(rule, message, span, suggestion)
        return BadType()

    def _dimension(self, arguments: ParseTree) -> str:
        """Return the one number between the parentheses, or all that stands there, to be shown."""
        values = [child for child in arguments.children if isinstance(child, ParseTree)]
        if len(values) == 1 and isinstance(token := values[0].children[0], Token) and token.type == "NUMBER":
            return token.text
        span = self._context.span(arguments)
        return self._context.reporter.source.text[span.start + 1 : span.end - 1].strip()


def _nullable(tree: ParseTree) -> bool:
    return bool(tokens(tree, "OPTIONAL"))


# -- arguments ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RangeBoundsSyntax:
    """`low..high`, either side possibly absent, as spelt."""

    low: str | None
    high: str | None
    span: Span = field(compare=False, repr=False)


ArgumentSyntax: TypeAlias = Ident | LiteralSyntax | RangeBoundsSyntax | KeywordSyntax


class Arguments:
    """Reads the argument lists of one declaration."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context

    def of_annotation(
        self, annotation: str, tree: ParseTree | None
    ) -> tuple[LiteralSyntax | Ident | None, tuple[KeywordSyntax, ...]]:
        """Return at most one positional argument, then keywords; anything else is reported."""
        positional: LiteralSyntax | Ident | None = None
        keywords: list[KeywordSyntax] = []
        if tree is None:
            return None, ()
        values = [self._value(subtree(child), booleans=True) for child in tree.children]
        if not values:
            self._refuse(
                f"@{annotation}() has empty parentheses", self._context.span(tree), f"write @{annotation}"
            )
        for position, value in enumerate(values):
            if isinstance(value, KeywordSyntax):
                if position == 0:
                    self._refuse(
                        f"@{annotation} has a keyword argument before its positional one",
                        value.name.span,
                        f"write @{annotation}(value, {value.name.text}=...)",
                    )
                if any(k.name.text == value.name.text for k in keywords):
                    self._refuse(f"argument '{value.name.text}=' is given twice", value.name.span, None)
                self._signed(value.value, annotation)
                keywords.append(value)
            elif position > 0:
                self._refuse(
                    f"@{annotation} takes one positional argument", value.span, "further ones are name=value"
                )
            elif isinstance(value, RangeBoundsSyntax):
                self._refuse(f"bounds are no argument of @{annotation}", value.span, None)
            else:
                self._signed(value, annotation)
                positional = self._bare(value)
        return positional, tuple(keywords)

    def of_constraint(self, tree: ParseTree) -> list[ArgumentSyntax]:
        """Return all arguments as they are; in a constraint `true` is a name like any other."""
        return [self._value(subtree(child), booleans=False) for child in tree.children]

    # -- one argument --------------------------------------------------------------------------------

    def _value(self, tree: ParseTree, *, booleans: bool) -> ArgumentSyntax:
        span = self._context.span(tree)
        if tree.rule == "bounds":
            numbers = [(token.text, token.type) for token in tree.children if isinstance(token, Token)]
            cut = next(at for at, (_, terminal) in enumerate(numbers) if terminal == "RANGE")
            low = numbers[0][0] if cut > 0 else None
            high = numbers[-1][0] if cut < len(numbers) - 1 else None
            return RangeBoundsSyntax(low, high, span)
        if tree.rule == "keyword":
            word, value = (subtree(child) for child in tree.children)
            name = Ident(word_text(word), self._context.span(word))
            return KeywordSyntax(name, self._literal(value))
        token = tree.children[0]
        if isinstance(token, ParseTree):
            text = word_text(token)
            if booleans and text in BOOLEANS:
                return LiteralSyntax(LiteralKind.BOOLEAN, text, span)
            return Ident(text, span)
        return self._token(token, span)

    def _token(self, token: Token, span: Span) -> LiteralSyntax:
        if token.type == "STRING":
            return LiteralSyntax(
                LiteralKind.STRING, unquote(token.text, span, self._context.reporter, rules.BAD_ESCAPE), span
            )
        kind = LiteralKind.FLOAT if "." in token.text else LiteralKind.INTEGER
        return LiteralSyntax(kind, token.text, span)

    def _literal(self, tree: ParseTree) -> LiteralSyntax:
        """The value of a keyword must be a literal; a bare word is reported and read as a string."""
        value = self._value(tree, booleans=True)
        if isinstance(value, LiteralSyntax):
            return value
        text = value.text if isinstance(value, Ident) else ""
        self._refuse(f"expected a literal, found {text!r}", value.span, f'write "{text}"')
        return LiteralSyntax(LiteralKind.STRING, text, value.span)

    def _bare(self, value: LiteralSyntax | Ident) -> LiteralSyntax | Ident:
        if isinstance(value, Ident) and "A" <= value.text[0] <= "Z":
            self._refuse(
                f"expected a literal or a property name, found {value.text!r}",
                value.span,
                f'write "{value.text}"',
            )
        return value

    def _signed(self, value: LiteralSyntax | Ident, annotation: str) -> None:
        # A default is a value of the property, so it may be negative like any other value.
        number = isinstance(value, LiteralSyntax) and value.kind in (LiteralKind.INTEGER, LiteralKind.FLOAT)
        if number and value.text.startswith("-") and annotation != "default":
            message = f"a negative number is only legal in @range and @default: {value.text[:40]}"
            self._refuse(message, value.span, None)

    def _refuse(self, message: str, span: Span, suggestion: str | None) -> None:
        self._context.report(rules.ARGUMENT, message, span, suggestion)
