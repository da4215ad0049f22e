"""First sets: digits that ship with scikit-learn, a level of 99 %, and what came of it on new rows."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tightset import SCPOClassifier

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), random_state=0)

clf = SCPOClassifier(confidence=0.99, search="fast", random_state=0).fit(X, y)  # holds calibration rows aside by itself

sets = clf.predict_set(X_new, as_labels=True)
for at in range(3):
    print(f"a {y_new[at]}; its set is {sets[at].tolist()}")
print(f"the largest set has {max(map(len, sets))} labels")

row = clf.evaluate(X_new, y_new)
print(f"{row['n']} new rows: a share of {row['coverage']:.3f} of the sets hold the true digit")
print(f"{row['mean_size']:.2f} labels per set; a share of {row['singleton']:.3f} hold one label only")
