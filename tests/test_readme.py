"""The README's code runs and prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_example_prints_what_is_shown():
    code, shown = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", README, re.DOTALL).groups()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == shown
    assert ran.stderr == ""


def test_the_second_example_says_what_is_shown_but_for_the_figures():
    """Rounding differs between machines, and the figures of a search with it."""
    (first, _), (second, shown) = re.findall(r"```python\n(.*?)```\s*```\n(.*?)```", README, re.DOTALL)
    imports = "\n".join(line for line in first.splitlines() if line.startswith("from tightset"))
    ran = subprocess.run([sys.executable, "-c", f"{imports}\n{second}"], capture_output=True, text=True, check=True)
    blank = [re.sub(r"[\d.]+", "#", " ".join(text.split())) for text in (ran.stdout, shown)]
    assert blank[0] == blank[1]


def test_every_make_target_it_names_exists():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", README)) - {"sets"}:
        if target in {"demo", "test", "bench", "lint", "paper", "efficiency"}:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert {"demo", "test"} <= set(re.findall(r"make (\w+)", README))
