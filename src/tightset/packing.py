"""Fitted objects as JSON and arrays, and back: nothing that is read can run.

Packed data are a list of nodes, each made of plain values and of references to nodes before it: arrays, objects of this
package by the name of their class and the names of their fields, and estimators of other packages through skops, which
builds only types that are agreed to. An object that two others share is one node, and one object again when unpacked.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from tightset.trust import check_pointers, unknown_types

__all__ = ["ModelFileError", "Packed", "pack", "unpack"]


class ModelFileError(ValueError):
    """A model cannot be stored safely, or a file is not a model that can be opened safely."""


class Packed(NamedTuple):
    """``root`` refers to ``nodes``, in which ``{"array": name}`` refers to ``arrays``."""

    root: Any
    nodes: list[Any]
    arrays: dict[str, np.ndarray]


def pack(value: Any, *, name: str = "model", trusted: Iterable[str] = ()) -> Packed:
    """Pack an object, and all that it holds; ``trusted`` are full names of further types that may be built again.

    >>> packed = pack({"a": (1, np.array([2.0]))})
    >>> packed.root, packed.nodes
    ({'dict': [['a', {'tuple': [1, {'ref': 0}]}]]}, [{'array': 'a0'}])
    >>> unpack(packed, {})
    {'a': (1, array([2.]))}
    """
    packer = _Packer(frozenset(trusted))
    root = packer.plain(value, name)
    return Packed(root, packer.nodes, packer.arrays)


class _Packer:
    def __init__(self, trusted: frozenset[str]) -> None:
        self.trusted = trusted
        self.nodes: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}
        self._at: dict[int, int] = {}
        self._alive: list[Any] = []  # what is gone could leave its id to something else

    def plain(self, value: Any, where: str) -> Any:
        """The JSON of a value: itself, a container of such, or a reference to a node."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if np.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return [self.plain(one, f"{where}[{at}]") for at, one in enumerate(value)]
        if kind is tuple:
            return {"tuple": [self.plain(one, f"{where}[{at}]") for at, one in enumerate(value)]}
        if kind is dict:
            pairs = value.items()
            return {"dict": [[self.plain(k, f"a key of {where}"), self.plain(v, f"{where}[{k!r}]")] for k, v in pairs]}
        if kind in (Fraction, Decimal):
            return {kind.__name__.lower(): str(value)}
        if isinstance(value, np.generic) and value.dtype.kind in "fiubU" and not isinstance(value, np.longdouble):
            return {"scalar": value.dtype.str, "value": self.plain(value.item(), where)}
        if id(value) not in self._at:
            node = self._node(value, where)
            self._at[id(value)] = len(self.nodes)
            self._alive.append(value)
            self.nodes.append(node)
        return {"ref": self._at[id(value)]}

    def _node(self, value: Any, where: str) -> Any:
        if type(value) is np.ndarray:
            return self._array(value, where)
        if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
            raise ModelFileError(
                f"{where} is {getattr(value, '__name__', value)!r}, a function or class of yours. A model file holds "
                "none, because opening one never runs code: use one that has a name here, or pickle the model"
            )
        if type(value).__module__.startswith("tightset."):
            parts = {key: self.plain(one, f"{where}.{key}") for key, one in _fields(value).items()}
            return {"kind": type(value).__name__, "fields": parts}
        return {"skops": self._hold(np.frombuffer(self._through_skops(value, where), dtype=np.uint8))}

    def _hold(self, array: np.ndarray) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return name

    def _array(self, array: np.ndarray, where: str) -> Any:
        kind = array.dtype.kind
        if kind in "US":
            return {"strings": array.astype(str).ravel().tolist(), "dtype": array.dtype.str, "shape": [*array.shape]}
        if kind == "O":
            objects = [self.plain(one, f"{where}[{at}]") for at, one in enumerate(array.ravel().tolist())]
            return {"objects": objects, "shape": [*array.shape]}
        if kind == "T":  # NumPy's strings of any length
            return {"strings": array.ravel().tolist(), "dtype": "T", "shape": [*array.shape]}
        if kind in "mM":
            return {"array": self._hold(np.ascontiguousarray(array).view(np.int64)), "dtype": array.dtype.str}
        if kind not in "fiub" or array.dtype.itemsize > 8:
            raise ModelFileError(f"{where} is an array of {array.dtype}, which a model file cannot hold")
        native = array.astype(array.dtype.newbyteorder("<"), copy=False)
        # Products round differently by the order in which their factors lie in memory.
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            return {"array": self._hold(np.ascontiguousarray(native.T)), "transposed": True}
        return {"array": self._hold(np.array(native, order="C"))}

    def _through_skops(self, value: Any, where: str) -> bytes:
        import skops.io

        name = f"{type(value).__module__}.{type(value).__qualname__}"
        try:
            data: bytes = skops.io.dumps(value)
            unknown = unknown_types(*_schema(data), self.trusted)
        except Exception as error:
            raise ModelFileError(f"{where}, a {name}, cannot be stored safely: {error}") from error
        if unknown:
            raise ModelFileError(
                f"{where}, a {name}, cannot be stored safely: opening the file would build {', '.join(unknown)}. If "
                f"those who open it may trust that, save it, and load it, with trusted={unknown}; or pickle the model"
            )
        _from_skops(data, self.trusted, where)  # better now than when it is needed
        return data


