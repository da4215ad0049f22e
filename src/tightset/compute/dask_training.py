"""Training by all workers of a cluster together: Dask estimators of other packages, which are told where rows lie.

Such an estimator depends on which rows a worker has, and on the order of workers. So partitions are dealt to workers in
order, and the same partitions on as many workers give the same model. None survives the loss of a worker; it is then
trained again, with as many workers as before once these are back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tightset.compute.dask_rows import Block, Partitions

__all__ = ["fit_together"]

_ATTEMPTS = 4
_LOOK_EVERY = 0.5  # seconds
_TO_COME_BACK = 60.0  # seconds that lost workers have to be started again
_TO_ANSWER = 10.0  # seconds for a worker that is not busy


def fit_together(
    rows: Partitions,
    make: Callable[[], Any],
    y: np.ndarray,
    classes: np.ndarray,
    weight: np.ndarray | None,
    check: Callable[[list[np.ndarray]], None],
) -> Any:
    """A model that ``make`` makes, trained on the rows; ``check`` is given the codes of labels that each worker has."""
    client = _client(make())
    wanted = _most_workers(client)
    for attempt in range(_ATTEMPTS):
        workers = _workers(client, wanted)
        blocks = rows.in_blocks(len(workers), y, weight)
        check([block.vectors[0] for block in blocks])
        model = make()
        model.client = _InOrder(client) if hasattr(model, "to_local") else client
        try:
            _watched(client, workers, partial(_fit, model, client, workers, blocks, classes))
        except Exception:
            if not _lost(client, workers) or attempt == _ATTEMPTS - 1:
                raise
            _free(client, workers)
        else:
            return model
    raise AssertionError  # the last attempt returned or raised


def _client(estimator: Any) -> Any:
    import distributed

    try:
        return vars(estimator).get("client") or vars(estimator).get("_client") or distributed.default_client()
    except ValueError:
        raise ValueError(
            f"{type(estimator).__name__} is trained by the workers of a cluster, and there is none: start "
            "dask.distributed.Client() first"
        ) from None


class _InOrder:
    """A client that says where parts are in the order in which it is asked: LightGBM numbers workers in that order."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def who_has(self, futures: Sequence[Any]) -> dict[Any, Any]:
        found = self._client.who_has(futures)
        return {one.key: found[one.key] for one in futures}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _fit(model: Any, client: Any, workers: list[str], blocks: Sequence[Block], classes: np.ndarray) -> None:
    """Rows are sent to where they are trained on, a block to each worker, and stay there meanwhile."""
    import dask
    import dask.array as da
    import distributed

    X, y, weight = list[Any](), list[Any](), list[Any]()
    for block, worker in zip(blocks, workers, strict=False):
        own_y, own_weight = block.vectors
        parts = [block.X, dask.delayed(np.take)(classes, own_y)]
        parts += [] if own_weight is None else [dask.delayed(own_weight)]
        # Only what has a name of its own must be on this worker: whoever asks for the same partitions later would wait
        # for it, even if it were lost.
        near = client.compute(parts, workers=[worker], allow_other_workers=True)
        for some, future in zip((X, y, weight), near, strict=False):
            some.append(client.submit(_same, future, workers=[worker], allow_other_workers=False, pure=False))
    distributed.wait([*X, *y, *weight])
    heads = client.gather([client.submit(_head, one, pure=False) for one in X])
    lengths = [block.length for block in blocks]

    def vector(parts: list[Any], dtype: Any) -> Any:
        some = zip(parts, lengths, strict=True)
        return da.concatenate([da.from_delayed(dask.delayed(one), (n,), dtype=dtype) for one, n in some])

    how = {"sample_weight": vector(weight, np.float64)} if weight else {}
    model.fit(_rows(X, lengths, heads[0]), vector(y, classes.dtype), **how)


def _rows(parts: list[Any], lengths: list[int], head: Any) -> Any:
    import dask
    import dask.array as da

    if hasattr(head, "iloc"):
        import dask.dataframe as dd

        return dd.from_delayed([dask.delayed(one) for one in parts], meta=head.iloc[:0], verify_meta=False)
    some = zip(parts, lengths, strict=True)
    return da.concatenate([da.from_delayed(dask.delayed(one), (n, head.shape[1]), meta=head[:0]) for one, n in some])


def _same(x: Any) -> Any:
    return x


def _head(X: Any) -> Any:
    return X.iloc[:1] if hasattr(X, "iloc") else X[:1]


def _watched(client: Any, workers: list[str], work: Callable[[], None]) -> None:
    """Do it, and give it up if one of the workers is lost, for which the others would wait forever.

    Then all that the client was asked for meanwhile is cancelled: tasks that only a lost worker may do stay undone, and
    whatever is asked of the same partitions later would wait for them.
    """
    before, failed = set(client.futures), list[BaseException]()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_EVERY)
        if thread.is_alive() and _lost(client, workers, at_once=True):
            thread.join(_TO_ANSWER)  # XGBoost sees it
            _cancel(client, set(client.futures) - before)
            thread.join(_TO_ANSWER)
            raise RuntimeError("a worker was lost while trees were grown")
    if failed:
        _cancel(client, set(client.futures) - before)
        raise failed[0]


def _cancel(client: Any, keys: set[Any]) -> None:
    from distributed import Future

    client.cancel([Future(key, client) for key in keys])


def _lost(client: Any, workers: Sequence[str], *, at_once: bool = False) -> bool:
    """Whether a worker is gone; the scheduler may need a moment to see it."""
    gone = not set(workers) <= set(client.nthreads())
    if gone or at_once:
        return gone
    time.sleep(2 * _LOOK_EVERY)
    return _lost(client, workers, at_once=True)


def _free(client: Any, workers: Sequence[str]) -> None:
    """Start those workers again that are caught in a conversation with one that is lost."""
    from distributed import TimeoutError as TimedOut

    for worker in set(workers) & set(client.nthreads()):
        answer = client.submit(int, workers=[worker], allow_other_workers=False, pure=False)
        try:
            answer.result(timeout=_TO_ANSWER)
        except TimedOut:
            client.restart_workers([worker], raise_for_error=False)


def _most_workers(client: Any) -> int:
    """How many there were at most within the last minute: one that was lost just now is about to come back."""
    since = time.time() - _TO_COME_BACK
    there = most = len(client.nthreads())
    for when, event in reversed(client.get_events("all")):
        if when < since:
            break
        action = event.get("action") if isinstance(event, dict) else None
        there += (action == "remove-worker") - (action == "add-worker")
        most = max(most, there)
    return most


def _workers(client: Any, wanted: int) -> list[str]:
    """The addresses of all workers, once there are as many as are wanted, or those that are there after a while.

    They are in the order of their names, which they keep when they are started again, as XGBoost numbers them.
    """
    until = time.monotonic() + _TO_COME_BACK
    while len(found := client.nthreads()) < wanted and (time.monotonic() < until or not found):
        time.sleep(_LOOK_EVERY)
    names = client.run(_name_of_worker, workers=list(found))
    return sorted(found, key=lambda address: (str(names[address]), address))


def _name_of_worker(dask_worker: Any) -> Any:
    return dask_worker.name
