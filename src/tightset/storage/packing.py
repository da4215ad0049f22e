"""Fitted objects as JSON and arrays, and back: nothing that is read can run.

Packed data are a list of nodes, each made of plain values and of references to nodes before it: arrays, objects of this
package by the name of their class and the names of their fields, and estimators of other packages through skops, which
builds only types that are agreed to. An object that two others share is one node, and one object again when unpacked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from math import prod
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from tightset.compute.identity import Same
from tightset.exceptions import ModelFileError
from tightset.storage.archives import UntrustedError, build, dump, untrusted_types
from tightset.storage.registry import KINDS, fields_of, is_storable, make

__all__ = ["Packed", "pack", "unpack"]


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
    >>> unpack(packed)
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
        self._at: dict[Same, int] = {}

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
        key = Same(value)
        if key not in self._at:
            node = self._node(value, where)
            self._at[key] = len(self.nodes)
            self.nodes.append(node)
        return {"ref": self._at[key]}

    def _node(self, value: Any, where: str) -> Any:
        if type(value) is np.ndarray:
            return self._array(value, where)
        if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
            raise ModelFileError(
                f"{where} is {getattr(value, '__name__', value)!r}, a function or class of yours. A model file holds "
                "none, because opening one never runs code: use one that has a name here, or pickle the model"
            )
        if type(value).__module__.startswith("tightset."):
            if not is_storable(type(value)):
                raise ModelFileError(f"{where} is a {type(value).__name__}, which a model file cannot hold")
            parts = {key: self.plain(one, f"{where}.{key}") for key, one in fields_of(value).items()}
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
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        try:
            data = dump(value)
            unknown = untrusted_types(data, self.trusted)
        except ImportError:  # names the extra
            raise
        except Exception as error:
            raise ModelFileError(f"{where}, a {name}, cannot be stored safely: {error}") from error
        if unknown:
            raise ModelFileError(
                f"{where}, a {name}, cannot be stored safely: opening the file would build {', '.join(unknown)}. If "
                f"those who open it may trust that, save it, and load it, with trusted={unknown}; or pickle the model"
            )
        _from_skops(data, self.trusted, where)  # better now than when it is needed
        return data


def unpack(packed: Packed, *, trusted: Iterable[str] = ()) -> Any:
    """The object again, of classes that are registered."""
    built: list[Any] = []
    arrays = dict(packed.arrays)  # each is used once: a small file must not fill the memory

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"ref": int(at)} if 0 <= at < len(built) and at is not False:
                return built[at]
            case {"tuple": list(parts)}:
                return tuple(plain(one) for one in parts)
            case {"dict": list(pairs)}:
                return {plain(key): plain(one) for key, one in pairs}
            case {"float": "inf" | "-inf" | "nan" as text}:
                return float(text)
            case {"fraction": str(text)} if re.fullmatch(r"-?\d{1,99}(/0*[1-9]\d{0,98})?", text):
                return Fraction(text)
            case {"decimal": str(text)} if re.fullmatch(r"-?\d{1,99}(\.\d{1,99})?(E-?\d{1,2})?", text):
                return Decimal(text)
            case {"scalar": str(dtype), "value": scalar} if _dtype(dtype, "fiubU"):
                inner = plain(scalar)
                if isinstance(inner, (bool, int, float, str)):
                    kind = np.dtype(dtype).kind
                    return np.array(inner, dtype="U" if kind == "U" else dtype)[()]
        raise ModelFileError(f"there is a value of an unknown form: {str(value)[:60]}")

    def node(value: Any) -> Any:
        match value:
            case {"array": str(name), **rest}:
                array = np.array(arrays.pop(name))  # aligned, and its own
                array = array.T if rest.get("transposed") is True else array
                if "dtype" not in rest:
                    return array
                if array.dtype != np.int64:
                    raise ModelFileError(f"an array of times is one of {array.dtype}")
                return array.view(_dtype(str(rest["dtype"]), "mM"))
            case {"strings": list(texts), "dtype": str(dtype), "shape": list(shape)}:
                if not all(isinstance(text, str) for text in texts):
                    raise ModelFileError("an array of texts holds something else")
                if dtype == "T":
                    return _shaped(np.array(texts, dtype=np.dtypes.StringDType()), shape)
                wide = _dtype(dtype, "US")
                narrow = np.array(texts, dtype=wide.kind)  # as wide as it must be, not as it says
                fits = wide.itemsize <= max(4096, 4 * narrow.itemsize)
                return _shaped(narrow.astype(wide) if fits else narrow, shape)
            case {"objects": list(objects), "shape": list(shape)}:
                array = np.empty(len(objects), dtype=object)
                for at, one in enumerate(objects):
                    array[at] = plain(one)
                return _shaped(array, shape)
            case {"kind": str(kind), "fields": dict(parts)} if kind in KINDS:
                return make(KINDS[kind], {key: plain(one) for key, one in parts.items()})
            case {"kind": str(kind)}:
                raise ModelFileError(f"it holds a {kind[:60]}, which this version of tightset does not know")
            case {"skops": str(name)}:
                return _from_skops(arrays.pop(name).tobytes(), trusted, "the model")
        raise ModelFileError(f"there is a part of an unknown form: {str(value)[:60]}")

    for one in packed.nodes:
        built.append(node(one))  # noqa: PERF401 - a node sees those before it
    return plain(packed.root)


def _dtype(text: str, kinds: str) -> np.dtype[Any]:
    dtype = np.dtype(text) if len(text) < 40 else np.dtype(object)
    if dtype.kind not in kinds or (dtype.kind in "fiub" and dtype.itemsize > 8):
        raise ModelFileError(f"{text[:20]!r} is no type that a model file can hold there")
    return dtype


def _shaped(array: np.ndarray, shape: list[Any]) -> np.ndarray:
    if not all(type(size) is int and size >= 0 for size in shape) or prod(shape) != len(array):
        raise ModelFileError(f"{len(array)} values do not have the shape {str(shape)[:40]}")
    return array.reshape(shape)


def _from_skops(data: bytes, trusted: Iterable[str], where: str) -> Any:
    try:
        return build(data, trusted)
    except UntrustedError as error:
        raise ModelFileError(
            f"opening {where} would build {error}, which tightset does not know as harmless; if you trust where it "
            f"comes from: tightset.load(path, trusted={error.names})"
        ) from None
    except ImportError as error:
        raise ModelFileError(f"{where} needs a package that is not installed: {error}") from error
    except Exception as error:
        raise ModelFileError(f"{where} holds an estimator that cannot be built: {error}") from error
