"""Model files: the same predictions to the last bit, and nothing that is opened can run."""

import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import tightset
from makers import quick_grid, quick_on_top, quick_scpo
from tightset import ConformalClassifier, SCPOClassifier, Search
from tightset.conformal import scores
from tightset.exceptions import ModelFileError
from tightset.storage import file as storage
from tightset.storage.packing import pack, unpack

X, Y = load_wine(return_X_y=True)
NAMES = np.array(["barolo", "grignolino", "barbera"])
HERE = Path(__file__).parent


def same(first, second, X=X):
    """Equal to the last bit in what people ask of a model."""
    np.testing.assert_array_equal(first.predict_set(X), second.predict_set(X))
    np.testing.assert_array_equal(first.predict_p(X), second.predict_p(X))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    np.testing.assert_array_equal(first.predict_set(X, smoothed=True), second.predict_set(X, smoothed=True))
    assert str(first.evaluate(X, second.classes_[Y])) == str(second.evaluate(X, second.classes_[Y]))


def round_trip(model, tmp_path, **how):
    model.save(tmp_path / "model.tightset", **how)
    return tightset.load(tmp_path / "model.tightset", **how)


FITTED = {
    "default search": lambda: quick_scpo(confidence=0.9),
    "two levels": lambda: quick_scpo(confidence=[0.8, 0.9]),
    "plain columns": lambda: quick_scpo(confidence=0.9, unfold=False),
    "softmax": lambda: quick_scpo(confidence=0.9, measure="softmax"),
    "two-matrix": lambda: quick_scpo(confidence=0.9, measure="two-matrix"),
    "own search": lambda: SCPOClassifier(0.9, search=Search(paths=(("linear", 2.0),), folds=3), random_state=0),
    "log": lambda: quick_scpo(confidence=0.9, inefficiency="log"),
    "each label": lambda: quick_scpo(confidence=0.8, label_conditional=True),
    "no empty sets": lambda: quick_scpo(confidence=0.8, allow_empty=False),
    "cross-conformal": lambda: quick_scpo(confidence=0.9, cv=3),
    "own splitter": lambda: ConformalClassifier(cv=StratifiedKFold(3), random_state=0),
    "fractions": lambda: ConformalClassifier(
        confidence=[Fraction(9, 10), Decimal("0.8"), np.float32(0.5)], random_state=0
    ),
    "grid": lambda: quick_grid(confidence=0.9),
    "grid, traces": lambda: quick_grid(confidence=0.9, keep_trace=True),
    "on boosted trees": lambda: quick_on_top(HistGradientBoostingClassifier(max_iter=5)),
    "auto": lambda: quick_on_top("auto"),
    "on precomputed": lambda: quick_on_top("precomputed"),
    "grown by LightGBM": lambda: quick_on_top(GaussianNB(), boost="lightgbm"),
    "grown by XGBoost": lambda: quick_on_top(GaussianNB(), boost="xgboost"),
    "logistic regression": lambda: ConformalClassifier(random_state=0),
    "forest": lambda: ConformalClassifier(RandomForestClassifier(5), random_state=0),
    "trees": lambda: ConformalClassifier(ExtraTreesClassifier(5), random_state=np.random.RandomState(0)),
    "boosted trees": lambda: ConformalClassifier(HistGradientBoostingClassifier(max_iter=5), random_state=0),
    "categories of trees": lambda: ConformalClassifier(
        HistGradientBoostingClassifier(max_iter=5, categorical_features=[0]), random_state=0
    ),
    "network": lambda: ConformalClassifier(
        make_pipeline(StandardScaler(), MLPClassifier((5,), solver="lbfgs", max_iter=20)), random_state=0
    ),
    "neighbours": lambda: ConformalClassifier(KNeighborsClassifier(), random_state=0),
    "margins": lambda: ConformalClassifier(make_pipeline(StandardScaler(), LinearSVC()), random_state=0),
    "calibrated": lambda: ConformalClassifier(CalibratedClassifierCV(GaussianNB()), random_state=0),
    "searched": lambda: ConformalClassifier(
        GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}), random_state=0
    ),
    "pipeline": lambda: ConformalClassifier(
        make_pipeline(
            make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0]), remainder=StandardScaler()),
            LogisticRegression(),
        ),
        random_state=0,
    ),
    "aps": lambda: ConformalClassifier(conformity_score=scores.APS(randomised=True), random_state=0),
    "raps": lambda: ConformalClassifier(conformity_score="raps", random_state=0),
    "saps": lambda: ConformalClassifier(conformity_score="saps", random_state=0),
    "top-k": lambda: ConformalClassifier(conformity_score="top-k", random_state=0),
    "margin": lambda: ConformalClassifier(conformity_score="margin", random_state=0),
    "frozen": lambda: ConformalClassifier(FrozenEstimator(GaussianNB().fit(X, NAMES[Y])), random_state=0),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # few rows of a label; a search on a few hundred rows
