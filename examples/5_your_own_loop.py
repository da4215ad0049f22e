"""Your own loop: a network in plain NumPy, trained by you; its scores are given, and the sets are made of them.

Of the 600 rows held aside all calibrate the first predictor, and 150 the second, whose coverage scatters twice as much.
"""

import numpy as np
from sklearn.datasets import load_digits

from tightset import ConformalClassifier, SCPOClassifier

rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
order = rng.permutation(len(y))
X, y = X[order] / 16, y[order]
train, held, new = slice(0, 700), slice(700, 1300), slice(1300, None)

W, V = 0.2 * rng.normal(size=(64, 32)), 0.2 * rng.normal(size=(32, 10))
for _ in range(150):  # steps of gradient descent
    hidden = np.tanh(X[train] @ W)
    P = np.exp(hidden @ V)
    error = (P / P.sum(axis=1, keepdims=True) - np.eye(10)[y[train]]) / 700
    W -= 2.0 * X[train].T @ (error @ V.T * (1 - hidden**2))
    V -= 2.0 * hidden.T @ error
logits = np.tanh(X @ W) @ V  # a column for each class

for clf in (
    ConformalClassifier("precomputed", confidence=0.95),
    SCPOClassifier(0.95, estimator="precomputed", search="fast", random_state=0),
):
    clf.fit(logits[held], y[held])  # rows that the network has not seen
    row = clf.evaluate(logits[new], y[new])
    print(f"{type(clf).__name__:19} coverage {row['coverage']:.3f}, {row['mean_size']:.3f} labels per set")
