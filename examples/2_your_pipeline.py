"""SCPO on top of a pipeline: columns of words and of numbers, some missing, into boosted trees."""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tightset import ConformalClassifier, SCPOClassifier

X, y = make_classification(3000, 6, n_informative=5, n_redundant=0, n_classes=4, class_sep=0.7, random_state=0)
frame = pd.DataFrame(X, columns=["width", "height", "weight", "age", "dose", "site"])
frame["site"] = pd.cut(frame["site"], 4, labels=["north", "east", "south", "west"]).astype(str)  # words
frame.loc[np.random.default_rng(0).random(3000) < 0.1, "age"] = np.nan  # and a tenth of the ages is missing
labels = np.array(["none", "mild", "firm", "harsh"])[y]
rows, new, labels, new_labels = train_test_split(frame, labels, random_state=0)

words = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["site"]), remainder="passthrough"
)
trees = make_pipeline(words, HistGradientBoostingClassifier(max_iter=30, random_state=0))

for name, clf in {
    "plain threshold": ConformalClassifier(trees, confidence=0.9, random_state=0),
    "SCPO on top": SCPOClassifier(0.9, estimator=trees, search="fast", random_state=0),
}.items():
    row = clf.fit(rows, labels).evaluate(new, new_labels)
    print(f"{name:15}  coverage {row['coverage']:.3f}  labels per set {row['mean_size']:.2f}")
print("first sets:", [kept.tolist() for kept in clf.predict_set(new[:3], as_labels=True)])
