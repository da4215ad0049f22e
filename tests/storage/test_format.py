"""Model files that earlier versions wrote are opened by this one, and say the same.

``python tests/storage/test_format.py`` writes the files of the present format; those of older formats stay as they are.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import tightset
from makers import baseline, quick_scpo, table
from tightset.storage import file as storage
from tightset.tables.fitting import fit_table

FOLDER = Path(__file__).parent / "model_files"
FORMATS = range(1, storage.FORMAT + 1)


def write():
    """A model of arrays and one of a table, some rows, and what the models say of them."""
    X, y = load_wine(return_X_y=True)
    arrays = quick_scpo(confidence=[0.8, 0.9]).fit(X, y)
    frame = table(300)
    of_table = fit_table(frame, "kind", quick_scpo(confidence=[0.8, 0.9]), baseline(confidence=[0.8, 0.9]))
    name = f"format-{storage.FORMAT}"
    arrays.save(FOLDER / f"{name}-arrays.tightset", about={"rows": "wine"})
    of_table.save(FOLDER / f"{name}-table.tightset")
    rows = frame.drop(columns="name").iloc[:5]
    said = {
        "arrays": {"rows": X[:5].tolist(), "p": arrays.predict_p(X[:5]).tolist()},
        "table": {
            "rows": rows.to_dict("list"),
            "p": of_table.predict_p(rows).tolist(),
            "p of the baseline": of_table.baseline.predict_p(of_table.encode(rows)).tolist(),
        },
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(said).replace("NaN", "null") + "\n")


@pytest.mark.parametrize("number", FORMATS)
def test_files_of_every_format_are_opened(number):
    said = json.loads((FOLDER / f"format-{number}.json").read_text())
    arrays = tightset.load(FOLDER / f"format-{number}-arrays.tightset")
    # whole ranks: rounding on another machine moves none
    np.testing.assert_allclose(arrays.predict_p(np.array(said["arrays"]["rows"])), said["arrays"]["p"], rtol=1e-12)
    assert arrays.summary().startswith("At 80% confidence")
    model, rows = tightset.load(FOLDER / f"format-{number}-table.tightset"), pd.DataFrame(said["table"]["rows"])
    np.testing.assert_allclose(model.predict_p(rows), said["table"]["p"], rtol=1e-12)
    of_baseline = model.baseline.predict_p(model.encode(rows))
    np.testing.assert_allclose(of_baseline, said["table"]["p of the baseline"], rtol=1e-12)
    np.testing.assert_array_equal(model.predict_set(rows, confidence=0.9), np.array(said["table"]["p"])[1] > 0.1)


def test_there_are_files_of_the_present_format():
    assert storage.open_model(FOLDER / f"format-{storage.FORMAT}-arrays.tightset").about["format"] == storage.FORMAT


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write()
