"""Model files as somebody malicious would write them: other contents, and a checksum that agrees."""

import hashlib
import io
import json
import zipfile

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from tightset.storage import file as storage


def forged(written, change):
    """A file whose header and arrays ``change(about, arrays)`` has changed."""
    about = json.loads(storage._split(written)[1]["__metadata__"]["tightset"])
    arrays = load_tensors(written)
    change(about, arrays)
    about["sha256"] = "0" * 64
    data = save_tensors(arrays, metadata={"tightset": json.dumps(about)})
    digest = hashlib.sha256(data).hexdigest()
    return data.replace(b'\\"sha256\\": \\"' + b"0" * 64, b'\\"sha256\\": \\"' + digest.encode(), 1)


def with_estimator(written, change):
    """A file in which ``change(schema, files)`` has changed what skops stored of each estimator."""

    def in_archives(about, arrays):
        for name in [node["skops"] for node in about["nodes"] if "skops" in node]:
            with zipfile.ZipFile(io.BytesIO(arrays[name].tobytes())) as old:
                files = {entry: old.read(entry) for entry in old.namelist()}
            schema = json.loads(files["schema.json"])
            change(schema, files)
            files["schema.json"] = json.dumps(schema).encode()
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as new:
                for entry, data in files.items():
                    new.writestr(entry, data)
            arrays[name] = np.frombuffer(buffer.getvalue(), dtype=np.uint8)

    return forged(written, in_archives)


def with_archive(written, change):
    """A file in which ``change(data)`` has changed the bytes of each archive of skops."""

    def in_archives(about, arrays):
        for name in [node["skops"] for node in about["nodes"] if "skops" in node]:
            arrays[name] = np.frombuffer(change(arrays[name].tobytes()), dtype=np.uint8)

    return forged(written, in_archives)


def rezipped(data, change):
    """An archive of skops in which ``change(text)`` has changed the text of the schema."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for entry in old.namelist():
            text = old.read(entry)
            new.writestr(entry, change(text.decode()) if entry == "schema.json" else text)
    return buffer.getvalue()


def nodes(schema, name):
    """The nodes of skops for objects of a type, or for entries of that name in an object or a dict."""
    found, todo = [], [("", schema)]
    while todo:
        key, one = todo.pop()
        if isinstance(one, dict):
            if "__loader__" in one and name in (key, one.get("__class__")):
                found.append(one)
            todo.extend(one.items())
        elif isinstance(one, list):
            todo.extend((key, part) for part in one)
    return found


def array_of(files, node):
    return np.load(io.BytesIO(files[node["file"]]))


def put_array(files, node, array):
    with io.BytesIO() as out:
        np.save(out, array)
        files[node["file"]] = out.getvalue()
