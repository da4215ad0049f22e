"""Rows in memory and rows in partitions give the same, by one interface."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tightset.compute.contracts import check_offers
from tightset.compute.row_forms import as_they_are
from tightset.compute.rows import MemoryRows, RowSource, Summed, rows_of
from tightset.compute.threads import Threads

X = np.random.default_rng(0).standard_normal((30, 3))
Y = np.arange(30)
SOURCES = {
    "array": lambda: MemoryRows(X),
    "sparse": lambda: MemoryRows(sparse.csr_array(X)),
    "frame": lambda: MemoryRows(pd.DataFrame(X)),
    "partitions": lambda: rows_of(da.from_array(X, chunks=(8, 3)), as_they_are),
    "partitions of unknown lengths": lambda: rows_of(
        da.from_array(X, chunks=(8, 3))[da.ones(30, dtype=bool, chunks=8)], as_they_are
    ),
}
every = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


@every
def test_it_offers_what_is_asked_for(source):
    check_offers(source(), RowSource)
    with Threads(1) as threads:
        check_offers(source().summed(Y, None, threads=threads), Summed)


@every
def test_rows_are_taken_and_gathered(source):
    rows = source()
    assert rows.shape == (30, 3)
    some = rows.take(np.array([1, 2, 9, 29]))
    assert some.shape[0] == 4
    np.testing.assert_array_equal(dense(some.gather()), X[[1, 2, 9, 29]])
    np.testing.assert_array_equal(dense(some.take(np.array([0, 3])).gather()), X[[1, 29]])
    np.testing.assert_array_equal(dense(rows.gather()), X)


@every
def test_functions_see_every_row_once_with_its_part_of_vectors(source):
    parts = source().map(lambda rows, y, none: (dense(rows), y, none), Y, None)
    np.testing.assert_array_equal(np.concatenate([rows for rows, *_ in parts]), X)
    np.testing.assert_array_equal(np.concatenate([y for _, y, _ in parts]), Y)
    assert all(none is None for *_, none in parts)
    total = source().fold(lambda state, rows, y: state + (dense(rows) * np.asarray(y)[:, None]).sum(), 0.0, Y)
    assert total == pytest.approx((X * Y[:, None]).sum())


@every
def test_answers_are_joined_in_order(source):
    found = source().answer(lambda rows, y, first: dense(rows) + np.asarray(y)[:, None], [Y], np.empty((0, 3)), 0)
    found = found.compute() if source().lazy else found
    np.testing.assert_array_equal(found, X + Y[:, None])


@every
def test_sums_are_those_over_all_rows(source):
    weight = np.linspace(1, 2, 30)
    with Threads(2) as threads:
        summed = source().summed(Y, weight, threads=threads)
        total, count = summed.total(lambda rows, y, w, power: (dense(rows).T @ (np.asarray(y) * w**power), len(y)), 2)
    np.testing.assert_allclose(total, X.T @ (Y * weight**2))
    assert count == 30
