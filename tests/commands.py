"""The commands in tests: run in this process, and what must hold when they refuse."""

import sys
from pathlib import Path

from tightset.cli import main

FAST = ["--search", "fast", "--confidence", "0.8", "--confidence", "0.9"]


def run(monkeypatch, capsys, *words, commands=None):
    monkeypatch.setattr(sys, "argv", ["tightset", *words])
    code = 0
    try:
        main(commands) if commands else main()
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code or 0, out, err


def refused(cli, message, *words, code=1):
    """A sentence or two, an exit code, and every file as it was."""
    before = everything()
    seen, out, err = cli(*words)
    assert seen == code, err
    told = " ".join(err.replace("│", " ").split())
    assert message in told
    assert len(told) < 600
    assert everything() == before
    assert out == ""


def everything():
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}


def write(name, data):
    Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())
