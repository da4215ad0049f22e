"""Threads that do not fight for cores."""

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from threadpoolctl import threadpool_info, threadpool_limits

from tightset import ConformalClassifier
from tightset.compute.threads import openmp_for


def openmp():
    return max(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "openmp")


@pytest.mark.parametrize(("rows", "expected"), [(100, 1), (9_999, 1), (10_000, 2), (10**6, 3)])
def test_openmp_has_no_more_threads_than_rows_keep_busy(rows, expected):
    with threadpool_limits(3, user_api="openmp"):
        with openmp_for(rows):
            assert openmp() == expected
        assert openmp() == 3


SEEN = []


class Counting(ClassifierMixin, BaseEstimator):
    """The frequencies of the labels; it counts OpenMP's threads when it is trained and used."""

    def fit(self, X, y):
        self.classes_, self.rows_ = np.unique(y, return_counts=True)
        SEEN.append(openmp())
        return self

    def predict_proba(self, X):
        SEEN.append(openmp())
        return np.tile(self.rows_ / self.rows_.sum(), (len(X), 1))


def test_classifiers_are_trained_and_used_on_few_rows_by_one_thread():
    rng = np.random.default_rng(0)
    with threadpool_limits(2, user_api="openmp"):
        ConformalClassifier(Counting(), random_state=0).fit(rng.normal(size=(200, 2)), rng.integers(2, size=200))
    assert len(SEEN) > 1
    assert set(SEEN) == {1}


def test_commands_wait_without_spinning():
    """The variable is set before the library that reads it is imported, and a user's own stays."""
    script = (
        "import os, sys\nimport tightset.cli\nassert 'sklearn' not in sys.modules\nsys.argv = ['tightset', '--version']\n"
        "try:\n    tightset.cli.main()\nexcept SystemExit:\n    print(os.environ['OMP_WAIT_POLICY'])"
    )
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for given, expected in (({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")):
        told = subprocess.run([sys.executable, "-c", script], env={**env, **given}, capture_output=True, text=True)
        assert told.stdout.split()[-1] == expected
