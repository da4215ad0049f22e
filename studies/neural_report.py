"""The page about networks trained for small sets, written from stored results: ``docs/neural.md``."""
# ruff: noqa: E501 - lines of the page are as long as they are

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from studies.efficiency import DIVISIONS
from studies.neural import LEVELS, MEMBERS, METHODS, NEURAL, SCRATCH, plan
from studies.runner import ResultsError, read_json, read_rows
from studies.sections import table

__all__ = ["write_neural"]

Found = dict[tuple[str, float], dict[int, dict[str, float]]]

_INTRO = """# Networks

`SCPOLoss` is a loss for a training loop of your own, `SCPONeuralClassifier` a scikit-learn estimator that trains a network with it
(extra `torch`). Both make sets small at exact coverage; calibration on other rows then makes the sets valid whatever training did.

```python
import numpy as np
from sklearn.datasets import load_digits

from tightset import SCPONeuralClassifier

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order], y[order]
clf = SCPONeuralClassifier((0.95, 0.99), network=(32,), random_state=0).fit(X[:1300], y[:1300])
print([row["coverage"] > row["confidence"] - 0.03 for row in clf.evaluate(X[1300:], y[1300:])])
```

```
[True, True]
```

In a loop of your own it is one line, `loss = criterion(network(X), y)`: the last of the [examples](examples.md) is such a loop, complete.
For the logits of a frozen network see [the recipe](recipes/frozen-logits.md).

## Why not the quantile of the batch

The sets of a batch are cut at a threshold, and the obvious threshold is the quantile of the batch's own scores. At 99 % a batch of 256
rows has two or three rows below it. Such a quantile is noisy; its mean is not the quantile of all rows; and the same few rows decide
where the threshold is and in which direction it moves, so the mean of the gradients of many batches is not the gradient of all rows, however
many batches there are. `SCPOLoss` remembers the scores of the last rows that it saw (100 of them below the threshold: 10,000 rows at 99 %),
takes the threshold and its slope from these, and averages over the same rows how much labels weigh that move with it. What a batch
adds to the gradient is then a sum over its own rows, and its mean over batches is right. The scores that are remembered are up to an epoch
old, so the step size should be small, as it is when a trained network is fine-tuned.

Of four labels and 8,000 rows at 98 %, in batches of 80, the mean gradient of an epoch is within 2 % of that of all rows; with the quantile of
the batch it is off by more than five times as much. A linear network on 4,096 rows reaches 2.643 labels per set at 99 % when it is trained on all
rows at once, 2.651 and 2.645 in batches of 256 and 64, and with the quantile of the batch 2.652 and 2.690
(both in `tests/neural/test_loss.py`)."""


def write_neural(results_dir: Path, out: Path) -> None:
    """Write the page from the rows in ``results_dir`` and the folders in it."""
    files = sorted(results_dir.rglob("rows.csv"))
    rows = [row for file in files for row in read_rows(file, NEURAL.columns)]
    if not rows:
        raise ResultsError(f"{results_dir} holds no results; run: python -m studies neural run --out {results_dir}")
    found: Found = {}
    for row in rows:
        figures = {name: float(row[name]) for name in ("coverage", "mean_size", "accuracy", "size_aside")}
        found.setdefault((row["method"], float(row["confidence"])), {})[int(row["seed"])] = figures
    runs = [run for file in files for run in read_json(file.parent / "run.json") or []]
    out.write_text(
        "\n\n".join(
            [
                _INTRO,
                _opening(found, runs),
                *(_section(level, found) for level in LEVELS),
                _notes(found),
                _settings(rows),
            ]
        )
        + "\n"
    )


def _opening(found: Found, runs: Sequence[dict[str, Any]]) -> str:
    where = sorted({str(run["hardware"]) for run in runs})
    measured, planned = sum(map(len, found.values())), len(plan())
    missing = "" if measured == planned else f" **{measured} of {planned} rows are measured; the others are missing.**"
    return f"""## Fashion-MNIST

Written by `make neural` from `results/neural` (trained on: {"; ".join(where) or "unknown"}). 20,000 images: 10,000 train, of which 2,000 are held
aside to choose epochs and settings; 5,000 calibrate, 5,000 test, divided {DIVISIONS} times; five splits. The network has two hidden layers of 64.
All methods have the same loop: AdamW, and after cross-entropy weights averaged over about 16 epochs; the epoch, the rate (two) and the settings
of the loss are those with the smallest sets on the rows held aside. *Cross-entropy* has its weight decay, dropout and number of
epochs chosen in the same way. Unless it says *from scratch*, training starts at such a network. *Cross-entropy, averaged* goes on with
cross-entropy, as the others go on with their losses: it tells what is due to the loss, and what to going on. *{MEMBERS} members* are networks with other
starts and other rows held aside, whose log-probabilities are averaged; *shared body* is one network with a head for each level.{missing}

The defaults of `SCPOLoss` (gamma, the share of cross-entropy, averaging) were found while figures of these splits were in view, those of test
rows too: take differences below a percent for no more than a hint until they are measured on other splits.

ConfTr, VR-ConfTr and rank-weighted training were re-created from their papers' formulas (`studies/rivals.py`). Sets are cut
at the probability of the label (LAC) for all."""


