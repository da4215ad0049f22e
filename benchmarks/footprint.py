"""What an installation weighs: size on disk and time to import, beside MAPIE and crepes.

    python benchmarks/footprint.py

Each library gets an environment of its own, in a temporary folder (a few minutes, and downloads). Import times are the
median of nine fresh processes, in turn, after one that does not count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARIES = {
    "tightset": (str(ROOT), "import tightset"),
    "tightset, an estimator": (str(ROOT), "from tightset import SCPOClassifier"),
    "tightset[cli]": (f"{ROOT}[cli]", "from tightset import SCPOClassifier"),
    "MAPIE": ("mapie", "import mapie.classification"),
    "crepes": ("crepes scikit-learn", "import crepes"),  # which it imports and does not require
    "scikit-learn": ("scikit-learn", "import sklearn.linear_model"),
}
TIMES = 9


def size(folder: Path) -> float:
    """Megabytes on disk, without pip and what Python compiles at will."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sum(path.stat().st_size for path in files if "pip" not in path.relative_to(folder).parts[0]) / 1e6


def imported(python: Path, statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([python, "-c", statement], check=True)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pythons: dict[str, Path] = {}
        for requirement in dict.fromkeys(one for one, _ in LIBRARIES.values()):
            place = Path(folder) / f"env{len(pythons)}"
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            pythons[requirement] = place / "bin" / "python"
            subprocess.run([pythons[requirement], "-m", "pip", "install", "--quiet", *requirement.split()], check=True)
        seconds: dict[str, list[float]] = {name: [] for name in LIBRARIES}
        empty: list[float] = []
        for at in range(TIMES + 1):
            empty.append(imported(pythons[str(ROOT)], "pass"))
            for name, (requirement, statement) in LIBRARIES.items():
                took = imported(pythons[requirement], statement)
                if at:
                    seconds[name].append(took)
        start = statistics.median(empty[1:])
        print("| library | installed, MB | packages | import, s (Python's own start taken off) |\n|---|---|---|---|")
        for name, (requirement, _) in LIBRARIES.items():
            packages = next(pythons[requirement].parents[1].glob("lib/python*/site-packages"))
            count = len(list(packages.glob("*.dist-info"))) - 1
            took = statistics.median(seconds[name]) - start
            print(f"| {name} | {size(packages):,.0f} | {count} | {took:.2f} |")


if __name__ == "__main__":
    main()
