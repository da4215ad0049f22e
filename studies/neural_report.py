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
from studies.networks import MEMBERS
from studies.neural import COUNTED, CROSS_ENTROPY, LEVELS, METHODS, NEURAL, SPLITS, plan
from studies.runner import ResultsError, read_json, read_rows
from studies.sections import table

__all__ = ["write_neural"]

_SINGLE, _TOGETHER = "mean_size", "mean_size_together"

Found = dict[tuple[str, float], dict[int, dict[str, float]]]

_INTRO = """# Networks

`SCPOLoss` is a loss for a training loop of your own, `SCPONeuralClassifier` a scikit-learn estimator that trains a network with it
(extra `torch`). Both make sets small at exact coverage; calibration on other rows then makes the sets valid whatever training did.

```python
import numpy as np
from sklearn.datasets import load_digits

from tightset import SCPONeuralClassifier, Training

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order], y[order]
one = Training(members=1)
clf = SCPONeuralClassifier((0.95, 0.99), network=(32,), training=one, random_state=0).fit(X[:1300], y[:1300])
print([row["coverage"] > row["confidence"] - 0.03 for row in clf.evaluate(X[1300:], y[1300:])])
```

```
[True, True]
```

By default it trains five networks, each with another fifth of the training rows held aside, and averages their probabilities: that makes sets
smaller than any choice of the loss does, and takes five times as long as the one network here.

In a loop of your own it is one line, `loss = criterion(network(X), y)`: the last of the [examples](examples.md) is such a loop, complete.
For the logits of a frozen network see [the recipe](recipes/frozen-logits.md).

## Why not the quantile of the batch

The sets of a batch are cut at a threshold, and the obvious threshold is the quantile of the batch's own scores. At 99 % a batch of 256
rows has two or three rows below it. Such a quantile is noisy; its mean is not the quantile of all rows; and the same few rows decide
where the threshold is and in which direction it moves, so the mean of the gradients of many batches is not the gradient of all rows, however
many batches there are. `SCPOLoss` remembers the scores of the last rows that it saw (100 of them below the threshold: 10,000 rows at 99 %),
takes the threshold and its slope from these, and averages over the same rows how much labels weigh that move with it. What a batch
adds to the gradient is then a sum over its own rows, and its mean over batches is right. The scores that are remembered are up to an epoch
old, so the step size should be small, as it is when a trained network is fine-tuned. On a GPU the fifty small computations that this takes are
captured as a CUDA graph once the memory is full, for each size of batch, and launched as one.

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
        figures = {name: float(row[name]) for one in COUNTED for name in (one, f"{one}_together")}
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

Written by `make neural` from `results/neural` (trained on: {"; ".join(where) or "unknown"}). 20,000 images: 10,000 train, 5,000 calibrate, 5,000 test,
the last two divided {DIVISIONS} times; splits {SPLITS[0]} to {SPLITS[-1]}. The network has two hidden layers of 64. Every method trains {MEMBERS} networks, each with another fifth of
the training rows held aside to choose the epoch; settings are those with the smallest sets on the rows held aside, over all {MEMBERS}. *One network* is the mean over the {MEMBERS}, each
calibrated and tested by itself; *{MEMBERS} together* are their mean probabilities, as `SCPONeuralClassifier` has them. All have the same loop: AdamW, and after
cross-entropy weights averaged over about 16 epochs. Of *cross-entropy* dropout, weight decay and epochs are chosen ({len(CROSS_ENTROPY)} settings), of the other losses
one setting (of two: how much cross-entropy SCPO has, the temperature of ConfTr), and of ConfTr the rate, too. Unless it says *from scratch*, training starts at the best network of
cross-entropy with {min(how.warm_epochs for how in CROSS_ENTROPY)} epochs. *Cross-entropy, averaged* goes on with cross-entropy, as the others go on with their losses: it tells what is due to the
loss, and what to going on. *Shared body* is one network with a head for each level.{missing}

Splits 0 to 4 were for development, with their test rows in view: the defaults of `SCPOLoss` and `Training`, and that probabilities are averaged rather than their
logarithms, were found there, and fixed before a figure of splits {SPLITS[0]} to {SPLITS[-1]} was seen. All splits are of the same 20,000 images.

ConfTr, VR-ConfTr and rank-weighted training were re-created from their papers' formulas (`studies/rivals.py`). Sets are cut
at the probability of the label (LAC) for all."""


