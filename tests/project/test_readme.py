"""The README's code runs and prints what it says, its links lead somewhere, and it stays short."""

import re
import subprocess
import sys
from pathlib import Path

from makers import table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_is_shown(tmp_path):
    code, shown = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", README, re.DOTALL).groups()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stdout == shown
    assert ran.stderr == ""


def test_the_way_from_a_file_to_a_report(tmp_path):
    """Its commands as they stand there, on a table of one's own."""

    table(400).rename(columns={"kind": "label"}).to_csv(tmp_path / "mine.csv", index=False)
    block = next(block for block in re.findall(r"```\n(.*?)```", README, re.DOTALL) if "tightset fit" in block)
    commands = [line.split("#")[0].split() for line in block.splitlines() if line.startswith("tightset")]
    assert len(commands) == 2
    for words in commands:
        subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True, cwd=tmp_path)
    assert "label: prediction sets for 100 rows" in (tmp_path / "report.html").read_text()


def test_every_make_target_it_names_exists():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([\w-]+)`|^make ([\w-]+)", README, re.MULTILINE))
    targets = {one or other for one, other in named}
    assert {"demo", "test", "docs"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_links_lead_somewhere_and_it_is_short():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert len(README.splitlines()) < 150
