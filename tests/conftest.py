"""Shared fixtures. The array API checks of scikit-learn skip themselves unless this variable is set before SciPy loads."""

import multiprocessing.forkserver
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of small trees, of two tests side by side, do not spin

import numpy as np
import pytest

from commands import FAST, run
from makers import QUICK, table
from tightset import Search
from tightset.estimators import cases
from tightset.models.classifiers import auto_classifiers
from tightset.models.named import named_classifier
from tightset.search.settings import SEARCHES


@pytest.fixture(scope="session")
def raw_data() -> Path:
    """The folder of raw data sets; a machine that names one in TIGHTSET_DATA must have it."""
    folder = os.environ.get("TIGHTSET_DATA")
    if not folder:
        pytest.skip("TIGHTSET_DATA does not name a folder with the paper's raw data")
    assert Path(folder).is_dir(), f"TIGHTSET_DATA names {folder}, which is not a folder"
    return Path(folder)


@pytest.fixture(scope="session")
def torch():
    """PyTorch, where it is installed; CI must have it."""
    if os.environ.get("CI") == "true":
        import torch
    else:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return torch


@pytest.fixture(scope="session")
def forkserver():
    """The server from which processes are forked that have imported already what studies and workers of Dask need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["workshops", "problems", "makers", "dask.dataframe", "distributed", "tightset.search.from_columns"]
    )
    multiprocessing.forkserver.ensure_running()  # it preloads this, and not what Dask asks for
    return context


@pytest.fixture
def few_trees(monkeypatch):
    """Classifiers by name and ``"auto"`` with 5 trees or rounds each, for what does not hang on how good they are."""

    def fewer(classifier):
        return classifier.set_params(**dict.fromkeys({"max_iter", "n_estimators"} & {*classifier.get_params()}, 5))

    for place in ("estimators.cases", "estimators.conformal", "models.named"):
        monkeypatch.setattr(f"tightset.{place}.named_classifier", lambda name: fewer(named_classifier(name)))
    monkeypatch.setattr(cases, "auto_classifiers", lambda **how: [fewer(one) for one in auto_classifiers(**how)])


@pytest.fixture
def blobs():
    """Three overlapping classes in the plane: easy enough to learn, too hard for singletons."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    centres = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])
    return centres[y] + rng.standard_normal((600, 2)), y


@pytest.fixture(scope="session")
def labelled_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1400, 5))
    y = np.argmax(1.5 * X[:, :3] + rng.gumbel(size=(1400, 3)), axis=1)
    return X[:600], y[:600], X[600:], y[600:]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("cli")
    table(600).to_csv(where / "train.csv", index=False)
    table(200, seed=1).to_csv(where / "test.csv", index=False)
    subprocess.run(
        [sys.executable, "-m", "tightset", "fit", "train.csv", "--target", "kind", *FAST, "--out", "m.tightset"],
        cwd=where,
        check=True,
        capture_output=True,
    )
    return where


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    return folder


@pytest.fixture
def cli(monkeypatch, capsys):
    """The command line in this process, where ``--search fast`` is faster still."""
    monkeypatch.setitem(SEARCHES, "fast", Search.fast(**QUICK))
    return lambda *words: run(monkeypatch, capsys, *map(str, words))
