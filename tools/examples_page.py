"""Write docs/examples.md: the scripts of examples/, each with what it prints now: `python tools/examples_page.py`.

tests/project/test_docs.py runs every script and compares with the page.
"""

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "examples.md"
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))

TOP = """\
# Examples

The scripts of the folder `examples/`, with what they print. Each takes a few seconds, needs no network, and uses data
that come with scikit-learn. Figures differ a little from machine to machine. (`python tools/examples_page.py` writes
this page.)
"""


def output_of(script: Path) -> str:
    """What a script prints; it may not warn."""
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    if ran.returncode or ran.stderr:
        raise RuntimeError(f"{script.name} ended with {ran.returncode} and said: {ran.stderr}")
    return ran.stdout


def text(output: Callable[[Path], str]) -> str:
    """The whole page, with ``output(script)`` below each script."""
    sections = [TOP]
    for script in SCRIPTS:
        code = script.read_text()
        title, _, rest = (ast.get_docstring(ast.parse(code)) or script.stem).partition(": ")
        sections.append(f"## {title}\n\n{rest[:1].upper()}{rest[1:]}\n")
        body = code.split('"""\n', 1)[1].lstrip()
        sections.append(f"`examples/{script.name}`:\n\n```python\n{body}```\n\n```\n{output(script)}```\n")
    return "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(text(output_of))
