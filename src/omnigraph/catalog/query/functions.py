"""Functions: the one table of what a query can call, read by checks, completion and documentation.

    text -> tree -> **checked query** -> plan

A row says what a function takes, what it gives, when it is NULL and what it is for. What it does to columns
is in execution/functions, by the same name; a test holds that neither has a name that the other lacks.

A type of None is that of a bare `null`, which every argument admits. An integer literal that is not negative
counts as unsigned beside unsigned values: who asks gives it that type (`common_type`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import counted
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.language.schema.check.members import pattern_problem

ArgumentType: TypeAlias = PropertyType | None  # None: a bare `null`

UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
PART_UNITS = (*UNITS, "weekday", "yearday", "epoch")
TIME_OF_DAY = frozenset({"hour", "minute", "second", "millisecond"})  # what a Date has not
UNSIGNED = frozenset({Scalar.U32, Scalar.U64})


class Subject(Enum):
    """What a function is about: its chapter in the documentation and its file of kernels."""

    CHOICE = "choice"
    CAST = "casts"
    TEXT = "text"
    NUMBER = "numbers"
    TIME = "time"
    LIST = "lists"


class Takes(Enum):
    """What an argument may be; the value is what a message calls it."""

    ANY = "a value"
    PLAIN = "a value that is no list"
    ORDERED = "a number, text, date, time or boolean"
    BOOL = "a Bool"
    TEXT = "a String"
    PATTERN = "a regular expression"  # a String
    UNIT = "a unit in quotes"  # a String literal
    NUMBER = "a number"
    INTEGER = "an integer"
    NUMBER_OR_TEXT = "a number or a String"
    TIME = "a Date or DateTime"
    TIME_OR_TEXT = "a Date, DateTime or String"
    LIST = "a list"

    def accepts(self, given: ArgumentType) -> bool:
        """Say whether a type is one of these."""
        if given is None:
            return True
        if self is Takes.ANY:
            return given.scalar is not Scalar.BLOB
        if self is Takes.LIST or given.is_list:
            return self is Takes.LIST and given.is_list
        return given.scalar in _ACCEPTED[self]


NUMBERS = INTEGERS | FLOATS
_TEXTS = frozenset({Scalar.STRING})
_TIMES = frozenset({Scalar.DATE, Scalar.DATETIME})
_PLAIN = NUMBERS | _TEXTS | _TIMES | {Scalar.BOOL}
_ACCEPTED: Mapping[Takes, frozenset[Scalar]] = {
    Takes.PLAIN: _PLAIN,
    Takes.ORDERED: _PLAIN,
    Takes.BOOL: frozenset({Scalar.BOOL}),
    Takes.TEXT: _TEXTS,
    Takes.PATTERN: _TEXTS,
    Takes.UNIT: _TEXTS,
    Takes.NUMBER: NUMBERS,
    Takes.INTEGER: INTEGERS,
    Takes.NUMBER_OR_TEXT: NUMBERS | _TEXTS,
    Takes.TIME: _TIMES,
    Takes.TIME_OR_TEXT: _TIMES | _TEXTS,
}


class Nulls(Enum):
    """When the result is NULL."""

    ANY = "NULL if an argument is"
    ALL = "NULL if all arguments are"
    BRANCH = "NULL if the chosen argument is; a condition that is NULL is not true"
    EQUAL = "NULL if both are equal, or the first is NULL"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument by its name in the documentation."""

    name: str
    takes: Takes
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A row of the table; `repeats` says that the last argument may be given again and again."""

    name: str
    subject: Subject
    arguments: tuple[Argument, ...]
    result: Callable[[tuple[ArgumentType, ...]], PropertyType | None]  # None: no common type
    doc: str
    nulls: Nulls = Nulls.ANY
    repeats: bool = False
    units: tuple[str, ...] = UNITS  # that a unit argument may be

    @property
    def least(self) -> int:
        """How many arguments there are at least."""
        return sum(not argument.optional for argument in self.arguments)

    @property
    def most(self) -> int | None:
        """How many arguments there are at most; None where there is no bound."""
        return None if self.repeats else len(self.arguments)

    @property
    def signature(self) -> str:
        """How the function is written.

        >>> FUNCTIONS["round"].signature, FUNCTIONS["coalesce"].signature
        ('round(x[, digits])', 'coalesce(a, b, …)')
        """
        names = [argument.name for argument in self.arguments]
        required, optional = ", ".join(names[: self.least]), names[self.least :]
        rest = "".join(f"[, {name}]" for name in optional)
        return f"{self.name}({required}{rest}{', …' if self.repeats else ''})"

    def argument(self, position: int) -> Argument:
        """Return what an argument at a place has to be."""
        return self.arguments[min(position, len(self.arguments) - 1)]


class BadCall(ValueError):
    """A function does not take these arguments: T61, or T62 where they have no common type."""

    def __init__(self, message: str, *, help: str, argument: int | None = None, code: str = "T61") -> None:
        super().__init__(message)
        self.message, self.help, self.argument, self.code = message, help, argument, code


def call_type(
    function: Function, types: Sequence[ArgumentType], literals: Sequence[str | None] | None = None
) -> PropertyType:
    """Return what a call gives, or raise `BadCall`; `literals` are the texts of string literals, else None.

    >>> str(call_type(FUNCTIONS["length"], [PropertyType(Scalar.STRING, nullable=True)]))
    'I64?'
    """
    _check_count(function, len(types))
    texts = [None] * len(types) if literals is None else literals
    for position, given in enumerate(types):
        _check_argument(function, position, given, types, texts[position])
    result = function.result(tuple(types))
    if result is None:
        alike = (t for n, t in enumerate(types) if function.argument(n).takes not in (Takes.BOOL, Takes.UNIT))
        shown = " and ".join(dict.fromkeys(map(_shown, alike)))
        message = f"{function.name}: {shown} have no common type"
        raise BadCall(message, help="give values of one type, or convert with to_string", code="T62")
    return replace(result, nullable=_may_be_null(function.nulls, types))


def _check_count(function: Function, count: int) -> None:
    most = function.most
    if count >= function.least and (most is None or count <= most):
        return
    message = f"{function.name} is called with {counted(count, 'argument')}"
    raise BadCall(message, help=f"write {function.signature}")


def _check_argument(
    function: Function,
    position: int,
    given: ArgumentType,
    types: Sequence[ArgumentType],
    literal: str | None,
) -> None:
    argument = function.argument(position)
    takes = argument.takes
    if not takes.accepts(given):
        message = f"{function.name}: {argument.name} is {takes.value}, found {_shown(given)}"
        raise BadCall(message, help=_instead(function, position, given), argument=position)
    if takes is Takes.UNIT:
        _check_unit(function, position, types, literal)
    if takes is Takes.PATTERN and literal is not None and (problem := pattern_problem(literal)) is not None:
        message = f"{function.name}: {literal!r} is no regular expression: {problem}"
        raise BadCall(message, help="write a pattern of RE2", argument=position)


def _instead(function: Function, position: int, given: ArgumentType) -> str:
    """Return what to write for an argument that is not taken: another function, where one takes it."""
    is_list = given is not None and given.is_list
    is_text = given is not None and not is_list and given.scalar is Scalar.STRING
    match function.name:
        case "contains" | "starts_with" | "ends_with" if is_list and position == 0:
            return "write x in list"
        case "size" if is_text:
            return "write length(s) for a text"
        case "length" if is_list:
            return "write size(l) for a list"
        case _:
            return f"write {function.signature}"


def _check_unit(
    function: Function, position: int, types: Sequence[ArgumentType], literal: str | None
) -> None:
    if literal not in function.units:
        found = "a value that is computed" if literal is None else repr(literal)
        message = f"{function.name}: the unit is {found}"
        raise BadCall(message, help=f"write one of {', '.join(function.units)} in quotes", argument=position)
    if literal in TIME_OF_DAY and any(t is not None and t.scalar is Scalar.DATE for t in types):
        message = f"{function.name}: a Date has no {literal}"
        raise BadCall(message, help="use day or longer, or convert with to_datetime", argument=position)


def _shown(given: ArgumentType) -> str:
    return "null" if given is None else str(replace(given, nullable=False))


def _may_be_null(rule: Nulls, types: Sequence[ArgumentType]) -> bool:
    nullable = [given is None or given.nullable for given in types]
    match rule:
        case Nulls.ANY:
            return any(nullable)
        case Nulls.ALL:
            return all(nullable)
        case Nulls.BRANCH:
            return any(nullable[1:])
        case Nulls.EQUAL:
            return True


# -- types -------------------------------------------------------------------------------------------


def common_type(types: Sequence[ArgumentType]) -> PropertyType | None:
    """Return the type that values of some types share (T62), or None; nullable if one of them is.

    >>> i32, u32, f32 = (PropertyType(scalar) for scalar in (Scalar.I32, Scalar.U32, Scalar.F32))
    >>> [str(common_type(pair)) for pair in ((i32, i32), (i32, u32), (f32, i32), (u32, None))]
    ['I32', 'I64', 'F64', 'U32?']
    """
    known = [given for given in types if given is not None]
    nullable = len(known) < len(types) or any(given.nullable for given in known)
    if not known:
        return PropertyType(Scalar.STRING, nullable=True)  # a null that nobody gave a type
    first = known[0]
    if all(replace(given, nullable=first.nullable) == first for given in known):
        return replace(first, nullable=nullable)
    if len({given.is_list for given in known}) > 1:
        return None
    scalar = _common_scalar({given.scalar for given in known})
    return None if scalar is None else PropertyType(scalar, nullable, first.is_list)


def _common_scalar(scalars: set[Scalar]) -> Scalar | None:
    if scalars <= NUMBERS:
        return scalars.pop() if len(scalars) == 1 else computed_as(scalars)
    return Scalar.STRING if scalars == {Scalar.STRING} else None


def computed_as(scalars: set[Scalar] | frozenset[Scalar]) -> Scalar:
    """Return the type that numbers of some types are computed in.

    >>> (
    ...     computed_as({Scalar.I32}),
    ...     computed_as({Scalar.U32, Scalar.U64}),
    ...     computed_as({Scalar.I64, Scalar.F32}),
    ... )
    (<Scalar.I64: 'I64'>, <Scalar.U64: 'U64'>, <Scalar.F64: 'F64'>)
    """
    if scalars & FLOATS:
        return Scalar.F64
    return Scalar.U64 if scalars <= UNSIGNED else Scalar.I64


def _always(scalar: Scalar, *, is_list: bool = False) -> Callable[[tuple[ArgumentType, ...]], PropertyType]:
    return lambda types: PropertyType(scalar, is_list=is_list)


def _same(position: int, unknown: PropertyType) -> Callable[[tuple[ArgumentType, ...]], PropertyType]:
    """Give the type of an argument; an enum is then any String."""

    def result(types: tuple[ArgumentType, ...]) -> PropertyType:
        given = types[position]
        return unknown if given is None else replace(given, enum_values=None)

    return result


def _common(types: tuple[ArgumentType, ...]) -> PropertyType | None:
    return common_type(types)


def _branches(types: tuple[ArgumentType, ...]) -> PropertyType | None:
    return common_type(types[1:])


def _comparable(types: tuple[ArgumentType, ...]) -> PropertyType | None:
    return None if common_type(types) is None else _same(0, PropertyType(Scalar.STRING))(types)


def _difference(types: tuple[ArgumentType, ...]) -> PropertyType | None:
    return None if common_type(types[1:]) is None else PropertyType(Scalar.I64)


# -- the table ---------------------------------------------------------------------------------------

_TEXT, _INT = _always(Scalar.STRING), _always(Scalar.I64)
_FLOAT, _BOOL = _always(Scalar.F64), _always(Scalar.BOOL)
_NUMBER = _same(0, PropertyType(Scalar.F64))
_LIST = _same(0, PropertyType(Scalar.STRING, is_list=True))


def _a(name: str, takes: Takes, *, optional: bool = False) -> Argument:
    return Argument(name, takes, optional)


_S, _X = _a("s", Takes.TEXT), _a("x", Takes.NUMBER)
_T, _UNIT = _a("t", Takes.TIME), _a("unit", Takes.UNIT)

_ROWS = (
    Function(
        "coalesce",
        Subject.CHOICE,
        (_a("a", Takes.ANY), _a("b", Takes.ANY)),
        _common,
        "The first argument that is not NULL.",
        Nulls.ALL,
        repeats=True,
    ),
    Function(
        "nullif",
        Subject.CHOICE,
        (_a("a", Takes.ANY), _a("b", Takes.ANY)),
        _comparable,
        "NULL if both arguments are equal, else the first.",
        Nulls.EQUAL,
    ),
    Function(
        "if",
        Subject.CHOICE,
        (_a("c", Takes.BOOL), _a("a", Takes.ANY), _a("b", Takes.ANY)),
        _branches,
        "The second argument if the first is true, else the third.",
        Nulls.BRANCH,
    ),
    Function(
        "least",
        Subject.CHOICE,
        (_a("a", Takes.ORDERED),),
        _common,
        "The least of the arguments that are not NULL.",
        Nulls.ALL,
        repeats=True,
    ),
    Function(
        "greatest",
        Subject.CHOICE,
        (_a("a", Takes.ORDERED),),
        _common,
        "The greatest of the arguments that are not NULL.",
        Nulls.ALL,
        repeats=True,
    ),
    Function("lower", Subject.TEXT, (_S,), _TEXT, "The text in lower case, the same in every country."),
    Function("upper", Subject.TEXT, (_S,), _TEXT, "The text in upper case, letter by letter."),
    Function("trim", Subject.TEXT, (_S,), _TEXT, "The text without white space at its ends."),
    Function("length", Subject.TEXT, (_S,), _INT, "How many code points the text has."),
    Function(
        "substring",
        Subject.TEXT,
        (_S, _a("from", Takes.INTEGER), _a("n", Takes.INTEGER, optional=True)),
        _TEXT,
        "The text from a place on, counted from 0, and at most n code points of it.",
    ),
    Function(
        "replace",
        Subject.TEXT,
        (_S, _a("old", Takes.TEXT), _a("new", Takes.TEXT)),
        _TEXT,
        "The text with another one in every place of `old`.",
    ),
    Function(
        "split",
        Subject.TEXT,
        (_S, _a("sep", Takes.TEXT)),
        _always(Scalar.STRING, is_list=True),
        "The parts of the text between separators.",
    ),
    Function(
        "contains", Subject.TEXT, (_S, _a("t", Takes.TEXT)), _BOOL, "Whether a text occurs in the first one."
    ),
    Function(
        "starts_with", Subject.TEXT, (_S, _a("t", Takes.TEXT)), _BOOL, "Whether the text begins with another."
    ),
    Function(
        "ends_with", Subject.TEXT, (_S, _a("t", Takes.TEXT)), _BOOL, "Whether the text ends with another."
    ),
    Function(
        "matches",
        Subject.TEXT,
        (_S, _a("re", Takes.PATTERN)),
        _BOOL,
        "Whether a regular expression (RE2) matches somewhere in the text.",
    ),
    Function("abs", Subject.NUMBER, (_X,), _NUMBER, "The number without its sign."),
    Function("floor", Subject.NUMBER, (_X,), _NUMBER, "The next whole number below."),
    Function("ceil", Subject.NUMBER, (_X,), _NUMBER, "The next whole number above."),
    Function(
        "round",
        Subject.NUMBER,
        (_X, _a("digits", Takes.INTEGER, optional=True)),
        _NUMBER,
        "The number with so many digits of its fraction, 0 to 15; a half goes away from zero.",
    ),
    Function("sqrt", Subject.NUMBER, (_X,), _FLOAT, "The square root."),
    Function("power", Subject.NUMBER, (_X, _a("y", Takes.NUMBER)), _FLOAT, "The first number to the second."),
    Function(
        "date_part",
        Subject.TIME,
        (_UNIT, _T),
        _INT,
        "A part of a date or time; `week` and `weekday` as in ISO 8601, `epoch` in seconds.",
        units=PART_UNITS,
    ),
    Function(
        "date_trunc",
        Subject.TIME,
        (_UNIT, _T),
        _same(1, PropertyType(Scalar.DATETIME)),
        "The beginning of the unit that a date or time lies in.",
    ),
    Function(
        "date_diff",
        Subject.TIME,
        (_UNIT, _a("a", Takes.TIME), _a("b", Takes.TIME)),
        _difference,
        "How many whole units lie between two dates or two times; negative if the second is earlier.",
    ),
    Function("to_string", Subject.CAST, (_a("x", Takes.PLAIN),), _TEXT, "The text that JSON results have."),
    Function(
        "to_int", Subject.CAST, (_a("x", Takes.NUMBER_OR_TEXT),), _INT, "The whole number; a fraction is cut."
    ),
    Function("to_float", Subject.CAST, (_a("x", Takes.NUMBER_OR_TEXT),), _FLOAT, "The number as F64."),
    Function("to_bool", Subject.CAST, (_S,), _BOOL, 'The boolean that "true" or "false" means.'),
    Function(
        "to_date",
        Subject.CAST,
        (_a("x", Takes.TIME_OR_TEXT),),
        _always(Scalar.DATE),
        "The date that a text means, or the day of a time in UTC.",
    ),
    Function(
        "to_datetime",
        Subject.CAST,
        (_a("x", Takes.TIME_OR_TEXT),),
        _always(Scalar.DATETIME),
        "The time that a text means, or midnight in UTC of a date.",
    ),
    Function("size", Subject.LIST, (_a("l", Takes.LIST),), _INT, "How many items the list has."),
    Function(
        "slice",
        Subject.LIST,
        (_a("l", Takes.LIST), _a("from", Takes.INTEGER), _a("to", Takes.INTEGER, optional=True)),
        _LIST,
        "The items from a place on, counted from 0, up to another one that is not among them.",
    ),
)
FUNCTIONS: Mapping[str, Function] = MappingProxyType({row.name: row for row in _ROWS})
