"""Imbalanced classes: 95 % over all rows can be far less for a rare label; label_conditional mends that."""

from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from tightset import SCPOClassifier

X, y = make_classification(
    5000, 8, n_informative=6, n_redundant=0, n_classes=3, weights=[0.8, 0.13, 0.07], class_sep=1.5, random_state=1
)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
print("share of each label:", [round(float((y == label).mean()), 2) for label in range(3)])

for label_conditional in (False, True):
    clf = SCPOClassifier(0.95, label_conditional=label_conditional, search="fast", random_state=0).fit(X, y)
    row = clf.evaluate(X_new, y_new)
    by_label = "  ".join(f"{label}: {row[f'coverage_of_label_{label}']:.3f}" for label in range(3))
    print(f"label_conditional={label_conditional}")
    print(f"  all rows {row['coverage']:.3f}, label {by_label}; {row['mean_size']:.2f} labels per set")