def _section(level: float, found: Found) -> str:
    rows = []
    for method in METHODS:
        own = found.get((method, level))
        if own is None:
            continue
        single, together = (np.array([one[name] for one in own.values()]) for name in (_SINGLE, _TOGETHER))
        coverage, accuracy = (np.mean([one[name] for one in own.values()]) for name in ("coverage", "accuracy"))
        rows.append(
            [
                method,
                f"{single.mean():.3f} ± {_deviation(single):.3f}",
                _difference(found, method, "cross-entropy", level),
                _difference(found, method, "SCPO", level),
                f"{together.mean():.3f} ± {_deviation(together):.3f}",
                _difference(found, method, "cross-entropy", level, _TOGETHER),
                f"{coverage:.3f}",
                f"{accuracy:.3f}",
            ]
        )
    heads = [
        *("method", "one network", "over cross-entropy", "over SCPO"),
        *(f"{MEMBERS} together", f"over {MEMBERS} of cross-entropy", "coverage", "accuracy"),
    ]
    return f"""### {100 * level:g} %

Labels per set, mean and deviation over splits; differences in percent with the 95 % interval of their mean over paired splits (below 0: smaller sets; bold: it excludes 0).
Coverage and accuracy are those of one network.

{table(heads, rows)}"""


def _paired(found: Found, ours: tuple[str, str], theirs: tuple[str, str], level: float) -> np.ndarray:
    """Differences in percent by split; each is a method and what is measured of it."""
    own, other = (found.get((method, level), {}) for method, _ in (ours, theirs))
    return np.array([100 * (own[s][ours[1]] / other[s][theirs[1]] - 1) for s in own if s in other])


def _difference(found: Found, ours: str, theirs: str, level: float, of: str = _SINGLE) -> str:
    return "" if ours == theirs else _interval(_paired(found, (ours, of), (theirs, of), level))


def _interval(pairs: np.ndarray) -> str:
    """Mean and interval of differences; bold if it excludes 0."""
    if len(pairs) < 2:
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
        at = f"- At {100 * level:g} %, "
        parts = []
        for theirs in ("cross-entropy", "cross-entropy, averaged", "ConfTr, class loss", "VR-ConfTr, class loss"):
            pairs = _paired(found, ("SCPO", _SINGLE), (theirs, _SINGLE), level)
            if len(pairs):
                parts.append(f"{theirs} {_percent(pairs)} % ({(pairs < 0).sum()} of {len(pairs)} splits smaller)")
        if parts:
            told.append(f"{at}one network of SCPO over one of " + "; ".join(parts) + ".")
        parts = []
        for name, other in (
            ("one of cross-entropy", ("cross-entropy", _SINGLE)),
            (f"{MEMBERS} of cross-entropy", ("cross-entropy", _TOGETHER)),
            (f"{MEMBERS} of cross-entropy, averaged", ("cross-entropy, averaged", _TOGETHER)),
        ):
            pairs = _paired(found, ("SCPO", _TOGETHER), other, level)
            if len(pairs):
                parts.append(f"{name} {_percent(pairs)} % ({(pairs < 0).sum()} of {len(pairs)} splits smaller)")
        if parts:
            told.append(f"{at}{MEMBERS} networks of SCPO together over " + "; ".join(parts) + ".")
        pairs = _paired(found, ("SCPO, shared body", _SINGLE), ("SCPO", _SINGLE), level)
        if len(pairs):
            told.append(f"{at}one network for both levels over one for each {_percent(pairs)} %.")
    return "### In words\n\n" + "\n".join(told)


def _percent(pairs: np.ndarray) -> str:
    """The mean difference, with its interval if there is one."""
    return _interval(pairs).strip("*") or f"{pairs.mean():+.1f}"


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
