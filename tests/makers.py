"""The two estimators in quick settings, for every test that fits one; and a table."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

from tightset import ConformalClassifier, Grid, SCPOClassifier, Search
from tightset.search.settings import as_search

GRID = Grid((10, 100), (1, 2), (10, 100), max_iter=200)


def scpo(search="fast", measure=None, **changes):
    """An estimator with some of its parameters, and of the settings of its search, changed."""
    search = as_search(search)
    settings = {one.name: changes.pop(one.name) for one in fields(search) if one.name in changes}
    search = replace(search, **settings)
    return SCPOClassifier(search=search if measure is None else search.only(measure), **({"random_state": 0} | changes))


def quick_grid(**changes):
    return scpo(**({"search": GRID} | changes))


QUICK = {"max_iter": 20, "strengths": (0.1, 1.0), "pulls": (1.0, 0.1)}  # settings of a search: tests fit hundreds


def quick_scpo(**changes):
    return scpo(**(QUICK | changes))


def baseline(**changes):
    return ConformalClassifier(**({"random_state": 0} | changes))


ON_TOP = Search((("two-matrix", 1.0), ("softmax", 4.0)), pulls=(1.0, 0.1), max_iter=15, folds=3, strengths=(0.1, 1.0))


def quick_on_top(estimator, **changes):
    return scpo(**({"estimator": estimator, "search": ON_TOP, "confidence": 0.9} | changes))


both = pytest.mark.parametrize("make", [quick_scpo, quick_grid, baseline])


def table(n=600, seed=0):
    """Numbers, categories, gaps, a name, and a label that hangs on them."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 3, n)
    colour = np.array(["red", "green", "blue"], dtype=object)[(k + (rng.random(n) < 0.3)) % 3]
    return pd.DataFrame(
        {
            "name": [f"person {at}" for at in range(n)],
            "age": np.where(rng.random(n) < 0.1, np.nan, 40 + 8 * k + rng.normal(0, 5, n)).round(1),
            "colour": np.where(rng.random(n) < 0.05, None, colour),
            "member": rng.random(n) < 0.2 + 0.3 * k,
            "town": [f"t{int(x)}" for x in rng.exponential(2, n)],
            "kind": np.array(["x", "y", "z"])[k],
        }
    )
