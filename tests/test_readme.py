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


def test_every_make_target_it_names_exists():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", README)) - {"sets"}:
        if target in {"demo", "test", "bench", "lint", "paper"}:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert {"demo", "test"} <= set(re.findall(r"make (\w+)", README))
