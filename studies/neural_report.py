"""The page about networks trained for small sets, written from stored results: ``docs/neural.md``."""
# ruff: noqa: E501 - lines of the page are as long as they are

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from studies.efficiency import DIVISIONS
from studies.networks import MEMBERS
from studies.neural import AFTER, COUNTED, CROSS_ENTROPY, LEVELS, METHODS, NEURAL, SPLITS, plan
from studies.neural_gpu import SPEED, on_a_gpu
from studies.runner import ResultsError, read_json, read_rows
from studies.sections import table

__all__ = ["write_neural"]

_FEWEST = 3  # splits for an interval
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

On images, leave columns out: `Training(input_dropout=0.3, dropout=0.0, weight_decay=0.3)` makes sets smaller than any loss does, since networks of this
size overfit, whatever they minimise. On a development split of the data below, with five networks for both levels, labels per set go from 1.334 to 1.289
at 95 % and from 2.084 to 1.924 at 99 %. (To keep a later epoch whose sets are within 2 % of the smallest helps on images, too, but was not adopted: on
dna, with 667 training rows, it costs 15 % at 99 %.)

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
captured as a CUDA graph once the memory is full, for each size of batch, and launched as one. Of a batch that is no smaller than the memory only
its own rows count; on a GPU a few steps lead from the threshold of the batch before to theirs, and they are captured as well.

Of four labels and 8,000 rows at 98 %, in batches of 80, the mean gradient of an epoch is within 2 % of that of all rows; with the quantile of
the batch it is off by more than five times as much. A linear network on 4,096 rows reaches 2.643 labels per set at 99 % when it is trained on all
rows at once, 2.651 and 2.645 in batches of 256 and 64, and with the quantile of the batch 2.652 and 2.690
(both in `tests/neural/test_loss.py`)."""


def write_neural(results_dir: Path, out: Path, speed: Path = SPEED) -> None:
    """Write the page from the rows in ``results_dir`` and the folders in it, and the times in ``speed``."""
    files = sorted(results_dir.rglob("rows.csv"))
    rows = [row for file in files for row in read_rows(file, NEURAL.columns)]
    if not rows:
        raise ResultsError(f"{results_dir} holds no results; run: python -m studies neural run --out {results_dir}")
    found = _found(rows)
    earlier = results_dir.with_name(f"{results_dir.name}-before")
    before = _found(row for file in sorted(earlier.rglob("rows.csv")) for row in read_rows(file, NEURAL.columns))
    out.write_text(
        "\n\n".join(
            [
                _INTRO,
                _opening(found, _by_hardware(files)),
                *(_section(level, found) for level in LEVELS),
                _notes(found),
                _settings(rows),
                *_less_regularised(before),
                *on_a_gpu(read_json(speed)),
            ]
        )
        + "\n"
    )


def _found(rows: Iterable[dict[str, str]]) -> Found:
    found: Found = {}
    for row in rows:
        figures = {name: float(row[name]) for one in COUNTED for name in (one, f"{one}_together")}
        found.setdefault((row["method"], float(row["confidence"])), {})[int(row["seed"])] = figures
    return found


def _by_hardware(files: Sequence[Path]) -> dict[str, list[dict[str, str]]]:
    """The rows that each machine measured. They are in the order in which sessions wrote them."""
    found: dict[str, list[dict[str, str]]] = {}
    for file in files:
        rows = iter(read_rows(file, NEURAL.columns))
        for session in read_json(file.parent / "run.json") or []:
            found.setdefault(str(session["hardware"]), []).extend(islice(rows, session["rows"]))
    return found


def _names(rows: Iterable[tuple[str, float, int]]) -> str:
    """Methods, levels and splits of rows, in few words."""
    splits: dict[tuple[str, float], list[int]] = {}
    for method, level, split in sorted(set(rows), key=lambda one: (METHODS.index(one[0]), one[1], one[2])):
        splits.setdefault((method, level), []).append(split)
    several: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (method, level), own in splits.items():
        several.setdefault((method, tuple(own)), []).append(f"{100 * level:g}")
    told = []
    for (method, shared), levels in several.items():
        at = "" if len(levels) == len(LEVELS) else f" at {levels[0]} %"
        told.append(f"*{method}*{at}{_splits(shared)}")
    return "; ".join(told)


def _splits(several: Sequence[int]) -> str:
    """In words, unless they are all."""
    if len(several) == len(SPLITS):
        return ""
    return f" (split{'s' * (len(several) > 1)} {', '.join(map(str, several))})"


def _opening(found: Found, where: dict[str, list[dict[str, str]]]) -> str:
    machines: list[str] = []
    for name, rows in sorted(where.items(), key=lambda one: -len(one[1])):
        own = _names((row["method"], float(row["confidence"]), int(row["seed"])) for row in rows)
        machines.append(f"{len(rows)} rows on {name}" + (f": {own}" if machines else ""))
    measured = {(method, level, split) for (method, level), own in found.items() for split in own}
    missing = {(one.method, one.confidence, one.seed) for one in plan()} - measured
    lacking = f"\n\n**{len(missing)} of {len(plan())} rows are not measured:** {_names(missing)}." if missing else ""
    return f"""## Fashion-MNIST