def _section(level: float, found: Found) -> str:
    rows = []
    for method in METHODS:
        own = found.get((method, level))
        if own is None:
            continue
        sizes = np.array([one["mean_size"] for one in own.values()])
        coverage, accuracy = (np.mean([one[name] for one in own.values()]) for name in ("coverage", "accuracy"))
        rows.append(
            [
                method,
                f"{sizes.mean():.3f} ± {_deviation(sizes):.3f}",
                _difference(found, method, "cross-entropy", level),
                _difference(found, method, "SCPO", level),
                f"{coverage:.3f}",
                f"{accuracy:.3f}",
            ]
        )
    heads = ["method", "labels per set", "over cross-entropy", "over SCPO", "coverage", "accuracy"]
    return f"""### {100 * level:g} %

Mean and deviation over splits; differences in percent with the 95 % interval of their mean over paired splits (below 0: smaller sets).

{table(heads, rows)}"""


def _paired(found: Found, ours: str, theirs: str, level: float) -> np.ndarray:
    own, other = found.get((ours, level), {}), found.get((theirs, level), {})
    return np.array([100 * (own[s]["mean_size"] / other[s]["mean_size"] - 1) for s in own if s in other])


def _difference(found: Found, ours: str, theirs: str, level: float) -> str:
    pairs = _paired(found, ours, theirs, level)
    if ours == theirs or len(pairs) < 2:
        return ""
    reach = student.ppf(0.975, len(pairs) - 1) * _deviation(pairs) / np.sqrt(len(pairs))
    text = f"{pairs.mean():+.1f} ({pairs.mean() - reach:+.1f} to {pairs.mean() + reach:+.1f})"
    return f"**{text}**" if abs(pairs.mean()) > reach else text


def _deviation(x: np.ndarray) -> float:
    return float(x.std(ddof=1)) if len(x) > 1 else 0.0


def _notes(found: Found) -> str:
    """What the tables say, in words that follow from them."""
    told = []
    for level in LEVELS:
        parts = []
        for name, theirs in (
            ("cross-entropy", "cross-entropy"),
            ("cross-entropy that goes on with averaged weights", "cross-entropy, averaged"),
            ("ConfTr", "ConfTr"),
            ("VR-ConfTr", "VR-ConfTr"),
        ):
            pairs = _paired(found, "SCPO", theirs, level)
            if len(pairs):
                parts.append(f"{name} {pairs.mean():+.1f} % ({(pairs < 0).sum()} of {len(pairs)} splits smaller)")
        if parts:
            told.append(f"- At {100 * level:g} %, SCPO over " + "; ".join(parts) + ".")
        pairs = _paired(found, f"SCPO, {MEMBERS} members", f"cross-entropy, {MEMBERS} members", level)
        if len(pairs):
            told.append(
                f"- At {100 * level:g} %, {MEMBERS} members of SCPO over {MEMBERS} of cross-entropy {pairs.mean():+.1f} %."
            )
        pairs = _paired(found, "SCPO, shared body", "SCPO", level)
        if len(pairs):
            told.append(f"- At {100 * level:g} %, one network for both levels over one for each {pairs.mean():+.1f} %.")
    scratch = [
        method for method in METHODS if method.endswith(SCRATCH) and any((method, level) in found for level in LEVELS)
    ]
    if scratch:
        told.append(
            f"- From scratch: {', '.join(method.removesuffix(SCRATCH) for method in scratch)} are in the tables."
        )
    return "### In words\n\n" + "\n".join(told)


def _settings(rows: Sequence[dict[str, str]]) -> str:
    """Which settings were chosen how often, of cross-entropy."""
    counts: dict[str, int] = {}
    for row in rows:
        if row["method"] == "cross-entropy":
            shown = {name: value for name, value in json.loads(row["settings"]).items() if name != "epochs"}
            text = ", ".join(f"{name} {value:g}" for name, value in shown.items()) or "the defaults"
            counts[text] = counts.get(text, 0) + 1
    told = "; ".join(f"{text} ({number}x)" for text, number in sorted(counts.items(), key=lambda one: -one[1]))
    return f"Settings of cross-entropy that were chosen, over splits and levels: {told or 'none measured'}."
