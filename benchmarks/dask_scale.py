"""More rows than memory: `make bench-dask` trains on 50 million rows that are generated block by block.

Two workers, a process each. Beside the large run: that the result equals the one in memory on a size that fits, and
that killing a worker in the middle of a fit changes nothing but time. Then the same on top of a classifier: trees that
LightGBM grows on the cluster, and naive Bayes, which learns by partition. Results go to benchmarks/dask.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster
from lightgbm import DaskLGBMClassifier
from sklearn.naive_bayes import BernoulliNB

from tightset import SCPOClassifier, Search

COLUMNS, CLASSES, BLOCK = 20, 5, 250_000
MILLION = 1_000_000

# Workers give every freed megabyte back to the system by default, only to ask for it again; docs/distributed.md.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**28), "MALLOC_MMAP_THRESHOLD_": str(2**28)}
# The client gives back what was a vector with a byte for each row, so that its peak is what it needs.
GIVE_MEMORY_BACK = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}


def rows_of_block(start: int, n: int) -> np.ndarray:
    """Rows that depend on nothing but their number."""
    return np.random.default_rng([7, start]).standard_normal((n, COLUMNS), dtype=np.float32)


def labels_of_block(start: int, n: int) -> np.ndarray:
    """Their labels, which bend with some of the columns."""
    X = rows_of_block(start, n)
    logits = X @ np.random.default_rng(3).standard_normal((COLUMNS, CLASSES)).astype(np.float32) * np.float32(0.5)
    logits[:, 0] += 2 * np.abs(X[:, 0])
    logits[:, 1] += X[:, 1] ** 2
    return np.argmax(logits + np.random.default_rng([8, start]).gumbel(size=logits.shape), axis=1).astype(np.int8)


def block(make: Callable[[int, int], np.ndarray], n: int, block_info: Any = None) -> np.ndarray:
    return make(block_info[None]["array-location"][0][0], n)


def generated(rows: int, size: int = BLOCK) -> tuple[da.Array, da.Array]:
    chunks = (size,) * (rows // size)
    X = da.map_blocks(partial(block, rows_of_block, size), chunks=(chunks, (COLUMNS,)), dtype=np.float32)
    return X, da.map_blocks(partial(block, labels_of_block, size), chunks=(chunks,), dtype=np.int8)


class Watch(threading.Thread):
    """The peak memory of each worker process, by its number, while this runs."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client, self.peaks, self.over = client, dict[int, float](), threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            for pid in workers(self.client).values():
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                except OSError:
                    continue
                self.peaks[pid] = max(self.peaks.get(pid, 0.0), pages * os.sysconf("SC_PAGE_SIZE") / 2**30)


def workers(client: Client) -> dict[str, int]:
    try:
        return dict(client.run(os.getpid))
    except Exception:  # noqa: BLE001 - one may be gone just now
        return {}


def classifier() -> SCPOClassifier:
    return SCPOClassifier(0.9, search=Search.fast(unfold=False), random_state=0, verbose=False)


def apart(one: SCPOClassifier, other: SCPOClassifier) -> float:
    pairs = zip(one.folds_[0].models[0].members, other.folds_[0].models[0].members, strict=True)
    return max(float(np.abs(a.theta - b.theta).max()) for a, b in pairs)


def small(client: Client, rows: int) -> dict[str, Any]:
    """The same rows in memory, on the cluster, and on the cluster with a worker killed."""
    X, y = generated(rows)
    X_here, y_here = X.compute(), y.compute()
    X_new = rows_of_block(10**9, 100_000)
    begun = time.perf_counter()
    in_memory = classifier().fit(X_here, y_here)
    seconds = {"in_memory": time.perf_counter() - begun}
    begun = time.perf_counter()
    spread = classifier().fit(X, y)
    seconds["dask"] = time.perf_counter() - begun
    sets = in_memory.predict_set(X_new)
    killer = killed_after(client, 0.6 * seconds["dask"])
    begun = time.perf_counter()
    wounded = classifier().fit(X, y)
    seconds["dask_one_killed"] = time.perf_counter() - begun
    killer.join()
    lazy = spread.predict_set(da.from_array(X_new, chunks=(10_000, COLUMNS)))
    return {
        "small_rows": rows,
        "small_seconds": seconds,
        "theta_difference": apart(in_memory, spread),
        "sets_equal": bool((sets == lazy.compute()).all()),
        "killed_theta_difference": apart(spread, wounded),
        "killed_sets_equal": bool((sets == wounded.predict_set(X_new)).all()),
    }


def large(client: Client, rows: int) -> dict[str, Any]:
    X, y = generated(rows)
    watch = Watch(client)
    watch.start()
    begun = time.perf_counter()
    clf = classifier().fit(X, y)
    seconds = time.perf_counter() - begun
    watch.over.set()
    watch.join()
    X_new, y_new = rows_of_block(10**9, 500_000), labels_of_block(10**9, 500_000)
    found = clf.evaluate(X_new, y_new)
    baseline = clf.folds_[0].record[0].verdict
    return {
        "rows": rows,
        "columns": COLUMNS,
        "classes": CLASSES,
        "gb_of_rows": rows * COLUMNS * 4 / 1e9,
        "fit_s": seconds,
        "peak_worker_gb": sorted(watch.peaks.values(), reverse=True),
        "coverage": found["coverage"],
        "mean_size": found["mean_size"],
        "held_out_size_of_logistic_regression": baseline.baseline,
        "calibration_rows": sum(len(alphas) for alphas in clf.folds_[0].calibrations[0].alphas.values()),
    }


