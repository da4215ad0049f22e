"""Are the gains that tightset tells of there? Every one is counted again on rows that nobody has seen (`make claims`).

On each set of rows a part trains, a part tests as a user would (`compare`), and a part stays out of it all. Checked are

- what `summary()` says after `fit`, from training rows alone;
- what `compare` says, which `tightset evaluate`, `tightset compare` and the report print.

The recount on the last part has code of its own: sizes of sets as `predict_set` gives them, and the baseline's p-values
cut where its coverage is the same. A claim agrees if the two differ by no more than their 95 % intervals allow.

    python claims/gains.py [--table FILE.csv:TARGET ...] [--quick]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from data import Rows, made, of_paper, of_table, shipped
from tightset import ConformalClassifier, SCPOClassifier
from tightset.estimators.comparing import compare

LEVELS = [0.8, 0.9, 0.95, 0.99]
SLACK = 0.005  # of a size; half a percent is nobody's decision
AGREE = 0.95  # of the claims must agree, and none may be off by more than WORST of their intervals
WORST = 2.5


class Claim(NamedTuple):
    rows: str
    estimator: str
    source: str
    level: float
    said: float
    reach: float
    seen: float
    seen_reach: float

    @property
    def off(self) -> float:
        """The difference in units of the intervals of both together; 1 is the limit."""
        return max(0.0, abs(self.said - self.seen) - SLACK) / max(np.hypot(self.reach, self.seen_reach), 1e-9)


def recount(ours: Any, theirs: Any, level: float, X: np.ndarray, y: np.ndarray, rng: Any) -> tuple[float, float]:
    """The change from theirs to ours at equal coverage on these rows, and the reach of its 95 % interval."""
    classes = ours.classes_.tolist()
    known = np.isin(y, ours.classes_)
    code = np.array([classes.index(label) if label in classes else 0 for label in y.tolist()])
    sets = ours.predict_set(X, confidence=level)
    size, covered = sets.sum(axis=1), sets[np.arange(len(y)), code] & known
    p = theirs.predict_p(X, confidence=level)
    own = np.where(known, p[np.arange(len(y)), code], -1.0)
    cuts = np.unique(np.append(np.quantile(p, np.linspace(0, 1, 400)), own))[::-1]
    cuts = cuts[np.unique(np.linspace(0, len(cuts) - 1, 300).astype(int))]
    their_size = np.stack([(p >= cut).sum(axis=1) for cut in cuts])
    their_covered = np.stack([own >= cut for cut in cuts])

    def change(weight: np.ndarray) -> float:
        coverage, mean = weight @ covered, weight @ size
        theirs, first = np.unique(their_covered @ weight, return_index=True)  # of equal ones, that with smallest sets
        other = np.interp(coverage, theirs, (their_size @ weight)[first])
        return float(mean / max(other, 1e-9) - 1)

    n = len(y)
    drawn = [change(rng.multinomial(n, np.full(n, 1 / n)) / n) for _ in range(100)]
    few = 1 + 1 / max((1 - level) * n, 0.5)  # of few misses the bootstrap sees too little noise
    return change(np.full(n, 1 / n)), 1.96 * few * float(np.std(drawn))


def claims_on(rows: Rows, estimator: str, seed: int) -> list[Claim]:
    rng = np.random.default_rng([seed, 2])
    n = len(rows.y)
    train, test, rest = np.split(rng.permutation(n), [n // 2, 3 * n // 4])
    base = None if estimator == "linear" else HistGradientBoostingClassifier(max_iter=40)
    tuned = make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=np.logspace(-2, 2, 5), max_iter=500))
    how: dict[str, Any] = {"confidence": LEVELS, "random_state": seed}
    ours = SCPOClassifier(estimator=base, search="fast", **how).fit(rows.X[train], rows.y[train])
    plain = ConformalClassifier(base, **how).fit(rows.X[train], rows.y[train])
    named = ConformalClassifier(tuned, **how).fit(rows.X[train], rows.y[train]) if base is None else plain
    found = []
    compared = compare(plain, ours, rows.X[test], rows.y[test], seed=seed)
    for at, level in enumerate(LEVELS):
        verdict = ours.folds_[0].record[at].verdict
        out = rows.X[rest], rows.y[rest]
        if verdict.accepted:  # else no gain is told of
            gain, low, _ = verdict.gain()
            seen = recount(ours, named, level, *out, rng)
            found.append(Claim(rows.name, estimator, "summary", level, -gain, gain - low, *seen))
        row = compared[at]
        seen = recount(ours, plain, level, *out, rng)
        found.append(Claim(rows.name, estimator, "compare", level, row.change, row.high - row.change, *seen))
    return found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--table", action="append", default=[], metavar="FILE.csv:TARGET", help="another set of rows")
    asked.add_argument("--quick", action="store_true", help="made rows only, on columns only")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    paper = of_paper() if os.environ.get("TIGHTSET_DATA") and not given.quick else ()
    tables = (of_table(*one.rsplit(":", 1)) for one in given.table)
    found: list[Claim] = []
    print(f"{'rows':24}{'estimator':10}{'source':9}{'level':>6}{'said':>9}{'+-':>7}{'seen':>9}{'+-':>7}{'off':>6}")
    for rows in chain(tables, made(given.seed), () if given.quick else shipped(), paper):
        for estimator in ("linear",) if given.quick else ("linear", "hgb"):
            start = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                new = claims_on(rows, estimator, given.seed)
            found += new
            for one in new:
                figures = f"{one.said:+9.1%}{one.reach:7.1%}{one.seen:+9.1%}{one.seen_reach:7.1%}{one.off:6.2f}"
                mark = " <--" if one.off > 1 else ""
                print(f"{one.rows[:23]:24}{one.estimator:10}{one.source:9}{one.level:6g}{figures}{mark}")
            print(f"  ({len(rows.y):,} rows, {time.monotonic() - start:.0f} s)", flush=True)
    agree, worst = np.mean([one.off <= 1 for one in found]), max(one.off for one in found)
    print(f"{len(found)} claims: {agree:.1%} agree within their intervals; the worst is off by {worst:.2f} of its own.")
    return int(agree < AGREE or worst > WORST)


if __name__ == "__main__":
    sys.exit(main())
