"""The map of the code holds: who may import whom, what an import costs, what is public."""

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tightset

SOURCE = Path(tightset.__file__).parent

# A file may import only from files above it. docs/architecture.md explains the order.
ORDER = [
    "arrays", "inefficiency", "threads", "distributed", "rows", "rowtypes", "rowforms", "measures", "objective", "fused", "surrogate",
    "optimise", "lbfgs", "icp", "checking", "hashing", "scores", "metrics", "intervals", "shortfall", "columns", "models", "progress", "bases",
    "crossfit", "boosting", "grid", "paths",
    "choice", "pool", "refine", "search", "stacking", "pieces", "trust", "ubjson", "boosters", "treenodes", "compiled", "archives",
    "packing", "storage", "notebook",
    "predicting", "predictor", "classifier", "scpo", "plots", "texts", "files", "encoding", "learning", "target", "tables",
    "kinds", "loading", "export", "comparing", "predictions", "explaining",
    "report", "demo", "cli",
]  # fmt: skip


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "tightset":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tightset."):
            yield node.module.split(".")[1]


PAPER_ORDER = [
    "recipes",
    "datasets",
    "fetch",
    "baselines",
    "errata",
    "runner",
    "experiments",
    "efficiency",
    "peers",
    "summary",
    "figures",
    "sections",
    "report",
    "efficiency_report",
    "peers_report",
]


def test_the_paper_comes_after_the_estimators_and_in_its_own_order():
    assert {path.stem for path in (SOURCE / "paper").glob("*.py")} - {"__init__"} == set(PAPER_ORDER)
    for name in PAPER_ORDER:
        tree = ast.walk(ast.parse((SOURCE / "paper" / f"{name}.py").read_text()))
        modules = [node.module for node in tree if isinstance(node, ast.ImportFrom) and node.module]
        assert "tightset.cli" not in modules
        own = [module.split(".")[2] for module in modules if module.startswith("tightset.paper.")]
        assert set(own) <= set(PAPER_ORDER[: PAPER_ORDER.index(name)]), name


def test_every_file_is_on_the_map():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - {"paper"}
    assert {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"} | folders == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_files_import_only_from_above(name):
    above = ORDER[: ORDER.index(name)]
    files = [SOURCE / f"{name}.py"] if (SOURCE / f"{name}.py").exists() else sorted((SOURCE / name).glob("*.py"))
    assert files
    used = {other for file in files for other in imported(file)} - {name}
    below = [other for other in used if other in ORDER and other not in above]
    assert not below, f"{name}.py imports {below}"


def test_the_architecture_page_names_every_file():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    assert [name for name in ORDER if f"`{name}.py`" not in page and f"`{name}/`" not in page] == []


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
