"""The two estimators in quick settings, for every test that fits one."""

import pytest

from tightset import ConformalClassifier, SCPOClassifier

GRID = {
    "search": "grid",
    "penalty": (10, 100),
    "sharpness": (1, 2),
    "learning_rate": (10, 100),
    "max_iter": 200,
}


def quick_grid(**changes):
    return SCPOClassifier(**(GRID | {"random_state": 0} | changes))


def quick_scpo(**changes):
    return SCPOClassifier(**({"search": "fast", "max_iter": 20, "random_state": 0} | changes))


def baseline(**changes):
    return ConformalClassifier(**({"random_state": 0} | changes))


both = pytest.mark.parametrize("make", [quick_scpo, quick_grid, baseline])
