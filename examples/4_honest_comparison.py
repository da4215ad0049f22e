"""Honest comparison: the same new rows for every predictor, and an interval for each difference in set size.

The interval tells chance in the new rows only. Which rows calibrate counts too: here logistic regression covers every
new row, more than was asked for, so a part of its larger sets is luck. Several splits would tell.
"""

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from tightset import ConformalClassifier, SCPOClassifier
from tightset.conformal.metrics import bootstrap_difference, sign_test

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), test_size=0.4, random_state=1)
forest = RandomForestClassifier(100, random_state=0)
predictors = {
    "SCPO": SCPOClassifier(0.99, search="fast", random_state=0),
    "logistic regression": ConformalClassifier(confidence=0.99, random_state=0),
    "random forest": ConformalClassifier(forest, confidence=0.99, random_state=0),
}
sizes = {}
for name, clf in predictors.items():
    sets = clf.fit(X, y).predict_set(X_new)
    sizes[name] = sets.sum(axis=1)
    print(f"{name:20} coverage {sets[range(len(y_new)), y_new].mean():.3f}, {sizes[name].mean():.3f} labels per set")

for name in ("logistic regression", "random forest"):
    gap = bootstrap_difference(sizes["SCPO"], sizes[name], random_state=0)
    test = sign_test(sizes["SCPO"], sizes[name])
    print(f"\nSCPO less {name}: {gap.difference:+.3f} labels, 95 % interval {gap.low:+.3f} to {gap.high:+.3f}")
    print(f"smaller on {test.first_smaller} rows, larger on {test.second_smaller}; p = {test.p_value:.2g}")
