"""The search on a device, here PyTorch's CPU: candidates are judged, and measures trained, as on the host."""

import numpy as np
import pytest

from problems import ON_A_SAMPLE, rows_with_labels
from tightset import SCPOClassifier
from tightset.compute.threads import Threads
from tightset.conformal.inefficiency import LOG, SIZE
from tightset.measures import MEASURES
from tightset.models.columns import Columns
from tightset.search.judging import Judge
from tightset.search.paths import Candidate, View, fits_of
from tightset.search.shortlist import examined, held_out


def candidates_on(device, weight, measures=("two-matrix", "linear", "linear", "softmax"), k=300):
    X, y = rows_with_labels(k)
    order = np.argsort(y, kind="stable")
    X, y, fold = X[order], y[order], np.random.default_rng(1).integers(4, size=k)
    view = View.of(Columns.plain(X), X, y, 3, fits_of(fold, weight), device)
    rng, found = np.random.default_rng(2), []
    for at, measure in enumerate(measures):
        T = rng.standard_normal((1, 5, 3)) + 0.1 * rng.standard_normal((5, 5, 3))
        found.append(Candidate(f"path {at}", view, measure, MEASURES[measure].start(T), 1.0, 0.1, 7))
    return found, fold, y


@pytest.mark.parametrize("f", [SIZE, LOG])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("room", [2**30, 300])
def test_candidates_are_judged_as_on_the_host(f, weighted, room, torch, monkeypatch):
    monkeypatch.setattr("tightset.compute.arrays._SCORES_ON_DEVICE", room)  # all at once, or one after another
    weight = np.random.default_rng(3).uniform(0.5, 2, 300) if weighted else None
    found = []
    for device in ("cpu", None):
        candidates, fold, y = candidates_on(device, weight)
        judge = Judge(y, weight, 0.1, f, rng=np.random.default_rng(4))
        with Threads(1) as threads:
            found.append(examined(candidates, fold, judge, threads))
        one, other = (held_out(candidates[at], fold, judge) for at in (0, 1))
        found[-1] += [one.margins, other.own]
    for ours, theirs in zip(*found, strict=True):
        if isinstance(ours, np.ndarray):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
        else:
            np.testing.assert_allclose([float(x) for x in ours[1:]], [float(x) for x in theirs[1:]], atol=1e-4)


def test_a_candidate_whose_scores_are_not_finite_is_judged_infinitely_bad(torch):
    candidates, fold, y = candidates_on("cpu", None)
    candidates[1].theta[2, 0, 0] = np.inf
    judge = Judge(y, None, 0.1, rng=np.random.default_rng(4))
    with Threads(1) as threads:
        criteria = [one.criterion for one in examined(candidates, fold, judge, threads)]
    assert np.isfinite(criteria).tolist() == [True, False, True, True]


@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_train_on_the_device_as_on_the_host(weighted, torch):
    X, y = rows_with_labels(2500)
    weight = np.random.default_rng(3).uniform(0.5, 2, 2500) if weighted else None
    sizes = []
    for device in ("cpu", None):
        clf = SCPOClassifier((0.8, 0.9), random_state=0, device=device, search=ON_A_SAMPLE)
        told = clf.fit(X, y, sample_weight=weight).evaluate(*rows_with_labels(4000, seed=1))
        sizes.append([one["mean_size"] for one in told])
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=0.01)


def test_what_the_device_has_no_room_for_trains_on_the_host(torch, monkeypatch):
    X, y = rows_with_labels(2500)
    monkeypatch.setattr("tightset.search.refinement_on_device.room_for_scores", lambda *_: 0)
    monkeypatch.setattr("tightset.search.refinement_on_device.RowsOnDevice.descended", None)  # must not be called
    clf = SCPOClassifier(0.8, random_state=0, device="cpu", search=ON_A_SAMPLE).fit(X, y)
    assert clf.evaluate(*rows_with_labels(4000, seed=1))["mean_size"] < 1.5