Written by `make neural` from `results/neural`. 20,000 images: 10,000 train, 5,000 calibrate, 5,000 test,
the last two divided {DIVISIONS} times; splits {SPLITS[0]} to {SPLITS[-1]}. The network has two hidden layers of 64. Every method trains {MEMBERS} networks, each with another fifth of
the training rows held aside to choose the epoch; settings are those with the smallest sets on the rows held aside, over all {MEMBERS}. *One network* is the mean over the {MEMBERS}, each
calibrated and tested by itself; *{MEMBERS} together* are their mean probabilities, as `SCPONeuralClassifier` has them. All have the same loop: AdamW, and after
cross-entropy weights averaged over about 16 epochs. Of *cross-entropy* dropout (of columns, too), weight decay and epochs are chosen ({len(CROSS_ENTROPY)} settings), of the other losses
one setting (of two: how much cross-entropy SCPO has, the temperature of ConfTr), and of ConfTr the rate, too; all of them leave out {100 * AFTER["input_dropout"]:g} % of the
columns at random, no hidden units, and decay weights by {AFTER["weight_decay"]:g}. Unless it says *from scratch*, training starts at the best network of
cross-entropy with {min(how.warm_epochs for how in CROSS_ENTROPY)} epochs. *Cross-entropy, averaged* goes on with cross-entropy, as the others go on with their losses: it tells what is due to the
loss, and what to going on. *Shared body* is one network with a head for each level.

Who measured what: {"; ".join(machines) or "unknown"}. All were trained on CPUs. Training
rounds differently on another machine, and ends at another network that is as good: differences between rows of two machines have that in them, too.{lacking}

