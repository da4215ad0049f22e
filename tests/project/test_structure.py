"""The map of the code holds: who may reach into whom, how large things are, what an import costs, what is public.

Who may import whom is stated in pyproject.toml, and checked by import-linter (`make lint`).
"""

import ast
import importlib.metadata
import importlib.util
import inspect
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tightset

SOURCE = Path(tightset.__file__).parent
ROOT = Path(__file__).parents[2]
FILES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(text) for name, text in FILES.items()}

HEAVY = ["torch", "dask", "matplotlib", "numpy", "scipy", "sklearn", "pandas", "polars", "pyarrow", "rich", "typer"]

NAMED_TUPLES = {"_replace", "_fields", "_asdict", "_make"}
OF_IPYTHON = {"_repr_mimebundle_"}
# Files that look at the inner state of other people's estimators: it is what they are for.
OF_OTHERS = {"export/bases.py", "storage/compiled.py", "storage/treenodes.py"}
OF_PYTHON = {
    ("exceptions.py", "_getframe"),
    ("compute/dask_rows.py", "_meta"),
}  # the caller of a warning; Dask's frames


def loaded_by(*statements):
    """What is loaded after each of them."""
    look = f"print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    code = "\n".join(["import sys, json", *(f"{one}; {look}" for one in statements)])
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(json.loads(line)) for line in found.stdout.splitlines()]


def test_import_is_light():
    none, some = loaded_by("import tightset", "from tightset import SCPOClassifier")
    assert none == set()
    if some:
        assert some <= loaded_by("import sklearn.linear_model")[0]


def test_the_help_of_commands_is_instant():
    """`tightset --help` and `--version` compute nothing, and load nothing to compute with."""
    (found,) = loaded_by("import tightset.cli.app")
    assert found <= {"typer", "rich"}


def test_public_face(torch):
    assert dir(tightset) == sorted(tightset.__all__)
    assert (SOURCE / "py.typed").exists()
    assert tightset.__version__ == importlib.metadata.version("tightset")
    assert all(hasattr(tightset, name) for name in tightset.__all__)
    with pytest.raises(AttributeError, match="no attribute 'SCPOClasifier'"):
        tightset.SCPOClasifier  # noqa: B018


def defined(tree):
    """Names that a module gives to what is its own: functions, classes, variables, attributes that it sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@pytest.mark.parametrize("name", FILES)
def test_nothing_reaches_into_another_module(name):
    own = {*defined(TREES[name])} | NAMED_TUPLES | OF_IPYTHON
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tightset"):
            private = [one.name for one in node.names if one.name.startswith("_") and one.name != "__version__"]
            assert private == [], f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                continue
            known = node.attr in own or name in OF_OTHERS or (name, node.attr) in OF_PYTHON
            assert known, f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_at_a_sitting(name):
    assert len(FILES[name].splitlines()) <= 350


def parameters(function):
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    return [one for one in names if one not in ("self", "cls")]


def is_command(function):
    """Whether its parameters are options of the command line."""
    return any(".command(" in ast.unparse(one) for one in function.decorator_list)


def is_kernel(function):
    return any("triton.jit" in ast.unparse(one) for one in function.decorator_list)


@pytest.mark.parametrize("name", FILES)
def test_functions_have_few_parameters(name):
    estimators = {"estimators/scpo.py", "estimators/conformal.py", "neural/classifier.py", "neural/loss.py"}
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef) and not is_command(node) and not is_kernel(node):
            most = 17 if node.name == "__init__" and name in estimators else 10 if node.name == "fit_table" else 8
            assert len(parameters(node)) <= most, f"{node.name}, line {node.lineno}"


def test_the_estimator_has_at_most_seventeen_parameters():
    """What is tried is a `Search`; what is asked for (cost, order, assurance, ...) has a name each."""
    assert len(inspect.signature(tightset.SCPOClassifier).parameters) <= 17


@pytest.mark.parametrize("name", FILES)
def test_objects_are_no_keys_by_their_address(name):
    if name == "compute/identity.py":  # which does it once, and keeps the objects alive
        return
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id":
            assert name == "export/bases.py", f"line {node.lineno}"  # options of skl2onnx are keyed so


@pytest.mark.parametrize("name", FILES)
def test_a_predictor_has_a_type(name):
    folder = name.split("/")[0]
    called = {"predictor", "model"} if folder in ("plots", "report", "tables", "cli") else {"predictor"}
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.arg) and node.arg in called and node.annotation is not None:
            assert ast.unparse(node.annotation) != "Any", f"line {node.lineno}"


def test_the_data_go_down_through_the_layers_and_never_back_up():
    """From `fit` to `predict_set`, calls from one folder into another; those into `compute` are free."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    depth = {name: at for at, layer in enumerate(layers) for name in layer.split(" | ")}
    spec = importlib.util.spec_from_file_location("trace_tool", ROOT / "tools" / "trace.py")
    trace = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trace)
    calls = [*trace.traced()]
    assert [call for call in calls if depth[call[0]] >= depth[call[1]]] == []
    assert len(calls) <= 12


def test_only_compute_knows_where_rows_lie():
    for name, text in FILES.items():
        if not name.startswith("compute/"):
            assert "Partitions" not in text, name
            assert "import dask" not in text, name
