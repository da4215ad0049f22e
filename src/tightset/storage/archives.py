"""An estimator of another package as skops stores it: its types are checked, then it is built, then its contents.

Most of an estimator can be checked once it is built. Compiled code reads the rest while it is being built: the text of
a booster, the sizes of a tree, the state of a tree of neighbours. These are checked, or rebuilt, before.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tightset.exceptions import needed_for
from tightset.storage.boosters import sound_lightgbm, sound_xgboost
from tightset.storage.compiled import check_compiled
from tightset.storage.trust import unknown_types

__all__ = ["UntrustedError", "build", "dump", "untrusted_types"]

_KEYS = {*(f"builtins.{name}" for name in ("str", "int", "float", "bool", "bytes")), "builtins.NoneType"} | {
    f"numpy.{name}" for name in ("int32", "int64", "float64", "str_", "bool", "bool_")
}
_TREES_OF_NEIGHBOURS = ("sklearn.neighbors._kd_tree", "sklearn.neighbors._ball_tree")
_METRICS = "sklearn.metrics._dist_metrics"
# To list the estimators of scikit-learn, skops imports its packages, among them these, which nobody needs for that and
# which import all of torch, dask and cupy where these are installed: three seconds before a model is open.
_NOT_ESTIMATORS = [f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask", "dask.array", "cupy")]
_LIGHTGBM, _XGBOOST = "lightgbm.basic.Booster", "xgboost.core.Booster"


class UntrustedError(ValueError):
    """A file would build types that are not known as harmless: their names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


def _skops_io() -> Any:
    hidden = [name for name in _NOT_ESTIMATORS if name not in sys.modules and "skops.io" not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be imported
    try:
        with needed_for("a model file with an estimator of another package", "files"):
            import skops.io
    finally:
        for name in hidden:
            del sys.modules[name]
    return skops.io


def dump(value: Any) -> bytes:
    """What skops writes of an estimator."""
    return bytes(_skops_io().dumps(value))


def untrusted_types(data: bytes, trusted: Iterable[str]) -> list[str]:
    """The types in what skops wrote that are neither known as harmless nor ``trusted``."""
    schema, not_of_skops = _schema(data)
    return unknown_types(schema, not_of_skops, trusted)


def build(data: bytes, trusted: Iterable[str]) -> Any:
    """The estimator again. Raises `UntrustedError`, or ValueError if its numbers would lead compiled code astray."""
    schema, not_of_skops = _schema(data)
    unknown = unknown_types(schema, not_of_skops, trusted)
    if unknown:
        raise UntrustedError(unknown)
    built = _skops_io().loads(_sound(data, schema, set(trusted)), trusted=sorted(not_of_skops))
    check_compiled(built, trusted)
    return built


def _schema(data: bytes) -> tuple[Any, set[str]]:
    """What skops says is inside, and the types among it that it does not trust by itself."""
    skops_io = _skops_io()
    from skops.io._protocol import PROTOCOL

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        # As skops writes it nothing is compressed, so that what is unpacked is no larger than the file.
        size = sum(entry.file_size for entry in entries)
        if size > len(data) or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed, which tightset never does")
        if len({entry.filename for entry in entries}) < len(entries):
            raise ValueError("two of its parts have one name")
        schema = json.loads(archive.read("schema.json"))
        if schema.get("protocol") != PROTOCOL:  # under others skops reads other fields than those looked at here
            raise ValueError(f"it is written in protocol {schema.get('protocol')} of skops, and not in {PROTOCOL}")
        return schema, set(skops_io.get_untrusted_types(data=data))


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if "__loader__" in one:
                yield one
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)


def _type_of(node: dict[str, Any]) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"


