"""Measures trained for what is asked, as ONNX: the same sets and p-values."""

import numpy as np
import onnxruntime
import pytest

from makers import QUICK
from tightset import SCPOClassifier, Search
from tightset.export import to_onnx

ASKED = {
    "by label": {"label_conditional": True},
    "costs": {"cost": [1.0, 2.0, 5.0]},
    "ordered": {"ordered": [2, 0, 1]},
    "ordered, on top of trees": {"ordered": True, "estimator": "rf"},
}


@pytest.mark.parametrize("asked", ASKED)
def test_sets_and_p_values_are_the_same(asked):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3)).round(1)
    y = (X[:, 0] + rng.normal(size=900) > 0).astype(int) + (X[:, 1] > 0.8)
    fitted = SCPOClassifier(0.9, search=Search.fast(**QUICK), random_state=0, **ASKED[asked]).fit(X, y)
    proto = to_onnx(fitted, output=["sets", "p-values"])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    sets, p = session.run(None, {session.get_inputs()[0].name: X})
    np.testing.assert_array_equal(sets.astype(bool), fitted.predict_set(X))
    np.testing.assert_allclose(p, fitted.predict_p(X), atol=1e-6)