def _fields(value: Any) -> dict[str, Any]:
    if hasattr(value, "_fields"):  # a NamedTuple
        return {key: getattr(value, key) for key in value._fields}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclass_fields(value)}
    return dict(vars(value))


def unpack(packed: Packed, kinds: Mapping[str, type], *, trusted: Iterable[str] = ()) -> Any:
    """The object again; ``kinds`` are the classes of this package that may be built, by name."""
    built: list[Any] = []
    arrays = dict(packed.arrays)  # each is used once: a small file must not fill the memory

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"ref": int(at)} if 0 <= at < len(built):
                return built[at]
            case {"tuple": list(parts)}:
                return tuple(plain(one) for one in parts)
            case {"dict": list(pairs)}:
                return {plain(key): plain(one) for key, one in pairs}
            case {"float": str(text)}:
                return float(text)
            case {"fraction": str(text)} if re.fullmatch(r"-?\d{1,99}(/\d{1,99})?", text):
                return Fraction(text)
            case {"decimal": str(text)} if re.fullmatch(r"-?\d{1,99}(\.\d{1,99})?(E-?\d{1,2})?", text):
                return Decimal(text)
            case {"scalar": str(dtype), "value": scalar}:
                kind = np.dtype(dtype).kind
                if kind not in "fiubU":
                    raise ModelFileError(f"{dtype[:20]} is not what is said of a number there")
                return np.array(plain(scalar), dtype="U" if kind == "U" else dtype)[()]
        raise ModelFileError(f"there is a value of an unknown form: {str(value)[:60]}")

    def node(value: Any) -> Any:
        match value:
            case {"array": str(name), **rest}:
                array = np.array(arrays.pop(name))  # aligned, and its own
                array = array.T if rest.get("transposed") else array
                return array.view(_dtype(str(rest["dtype"]), "mM")) if "dtype" in rest else array
            case {"strings": list(texts), "dtype": str(dtype), "shape": list(shape)}:
                if dtype == "T":
                    return np.array(texts, dtype=np.dtypes.StringDType()).reshape(shape)
                _dtype(dtype, "US")
                narrow = np.array(texts, dtype=dtype[:2])  # as wide as it must be, not as it says
                wide = np.dtype(dtype).itemsize <= max(4096, 4 * narrow.itemsize)
                return (narrow.astype(dtype) if wide else narrow).reshape(shape)
            case {"objects": list(objects), "shape": list(shape)}:
                array = np.empty(len(objects), dtype=object)
                array[:] = [plain(one) for one in objects]
                return array.reshape(shape)
            case {"kind": str(kind), "fields": dict(parts)} if kind in kinds:
                return _build(kinds[kind], {key: plain(one) for key, one in parts.items()})
            case {"kind": str(kind)}:
                raise ModelFileError(f"it holds a {kind[:60]}, which this version of tightset does not know")
            case {"skops": str(name)}:
                return _from_skops(arrays.pop(name).tobytes(), trusted, "the model")
        raise ModelFileError(f"there is a part of an unknown form: {str(value)[:60]}")

    for one in packed.nodes:
        built.append(node(one))  # noqa: PERF401 - a node sees those before it
    return plain(packed.root)


def _dtype(text: str, kinds: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in kinds:
        raise ModelFileError(f"{text[:20]} is not what is said of an array there")
    return dtype


def _build(kind: type, parts: dict[str, Any]) -> Any:
    if hasattr(kind, "_fields") or is_dataclass(kind):
        return kind(**parts)
    result: Any = object.__new__(kind)
    result.__dict__.update(parts)
    return result


def _schema(data: bytes) -> tuple[Any, set[str]]:
    """What skops says is inside, and the types among it that it does not trust by itself."""
    import skops.io

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        # As skops writes it nothing is compressed, so that what is unpacked is no larger than the file.
        size = sum(entry.file_size for entry in entries)
        if size > len(data) or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ModelFileError("an estimator inside it is compressed, which tightset never does; it is not opened")
        return json.loads(archive.read("schema.json")), set(skops.io.get_untrusted_types(data=data))


def _from_skops(data: bytes, trusted: Iterable[str], where: str) -> Any:
    import skops.io

    try:
        schema, untrusted = _schema(data)
        unknown = unknown_types(schema, untrusted, trusted)
        if unknown:
            raise ModelFileError(
                f"opening {where} would build {', '.join(unknown)}, which tightset does not know as harmless; if you "
                f"trust where it comes from: tightset.load(path, trusted={unknown})"
            )
        built = skops.io.loads(data, trusted=sorted(untrusted))
        check_pointers(built)
    except ModelFileError:
        raise
    except ImportError as error:
        raise ModelFileError(f"{where} needs a package that is not installed: {error}") from error
    except Exception as error:
        raise ModelFileError(f"{where} holds an estimator that cannot be built: {error}") from error
    return built