def _sound(data: bytes, schema: Any, trusted: set[str]) -> bytes:
    """The same archive, with the sizes of trees checked and boosters made anew."""
    nodes = list(_nodes(schema))
    for node in nodes:
        if "key_types" in node:
            _plain_keys(node)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_sizes(nodes, archive, trusted)
        made: dict[str, bytes] = {}
        for node in nodes:
            name = _type_of(node)
            if name in {_LIGHTGBM, _XGBOOST} - trusted and node["__loader__"] == "ObjectNode":
                try:
                    _renew(node, archive, made)
                except ValueError as error:
                    raise ValueError(f"{error}; if you trust where it comes from: trusted=[{name!r}]") from error
        return _rewritten(archive, schema, made)


def _plain_keys(node: dict[str, Any]) -> None:
    """Keys of a dict are what they say: skops calls what the file names as their type, and may so make other keys."""
    types = node["key_types"]
    plain = isinstance(types, dict) and types.get("__loader__") == "ListNode"
    kinds = types.get("content", []) if plain else []
    plain = plain and len(kinds) == len(node["content"])
    if not (plain and all(one.get("__loader__") == "TypeNode" and _type_of(one) in _KEYS for one in kinds)):
        raise ValueError("a dict has keys of a type that is none")
    for one in (types, *kinds):  # lest skops takes another part of the file in its place
        one.pop("__id__", None)


def _renew(node: dict[str, Any], archive: zipfile.ZipFile, made: dict[str, bytes]) -> None:
    """Put a booster's text in order; without identities, lest skops takes another part of the file in its place."""
    state = node["content"]
    state.pop("__id__", None)
    entries = state["content"]
    key = {_LIGHTGBM: "_handle", _XGBOOST: "handle"}[_type_of(node)]
    if state["__loader__"] != "DictNode" or key not in entries or "handle" in entries.keys() - {key}:
        raise ValueError(f"a {_type_of(node)} has no model")
    handle = entries[key]
    if _type_of(node) == _LIGHTGBM:
        if handle["__loader__"] != "JsonNode":
            raise ValueError("the model of LightGBM is no text")
        text = sound_lightgbm(json.loads(handle["content"]))
        entries[key] = {**handle, "content": json.dumps(text), "__id__": None}
        return
    if handle["__loader__"] != "BytearrayNode":
        raise ValueError("the model of XGBoost is not made of bytes")
    name = f"booster-{len(made)}.bin"
    made[name] = sound_xgboost(archive.read(handle["file"]))
    entries[key] = {**handle, "file": name, "__id__": None}


