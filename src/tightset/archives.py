"""An estimator of another package as skops stores it: its types are agreed to, then it is built, then looked at.

Most of an estimator can be checked once it is built. Not so what is handed to compiled code while it is being built:
the text of a booster, and the sizes of a tree. These are checked, or made anew, before.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tightset.boosters import sound_lightgbm, sound_xgboost
from tightset.compiled import check_compiled
from tightset.trust import unknown_types

__all__ = ["UntrustedError", "build", "untrusted_types"]

_KEYS = {*(f"builtins.{name}" for name in ("str", "int", "float", "bool", "bytes")), "builtins.NoneType"} | {
    f"numpy.{name}" for name in ("int32", "int64", "float64", "str_", "bool", "bool_")
}
_LIGHTGBM, _XGBOOST = "lightgbm.basic.Booster", "xgboost.core.Booster"


class UntrustedError(ValueError):
    """A file would build types that are not known as harmless: their names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


def untrusted_types(data: bytes, trusted: Iterable[str]) -> list[str]:
    """The types in what skops wrote that are neither known as harmless nor ``trusted``."""
    schema, not_of_skops = _schema(data)
    return unknown_types(schema, not_of_skops, trusted)


def build(data: bytes, trusted: Iterable[str]) -> Any:
    """The estimator again. Raises `UntrustedError`, or ValueError if its numbers would lead compiled code astray."""
    import skops.io

    schema, not_of_skops = _schema(data)
    unknown = unknown_types(schema, not_of_skops, trusted)
    if unknown:
        raise UntrustedError(unknown)
    built = skops.io.loads(_sound(data, schema, set(trusted)), trusted=sorted(not_of_skops))
    check_compiled(built, trusted)
    return built


def _schema(data: bytes) -> tuple[Any, set[str]]:
    """What skops says is inside, and the types among it that it does not trust by itself."""
    import skops.io
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
        return schema, set(skops.io.get_untrusted_types(data=data))


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
        _check_sizes(nodes, archive)
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


def _check_sizes(nodes: list[dict[str, Any]], archive: zipfile.ZipFile) -> None:
    """What constructors take as a size: the outputs of a tree of scikit-learn, the pool of a seed of NumPy."""
    first: dict[Any, Any] = {}
    ambiguous = {
        node["__id__"]
        for node in nodes
        if "__id__" in node and first.setdefault(node["__id__"], node) is not node and first[node["__id__"]] != node
    }

    def own(node: Any, loader: str = "JsonNode") -> bool:
        return node["__loader__"] == loader and node.get("__id__") not in ambiguous

    for node in nodes:
        if node["__loader__"] == "TreeNode":
            arguments = node["__reduce__"]["args"]
            columns, classes, outputs = arguments["content"]
            sound = own(arguments, "TupleNode") and own(classes, "NdArrayNode")
            if not (sound and own(columns) and own(outputs)):
                raise ValueError("a tree is not what scikit-learn writes")
            numbers = np.load(io.BytesIO(archive.read(classes["file"])), allow_pickle=False)
            if numbers.ndim != 1 or json.loads(outputs["content"]) != len(numbers) or not (numbers >= 1).all():
                raise ValueError("a tree has not as many outputs as it says")
        elif node["__loader__"] == "RandomGeneratorNode":
            seed = node["content"]["seed_seq"]
            size = seed["content"].get("pool_size")
            if not (own(seed, "DictNode") and own(size) and size["content"] == "4"):
                raise ValueError("a seed is not what NumPy writes")