@pytest.mark.parametrize("name", FITTED)
def test_a_round_trip_changes_no_bit(name, tmp_path, few_trees):
    model = FITTED[name]()
    rows = np.exp(-X[:, :3] / 100) if "precomputed" in name else X
    model.fit(rows, NAMES[Y])
    again = round_trip(model, tmp_path)
    assert type(again) is type(model)
    same(model, again, rows)
    if isinstance(model, SCPOClassifier):
        assert again.summary() == model.summary()
        assert again.selection_.keys() == model.selection_.keys()
    if name != "trees":  # whose random state shows its address
        assert repr(again) == repr(model)


def test_labels_and_columns_of_every_type(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(X, columns=[f"c{at}" for at in range(X.shape[1])])
    for labels in (
        Y,
        Y.astype(np.int8),
        Y == 1,
        NAMES[Y],
        NAMES[Y].astype(object),
        pd.Series(NAMES[Y]).astype("category"),
    ):
        model = ConformalClassifier(random_state=0).fit(frame, labels)
        again = round_trip(model, tmp_path)
        np.testing.assert_array_equal(again.classes_, model.classes_)
        assert again.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(again.predict_set(frame), model.predict_set(frame))
        with pytest.raises(ValueError, match="feature names"):
            again.predict_set(frame[frame.columns[::-1]])


def test_groups_and_sparse_rows(tmp_path):
    from scipy import sparse

    groups = np.where(np.arange(len(Y)) % 2, "odd", "even")
    model = quick_scpo(confidence=0.8).fit(X, Y, groups=groups)
    np.testing.assert_array_equal(
        round_trip(model, tmp_path).predict_set(X, groups=groups), model.predict_set(X, groups=groups)
    )
    model = quick_scpo(confidence=0.8).fit(sparse.csr_array(X), Y)
    np.testing.assert_array_equal(round_trip(model, tmp_path).predict_p(X), model.predict_p(X))


def test_a_model_of_partitions(tmp_path):
    import dask.array as da

    model = ConformalClassifier(random_state=0).fit(da.from_array(X, chunks=(60, 13)), Y)
    np.testing.assert_array_equal(round_trip(model, tmp_path).predict_p(X), model.predict_p(X))


def test_levels_share_what_they_shared(tmp_path):
    model = quick_on_top(GaussianNB(), confidence=[0.8, 0.9]).fit(X, Y)
    again = round_trip(model, tmp_path)
    of = [
        {id(block) for one in some.folds_[0].models for block in getattr(one, "blocks", ())} for some in (model, again)
    ]
    assert len(of[0]) == len(of[1])


def test_a_loaded_model_calibrates_and_is_saved_again(tmp_path):
    model = round_trip(quick_scpo(confidence=0.9).fit(X, Y), tmp_path)
    model.calibrate(X, Y)
    same(round_trip(model, tmp_path), model)


def test_the_header_says_what_is_inside(tmp_path):
    quick_scpo(confidence=[0.8, 0.9]).fit(X, NAMES[Y]).save(tmp_path / "m", about={"rows": "wine"})
    said = storage.open_model(tmp_path / "m").about
    assert said["format"] == storage.FORMAT
    assert said["tightset"] == tightset.__version__
    assert said["classes"] == sorted(NAMES)
    assert said["columns"] == 13
    assert said["dtypes"] == "float64"
    assert said["levels"] == [0.8, 0.9]
    rows = said["calibration"][0]["rows"]
    assert said["calibration"][0] == {"confidence": 0.8, "rows": rows, "rank": (rows + 1) // 5}
    assert said["about"] == {"rows": "wine"}
    assert len(said["sha256"]) == 64
    assert load_tensors((tmp_path / "m").read_bytes())  # any program that knows safetensors reads the arrays


# ---- what cannot be stored ----------------------------------------------------------------------------------------


class Mine(GaussianNB):
    """An estimator of the user's own."""


def test_what_cannot_be_stored_safely_is_said_when_saving(tmp_path):
    path = tmp_path / "model.tightset"
    path.write_text("precious")
    with pytest.raises(ModelFileError, match=r"estimator.*test_saving\.Mine.*trusted="):
        ConformalClassifier(Mine(), random_state=0).fit(X, Y).save(path)
    with pytest.raises(ModelFileError, match=r"model\.inefficiency\[0\] is .*function"):
        ConformalClassifier(inefficiency=(lambda w: 2 * w, lambda w: 2 + 0 * w), random_state=0).fit(X, Y).save(path)
    with pytest.raises(ModelFileError, match=r"score is '<lambda>', a function"):
        ConformalClassifier(conformity_score=lambda P: P**2, random_state=0).fit(X, Y).save(path)
    with pytest.raises(ValueError, match="not fitted"):
        SCPOClassifier().save(path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_who_trusts_a_type_may_store_and_load_it(tmp_path):
    model = ConformalClassifier(Mine(), random_state=0).fit(X, Y)
    trusted = [f"{Mine.__module__}.Mine"]
    same(round_trip(model, tmp_path, trusted=trusted), model)
    with pytest.raises(ModelFileError, match=r"would build .*test_saving\.Mine.*trusted="):
        tightset.load(tmp_path / "model.tightset")


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "model.tightset"
    model = ConformalClassifier(random_state=0).fit(X, Y)
    model.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(storage.os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="no folder"):
        model.save(tmp_path / "nowhere" / "m")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.save(tmp_path)


def test_links_and_pipes_are_written_through(tmp_path):
    import os
    import threading

    model = ConformalClassifier(random_state=0).fit(X, Y)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    model.save(tmp_path / "pipe")
    reader.join(30)
    assert len(found[0]) == (tmp_path / "there").stat().st_size


def test_values_pack_and_unpack():
    values = [
        *(None, True, 3, "text", 0.1, [1, "a"], (1, (2,)), {("g", 1): [0.5]}, Fraction(1, 3), Decimal("0.95")),
        *(np.float32(0.1), np.int8(3), np.str_("x"), np.True_),
    ]
    again = unpack(pack(values))
    assert again == values
    assert [type(one) for one in again] == [type(one) for one in values]
    back = unpack(pack([np.inf, -np.inf, np.nan]))
    assert back[:2] == [np.inf, -np.inf]
    assert np.isnan(back[2])
    arrays = [
        *(np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([], dtype=np.int8)),
        *(np.array(["a", "bc"]), np.array([["a", None]], dtype=object), np.array(["2020-01-01"], dtype="M8[D]")),
        *(np.array([b"x"]), np.array(["a", "long enough"], dtype=np.dtypes.StringDType()), np.arange(3, dtype=">i4")),
        *(np.arange(10)[::2], np.array(2.5)),
    ]
    for array, same_again in zip(arrays, unpack(pack(arrays)), strict=True):
        np.testing.assert_array_equal(same_again, array)
        assert same_again.dtype == (array.dtype if array.dtype.kind == "T" else array.dtype.newbyteorder("<"))
        assert same_again.flags.f_contiguous == array.flags.f_contiguous or array.ndim == 1
    one = np.zeros(2)
    first, second = unpack(pack([one, one]))
    assert first is second
    with pytest.raises(ModelFileError, match="complex"):
        pack(np.zeros(2, dtype=complex))


def test_opening_a_model_imports_no_engine(tmp_path):
    """Skops would, to list the estimators of scikit-learn: seconds, where PyTorch or Dask is installed."""
    ConformalClassifier(random_state=0).fit(X, Y).save(tmp_path / "m.tightset")
    code = (
        "import sys, tightset; tightset.load(sys.argv[1]); "
        "assert not {'torch', 'dask', 'cupy'} & set(sys.modules); "
        "import sklearn.externals.array_api_compat.dask.array"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "m.tightset")], check=True)