def _rewritten(archive: zipfile.ZipFile, schema: Any, made: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as again:
        for entry in archive.namelist():
            if entry != "schema.json" and entry not in made:
                again.writestr(entry, archive.read(entry))
        for name, content in made.items():
            again.writestr(name, content)
        again.writestr("schema.json", json.dumps(schema))
    return buffer.getvalue()


def _check_sizes(nodes: list[dict[str, Any]], archive: zipfile.ZipFile, trusted: set[str]) -> None:
    """What constructors and ``__setstate__`` of compiled code take without looking: how much of what there is."""
    parts = _Parts(nodes, archive)
    for node in nodes:
        if node["__loader__"] == "TreeNode":
            _check_tree(node, parts)
        elif node["__loader__"] == "RandomGeneratorNode":
            seed = node["content"]["seed_seq"]
            size = seed["content"].get("pool_size")
            if not (parts.own(seed, "DictNode") and parts.own(size, "JsonNode") and size["content"] == "4"):
                raise ValueError("a seed is not what NumPy writes")
        elif node["__loader__"] == "ObjectNode" and _type_of(node) not in trusted:
            if node.get("__module__") in _TREES_OF_NEIGHBOURS:
                _check_neighbours(node, parts)
            elif node.get("__module__") == _METRICS:
                _check_metric(node, parts)


class _Parts:
    """What nodes hold, of those that skops builds as they stand: of two of one identity it takes the first."""

    def __init__(self, nodes: list[dict[str, Any]], archive: zipfile.ZipFile) -> None:
        first: dict[Any, Any] = {}
        self._archive = archive
        self._ambiguous = {
            node["__id__"]
            for node in nodes
            if "__id__" in node and first.setdefault(node["__id__"], node) is not node and first[node["__id__"]] != node
        }

    def own(self, node: Any, loader: str) -> bool:
        right = isinstance(node, dict) and node.get("__loader__") == loader
        return right and node.get("__id__") not in self._ambiguous

    def number(self, node: Any, kind: type | tuple[type, ...] = int) -> Any:
        value = json.loads(node["content"]) if self.own(node, "JsonNode") else None
        number = isinstance(value, kind) and not isinstance(value, bool)
        if not number:
            raise ValueError("what should be a number is none")
        return value

    def array(self, node: Any, dtype: Any, ndim: int) -> np.ndarray:
        """An array of that type, or of that kind of structure (``np.void``)."""
        if not self.own(node, "NdArrayNode") or (node["type"], _type_of(node)) != ("numpy", "numpy.ndarray"):
            raise ValueError("what should be an array is none")
        found = np.load(io.BytesIO(self._archive.read(node["file"])), allow_pickle=False)
        right = isinstance(found, np.ndarray) and found.ndim == ndim
        if not right or not (found.dtype.type is np.void if dtype is np.void else found.dtype == dtype):
            raise ValueError("an array is of another type")
        return np.asarray(found)

    def tuple(self, node: Any, length: int) -> list[Any]:
        """The nodes in a tuple: compiled code does not look how many there are, nor whether it is one."""
        if not self.own(node, "TupleNode") or _type_of(node) != "builtins.tuple" or len(node["content"]) != length:
            raise ValueError(f"what should be a tuple of {length} is none")
        return list(node["content"])


def _refused(what: str, check: Callable[[], Any]) -> Any:
    try:
        return check()
    except Exception as error:
        raise ValueError(f"{what} is not what scikit-learn writes ({error})") from error


def _check_tree(node: Any, parts: _Parts) -> None:
    """Of scikit-learn: as many classes as it has outputs, as many nodes as it says."""

    def sizes() -> tuple[int, np.ndarray, int, int]:
        columns, classes, outputs = parts.tuple(node["__reduce__"]["args"], 3)
        parts.number(columns)
        if not parts.own(node["content"], "DictNode"):
            raise ValueError("it has no nodes")
        state = node["content"]["content"]
        parts.number(state["max_depth"])
        parts.array(state["values"], np.float64, 3)
        nodes = len(parts.array(state["nodes"], np.void, 1))
        return parts.number(outputs), parts.array(classes, np.intp, 1), parts.number(state["node_count"]), nodes

    outputs, classes, said, nodes = _refused("a tree", sizes)
    if outputs != len(classes) or not (classes >= 1).all():
        raise ValueError("a tree has not as many outputs as it says")
    if said != nodes or nodes < 1:
        raise ValueError("a tree has not as many nodes as it says")


def _check_neighbours(node: Any, parts: _Parts) -> None:
    """A k-d tree or a ball tree: rows, their order, nodes, bounds, seven numbers, the metric, and weights or None."""

    def check() -> None:
        entries = parts.tuple(node["content"], 13)
        for entry, dtype, ndim in zip(entries, (np.float64, np.intp, np.void, np.float64), (2, 1, 1, 3), strict=False):
            parts.array(entry, dtype, ndim)
        for entry in entries[4:11]:
            parts.number(entry)
        metric, weights = entries[11:]
        if not parts.own(metric, "ObjectNode") or metric.get("__module__") != _METRICS:
            raise ValueError("it has no metric")
        if not (parts.own(weights, "JsonNode") and weights["content"] == "null"):
            parts.array(weights, np.float64, 1)

    _refused("a tree of neighbours", check)


def _check_metric(node: Any, parts: _Parts) -> None:
    """The power, the weights of the columns, and a matrix."""

    def check() -> None:
        power, weights, matrix = parts.tuple(node["content"], 3)
        parts.number(power, (int, float))
        parts.array(weights, np.float64, 1)
        parts.array(matrix, np.float64, 2)

    _refused("a metric", check)