Splits 0 to 4 were for development, with their test rows in view: the defaults of `SCPOLoss` and `Training`, the share of columns left out, and that
probabilities are averaged rather than their logarithms, were found there, and fixed before a figure of splits {SPLITS[0]} to {SPLITS[-1]} was seen. (Splits 5 to 9 were measured with the
settings before, without columns left out.) All splits are of the same 20,000 images.

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
                len(own),
                _spread(single),
                _difference(found, method, "cross-entropy", level),
                _difference(found, method, "SCPO", level),
                _spread(together),
                _difference(found, method, "cross-entropy", level, _TOGETHER),
                f"{coverage:.3f}",
                f"{accuracy:.3f}",
            ]
        )
    heads = [
        *("method", "splits", "one network", "over cross-entropy", "over SCPO"),
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
    """Mean and interval of differences, if there are enough; bold if it excludes 0."""
    if len(pairs) < _FEWEST:
        return f"{pairs.mean():+.1f}" if len(pairs) else ""
    reach = student.ppf(0.975, len(pairs) - 1) * pairs.std(ddof=1) / np.sqrt(len(pairs))
    text = f"{pairs.mean():+.1f} ({pairs.mean() - reach:+.1f} to {pairs.mean() + reach:+.1f})"
    return f"**{text}**" if abs(pairs.mean()) > reach else text


def _spread(x: np.ndarray) -> str:
    return f"{x.mean():.3f}" + (f" ± {x.std(ddof=1):.3f}" if len(x) > 1 else "")


def _notes(found: Found) -> str:
    """What the tables say, in words that follow from them."""
    told = []
    for level in LEVELS:
        at = f"- At {100 * level:g} %,"
        others = [method for method in METHODS if not method.startswith("SCPO") and (method, level) in found]
        for subject, of in (
            (f"{at} one network of SCPO has", _SINGLE),
            (f"{at} {MEMBERS} of SCPO together have", _TOGETHER),
        ):
            told.append(
                f"{subject} {_verdicts({one: _paired(found, ('SCPO', of), (one, of), level) for one in others})}."
            )
        averaging, both = (
            _percent(_paired(found, (method, _TOGETHER), ("cross-entropy", _SINGLE), level))
            for method in ("cross-entropy", "SCPO")
        )
        told.append(
            f"{at} {MEMBERS} of SCPO together over *one* of cross-entropy: {both}. Of that, averaging gives, whatever the loss: "
            f"{MEMBERS} of cross-entropy over one, {averaging}."
        )
        for way in ("SCPO, shared body", "SCPO, from scratch"):
            if (way, level) in found:
                pairs = _paired(found, (way, _SINGLE), ("SCPO", _SINGLE), level)
                told.append(f"{at} *{way}* over *SCPO*: {_percent(pairs)}{_splits(sorted(found[way, level]))}.")
        told.append(
            f"{at} the smallest sets of all: of one network {_best(found, level, _SINGLE)}, of {MEMBERS} together {_best(found, level, _TOGETHER)}."
        )
    return (
        "### In words\n\nPercent, with the 95 % interval of the mean over paired splits. Each interval stands by itself: of many, one in twenty excludes 0 by chance.\n\n"
        + "\n".join(told)
    )


def _less_regularised(before: Found) -> list[str]:
    """What was measured before columns were left out."""
    if not before:
        return []
    heads = ["method", *(f"{100 * level:g} %, over {other}" for level in LEVELS for other in ("cross-entropy", "SCPO"))]
    rows = [
        [
            method,
            *(_difference(before, method, other, level) for level in LEVELS for other in ("cross-entropy", "SCPO")),
        ]
        for method in METHODS
        if (method, LEVELS[0]) in before
    ]
    return [
        f"""### With less regularisation

The same on splits 5 to 9, before columns were left out: dropout of hidden units and weight decay are those that are best for cross-entropy, without that
of columns, and training ends after 20 epochs without smaller sets. One network, differences in percent as above. Every method then overfits sooner, at 99 %
SCPO less than others.

{table(heads, rows)}"""
    ]


def _best(found: Found, level: float, of: str) -> str:
    """The method with the smallest sets, among those that were measured on all splits."""
    means = {
        method: float(np.mean([one[of] for one in own.values()]))
        for (method, at), own in found.items()
        if at == level and len(own) == len(SPLITS)
    }
    return f"*{min(means, key=means.__getitem__)}* ({min(means.values()):.3f})" if means else "are not known"


def _verdicts(pairs: dict[str, np.ndarray]) -> str:
    """Than which our sets are smaller, than which larger, and where these splits cannot tell."""
    groups: dict[str, list[str]] = {
        "smaller sets than": [],
        "**larger** sets than": [],
        "sets that these splits cannot tell from those of": [],
        "sets that were compared on too few splits for an interval with": [],
    }
    smaller, larger, unclear, few = groups.values()
    for name, own in pairs.items():
        sure = "**" in _interval(own)
        into = few if len(own) < _FEWEST else unclear if not sure else smaller if own.mean() < 0 else larger
        into.append(f"*{name}* {_percent(own)}")
    return "; ".join(f"{words} {', '.join(own)}" for words, own in groups.items() if own)


def _percent(pairs: np.ndarray) -> str:
    """The mean difference and its interval, not bold."""
    return _interval(pairs).strip("*")


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
