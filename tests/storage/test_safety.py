"""Model files that were damaged, or made to do harm: none is opened, and nothing in them runs."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import skops.io
from safetensors.numpy import save as save_tensors
from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

import tightset
from forging import forged
from tightset import ConformalClassifier
from tightset.exceptions import ModelFileError
from tightset.storage.packing import Packed, unpack

X, Y = load_wine(return_X_y=True)


class Mine(GaussianNB):
    """An estimator of the user's own."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.tightset"
    ConformalClassifier(GaussianNB(), random_state=0).fit(X, Y).save(path)
    return path.read_bytes()


def refused(tmp_path, data, match):
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(ModelFileError, match=match):
        tightset.load(tmp_path / "bad")


def test_damaged_files(tmp_path, written):
    refused(tmp_path, b"", "is empty")
    refused(tmp_path, written[:5], "not a tightset model")
    refused(tmp_path, written[: len(written) // 100], "not whole")
    refused(tmp_path, written[: len(written) // 2], "cut short|not whole")
    refused(tmp_path, written[:-1], "checksum")
    refused(tmp_path, written + b"x", "checksum")
    rng = np.random.default_rng(0)
    for at in rng.integers(8, len(written), size=200):
        altered = bytearray(written)
        altered[at] ^= 1 << int(rng.integers(8))
        refused(tmp_path, bytes(altered), "checksum|not a tightset model|not whole|damaged|format")
    with pytest.raises(FileNotFoundError):
        tightset.load(tmp_path / "nothing")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("code of a file ran",))


def test_pickles_and_archives_are_not_opened(tmp_path):
    refused(tmp_path, pickle.dumps(Bomb()), "is a pickle")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10**7))
    refused(tmp_path, buffer.getvalue(), "is a zip archive")
    refused(tmp_path, save_tensors({"a": np.zeros(3)}), "not a tightset model")


def test_forged_files(tmp_path, written):
    def with_skops(data):
        def change(about, arrays):
            at = next(node["skops"] for node in about["nodes"] if "skops" in node)
            arrays[at] = np.frombuffer(data, dtype=np.uint8)

        return change

    def with_node(node):
        return lambda about, _: about["nodes"].__setitem__(0, node)

    (tmp_path / "good").write_bytes(forged(written, lambda *_: None))
    tightset.load(tmp_path / "good")  # forging works
    refused(tmp_path, forged(written, lambda about, _: about.update(format=3)), "format 3.*upgrade")
    refused(tmp_path, forged(written, lambda about, _: about.update(format="x")), "no format number")
    refused(tmp_path, forged(written, with_node({"kind": "Popen", "fields": {"args": "true"}})), "does not know")
    refused(tmp_path, forged(written, with_node({"kind": "Member", "fields": {}})), "can read")
    refused(tmp_path, forged(written, with_node({"array": "no such"})), "can read")
    refused(tmp_path, forged(written, with_node({"ref": 5})), "unknown form")
    refused(tmp_path, forged(written, with_node({"scalar": "O", "value": 1})), "unknown form")
    refused(tmp_path, forged(written, lambda about, _: about.update(root={"fraction": "1e999999999"})), "unknown form")
    twice = forged(written, lambda about, _: about["nodes"].append(next(n for n in about["nodes"] if "array" in n)))
    refused(tmp_path, twice, "can read")
    refused(tmp_path, forged(written, with_node([["x"] * 3])), "unknown form")
    refused(tmp_path, forged(written, lambda about, _: about.update(root={"ref": 10**6})), "unknown form")
    refused(tmp_path, forged(written, lambda about, _: about.pop("nodes")), "damaged")
    refused(tmp_path, forged(written, with_skops(skops.io.dumps(Mine()))), r"would build .*Mine")
    squeezed = skops.io.dumps(GaussianNB(), compression=zipfile.ZIP_DEFLATED)
    refused(tmp_path, forged(written, with_skops(squeezed)), "is compressed")
    refused(tmp_path, forged(written, with_skops(b"PK nonsense")), "cannot be built")


def constructor(name, *arguments):
    """A node of skops that calls a class with arguments of the file."""
    module, kind = name.rsplit(".", 1)
    of = [
        {
            "__class__": "str",
            "__module__": "builtins",
            "__loader__": "JsonNode",
            "content": json.dumps(one),
            "is_json": True,
        }
        for one in arguments
    ]
    content = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": of}
    schema = {"__class__": kind, "__module__": module, "__loader__": "ConstructorFromReduceNode", "content": content}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("schema.json", json.dumps({**schema, "protocol": 2, "_skops_version": "0.16.0"}))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "name", ["lightgbm.basic.Booster", "xgboost.core.Booster", "sklearn.utils.validation.check_array"]
)
def test_what_is_harmless_as_data_is_not_called(tmp_path, written, name):
    def change(about, arrays):
        at = next(node["skops"] for node in about["nodes"] if "skops" in node)
        arrays[at] = np.frombuffer(constructor(name, None, None, "/dev/null"), dtype=np.uint8)

    refused(tmp_path, forged(written, change), f"would build {name}")


def test_texts_take_no_more_room_than_they_need():
    (array,) = unpack(Packed([{"ref": 0}], [{"strings": ["a"], "dtype": "<U400000000", "shape": [1]}], {}))
    assert array.tolist() == ["a"]
    assert array.nbytes < 100
    assert unpack(Packed({"scalar": "<U400000000", "value": "a"}, [], {})).nbytes < 100
