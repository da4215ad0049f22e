"""The README's code runs and prints what it says, its links lead somewhere, and it stays short."""

import re
from pathlib import Path

from commands import run
from makers import table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, shown = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", README, re.DOTALL).groups()
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})  # in this process, for the time of imports
    assert capsys.readouterr() == (shown, "")


def test_the_way_from_a_file_to_a_report(tmp_path, monkeypatch, capsys):
    """Its commands as they stand there, on a table of one's own."""
    monkeypatch.chdir(tmp_path)
    table(400).rename(columns={"kind": "label"}).to_csv(tmp_path / "mine.csv", index=False)
    block = next(block for block in re.findall(r"```\n(.*?)```", README, re.DOTALL) if "tightset fit" in block)
    commands = [line.split("#")[0].split() for line in block.splitlines() if line.startswith("tightset")]
    assert len(commands) == 2
    for words in commands:
        assert words[0] == "tightset"
        code, _, err = run(monkeypatch, capsys, *words[1:])
        assert code == 0, err
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
