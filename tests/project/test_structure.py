"""The map of the code holds: who may import whom, what an import costs, what is public."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tightset

SOURCE = Path(tightset.__file__).parent

HEAVY = ["torch", "dask", "matplotlib", "pandas", "polars", "pyarrow", "rich", "typer"]


def loaded_by(statement):
    code = f"{statement}\nimport sys, json; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(found.stdout))


def test_import_is_light():
    assert loaded_by("import tightset") == set()
    assert loaded_by("from tightset import SCPOClassifier") <= loaded_by("import sklearn.linear_model")


def test_public_face():
    assert set(tightset.__all__) == {
        "ConformalClassifier",
        "SCPOClassifier",
        "Search",
        "TightsetWarning",
        "__version__",
        "load",
    }
    assert (SOURCE / "py.typed").exists()
    assert tightset.__version__ == importlib.metadata.version("tightset")
    assert all(hasattr(tightset, name) for name in tightset.__all__)
    with pytest.raises(AttributeError, match="no attribute 'SCPOClasifier'"):
        tightset.SCPOClasifier  # noqa: B018