def trees() -> DaskLGBMClassifier:
    return DaskLGBMClassifier(n_estimators=10, num_leaves=15, learning_rate=0.3, verbose=-1)


def on_top(base: Any) -> SCPOClassifier:
    return SCPOClassifier(0.9, estimator=base, search=Search.fast(folds=3), random_state=0, verbose=False)


def client_mb() -> float:
    """The peak memory so far of this process, which has the client and the scheduler."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def killed_after(client: Client, seconds: float) -> threading.Timer:
    killer = threading.Timer(seconds, os.kill, (next(iter(workers(client).values())), signal.SIGKILL))
    killer.start()
    return killer


def large_base(client: Client, rows: int) -> dict[str, Any]:
    """On top of trees that the cluster grows: time, memory, and the sets of new rows as a digest."""
    X, y = generated(rows)
    before = client_mb()
    watch = Watch(client)
    watch.start()
    begun = time.perf_counter()
    clf = on_top(trees()).fit(X, y)
    seconds, peak = time.perf_counter() - begun, client_mb()
    watch.over.set()
    watch.join()
    found = clf.evaluate(*generated(BLOCK * 2))
    return {
        "rows": rows,
        "fit_s": seconds,
        "client_mb_before": before,
        "client_mb": peak,
        "peak_worker_gb": sorted(watch.peaks.values(), reverse=True),
        "sets": digest(clf),
        "coverage": found["coverage"],
        "mean_size": found["mean_size"],
        "held_out_size_of_trees": clf.folds_[0].record[0].verdict.baseline,
    }


def killed_base(client: Client, base: dict[str, Any]) -> dict[str, Any]:
    """The same again, with a worker killed on the way."""
    killer = killed_after(client, 0.4 * base["fit_s"])
    begun = time.perf_counter()
    clf = on_top(trees()).fit(*generated(base["rows"]))
    seconds = time.perf_counter() - begun
    killer.join()
    return {"killed_fit_s": seconds, "killed_sets_equal": digest(clf) == base["sets"]}


def digest(clf: SCPOClassifier) -> str:
    """Of the sets of 100,000 new rows."""
    return hashlib.sha256(np.packbits(clf.predict_set(rows_of_block(10**9, 100_000))).tobytes()).hexdigest()


def small_base(rows: int) -> dict[str, Any]:
    """The same rows in memory and on the cluster: naive Bayes, whose training is the same, and trees, whose is not."""
    X, y = generated(rows, BLOCK // 10)
    X_here, y_here = X.compute(), y.compute()
    X_new, y_new = rows_of_block(10**9, 100_000), labels_of_block(10**9, 100_000)
    found: dict[str, Any] = {"small_rows": rows}
    for name, base in (("bayes", BernoulliNB()), ("trees", trees())):
        begun = time.perf_counter()
        here = on_top(base).fit(X_here, y_here)
        middle = time.perf_counter()
        there = on_top(base).fit(X, y)
        found[name] = {
            "in_memory_s": middle - begun,
            "dask_s": time.perf_counter() - middle,
            "sets_that_differ": int((here.predict_set(X_new) != there.predict_set(X_new)).any(axis=1).sum()),
            "p_difference": float(np.abs(here.predict_p(X_new) - there.predict_p(X_new)).max()),
            "mean_size_in_memory": here.evaluate(X_new, y_new)["mean_size"],
            "mean_size_dask": there.evaluate(X_new, y_new)["mean_size"],
        }
    return found


PARTS = ("columns", "base-million", "base", "base-killed", "base-small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000, help="of the part columns")
    parser.add_argument("--base-rows", type=int, default=10_000_000, help="of the part base")
    parser.add_argument("--part", choices=PARTS, help="a part alone; memory of the client is that of a fresh process")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "dask.json")
    asked = parser.parse_args()
    if asked.part is None:
        for part in PARTS:
            subprocess.run([sys.executable, *sys.argv, "--part", part], check=True, env=os.environ | GIVE_MEMORY_BACK)
        return
    dask.config.set({f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in KEEP_MEMORY.items()})
    found: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    found |= {name: version(name) for name in ("dask", "distributed", "lightgbm", "numpy")}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="2GB", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        found |= {"workers": 2, "memory_limit": "2 GB"}
        if asked.part == "columns":
            found |= small(client, MILLION) | large(client, asked.rows)
        elif asked.part == "base-million":
            on_top(trees()).fit(*generated(MILLION))
            found["base"] = found.get("base", {}) | {"client_mb_million": client_mb()}
        elif asked.part == "base":
            base = found["base"] | large_base(client, asked.base_rows)
            more = (base["client_mb"] - base["client_mb_million"]) * 2**20
            found["base"] = base | {"client_bytes_per_row": more / (asked.base_rows - MILLION)}
        elif asked.part == "base-killed":
            found["base"] |= killed_base(client, found["base"])
        else:
            found["base"] = found.get("base", {}) | small_base(200_000)
    print(json.dumps(found, indent=2))
    asked.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
