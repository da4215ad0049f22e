"""The classes of this package that a model file may hold, registered where they are defined.

Saving an object of any other class fails at once, and opening a file builds no other. A class may have

- ``from_stored(parts)``, a class method that builds an object from its fields, if annotations are not enough;
- ``derived_fields``, computed from other fields: they are not stored, so nobody can forge them;
- ``stored_fields()``, the fields to store, if they are not the attributes;
- ``upgraded(parts)``, a class method that converts the fields of a file, also of earlier versions, to the current ones;
- ``later_fields``, which files of earlier versions lack and for which the class has a default.
"""

from __future__ import annotations

import inspect
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from tightset.exceptions import ModelFileError
from tightset.storage.fields import fits, shown

__all__ = ["KINDS", "fields_of", "is_storable", "make", "storable"]

T = TypeVar("T", bound=type)
KINDS: dict[str, type] = {}


def storable(kind: T) -> T:
    """Register a class by its name; use it as a decorator."""
    other = KINDS.setdefault(kind.__name__, kind)
    if other.__module__ != kind.__module__:
        raise TypeError(f"two classes that can be stored are called {kind.__name__}")
    return kind


def is_storable(kind: type) -> bool:
    return KINDS.get(kind.__name__) is kind


def fields_of(value: Any) -> dict[str, Any]:
    """What is stored of an object."""
    if hasattr(value, "stored_fields"):
        return dict(value.stored_fields())
    if hasattr(value, "_fields"):  # a NamedTuple
        return {key: getattr(value, key) for key in value._fields}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclass_fields(value)}
    derived = getattr(value, "derived_fields", ())
    return {key: one for key, one in vars(value).items() if key not in derived}


def make(kind: type, parts: dict[str, Any]) -> Any:
    """An object of a kind with these fields; ModelFileError names the kind and the field that cannot be right."""
    name = kind.__name__
    parts = kind.upgraded(parts) if hasattr(kind, "upgraded") else parts
    if hasattr(kind, "from_stored"):
        return kind.from_stored(parts)
    if hasattr(kind, "_fields") or is_dataclass(kind):
        for field, hint in _hints(kind).items():
            if field in parts and not fits(parts[field], hint):
                raise ModelFileError(f"{name}.{field} is {shown(parts[field])}, which it cannot be")
        return kind(**parts)
    result: Any = object.__new__(kind)
    known = {*inspect.signature(kind).parameters, *getattr(kind, "later_fields", ())}
    for field in parts:
        if field not in known and inspect.getattr_static(kind, field, None) is not None:
            raise ModelFileError(f"{name}.{field} is what the class has itself")
    result.__dict__.update(parts)
    return result


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
