"""Dataclass: `dataclasses.dataclass` whose code is made when the first instance is, not when it is imported.

The standard decorator generates and compiles some six functions for each class: 0.5 ms, and half of the time
that `import omnigraph` took beside Lance for some three hundred classes, most of which a process never uses.
Here comparing, hashing and showing are written once for all classes, and `__init__` is compiled at its first
call. Everything else is the standard's: `fields`, `replace`, `asdict` and type checkers see its classes.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False, kw_only=False):
        """Turn the annotations of a class into fields, as the standard's decorator does."""
        if cls is None:
            return lambda decorated: _processed(decorated, frozen, eq, repr, slots, kw_only)
        return _processed(cls, frozen, eq, repr, slots, kw_only)


FIELDS = "__dataclass_fields__"  # where the standard library keeps and looks for them


def _processed(cls: Any, frozen: bool, eq: bool, repr: bool, slots: bool, kw_only: bool) -> Any:
    inherited: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        inherited |= base.__dict__.get(FIELDS, {})
    own = _own_fields(cls, kw_only)
    if slots:
        cls = _slotted(cls, own)
    declared = inherited | own
    setattr(cls, FIELDS, declared)
    chosen = [field for field in declared.values() if field.init and not field.kw_only]
    compared = tuple(field.name for field in declared.values() if field.compare)
    methods: dict[str, Any] = {
        "__init__": _init_at_first_call(cls, frozen),
        "__signature__": _Signature(),
        "__match_args__": tuple(field.name for field in chosen),
    }
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= {"__dataclass_key__": staticmethod(_key(compared)), "__eq__": _eq}
        if cls.__dict__.get("__hash__") is None:  # also where `__eq__` of its own has unset it
            cls.__hash__ = _hash if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
    if frozen and slots:
        methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def _own_fields(cls: Any, kw_only: bool) -> dict[str, Field[Any]]:
    """Take the fields from the body of a class, and leave plain defaults there."""
    own: dict[str, Field[Any]] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if "ClassVar" in str(annotation):
            continue
        default = cls.__dict__.get(name, MISSING)
        field: Any = default if isinstance(default, Field) else dataclasses.field(default=default)
        if field.default is not MISSING and field.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default for field {name}: use default_factory")
        field.name, field.type, field._field_type = name, annotation, dataclasses._FIELD  # type: ignore[attr-defined]
        field.kw_only = kw_only if field.kw_only is MISSING else field.kw_only
        if isinstance(default, Field):
            if field.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, field.default)
        own[name] = field
    return own


def _slotted(cls: Any, own: dict[str, Field[Any]]) -> Any:
    """Return the class anew, with slots: they can only be given when a class is made."""
    body = {name: value for name, value in cls.__dict__.items() if name not in own}
    taken = {slot for base in cls.__mro__[1:] for slot in base.__dict__.get("__slots__", ())}
    body["__slots__"] = tuple(name for name in own if name not in taken)
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    slotted = type(cls)(cls.__name__, cls.__bases__, body)
    slotted.__qualname__ = cls.__qualname__
    return slotted


# -- what all classes share ------------------------------------------------------------------------------


def _key(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that gives the compared values of an instance, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    key = self.__dataclass_key__
    return key(self) == key(other)


def _hash(self: Any) -> int:
    return hash(self.__dataclass_key__(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f.name for f in self.__dataclass_fields__.values() if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _refuse_set(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _setstate(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)


# -- __init__ --------------------------------------------------------------------------------------------


def _init_at_first_call(cls: Any, frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _compile_init(cls, frozen)
        cls.__init__(self, *args, **kwargs)

    __init__.__omnigraph_compile__ = lambda: _compile_init(cls, frozen)  # type: ignore[attr-defined]
    return __init__


class _Signature:
    """`inspect.signature` of a class is that of its `__init__`, which is compiled for it."""

    def __get__(self, instance: object | None, owner: Any) -> inspect.Signature:
        compile_it = getattr(owner.__init__, "__omnigraph_compile__", None)
        if compile_it is not None:
            compile_it()
        whole = inspect.signature(owner.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


def _compile_init(cls: Any, frozen: bool) -> None:
    """Write `__init__` as a person would, with defaults and factories by name, and compile it."""
    names: dict[str, Any] = {"MISSING": MISSING, "set_field": object.__setattr__}
    plain: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    for field in getattr(cls, FIELDS).values():
        name = field.name
        value, parameter = name, name
        if field.default is not MISSING:
            names[f"default_{name}"] = field.default
            parameter += f"=default_{name}"
        elif field.default_factory is not MISSING:
            names[f"factory_{name}"] = field.default_factory
            parameter += "=MISSING"
            value = f"factory_{name}()"
            if field.init:
                value += f" if {name} is MISSING else {name}"
        if field.init:
            (keyword if field.kw_only else plain).append(parameter)
        elif field.default is not MISSING:
            value = f"default_{name}"
        elif field.default_factory is MISSING:
            continue
        body.append(f"set_field(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names)
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    declared = getattr(cls, FIELDS).values()
    init.__annotations__ = {field.name: field.type for field in declared if field.init} | {"return": None}
    cls.__init__ = init


# -- as JSON -------------------------------------------------------------------------------------------------


class JsonFields:
    """A dataclass whose public JSON is its fields, in their order.

    A field has its own name there, or the one that `json_names` gives it; those in `json_if_known` are left
    out while they are None. Values whose JSON has a shape of its own write `to_json` themselves.
    """

    __slots__ = ()
    json_names: ClassVar[Mapping[str, str]] = {}
    json_if_known: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        values = {name: getattr(self, name) for name in getattr(self, FIELDS)}
        return {
            self.json_names.get(name, name): value
            for name, value in values.items()
            if value is not None or name not in self.json_if_known
        }
