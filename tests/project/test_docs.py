"""Every code block of the docs runs and prints what the page shows; generated pages are what their programs write.

Fences say what a block is. ``python`` runs, all blocks of a page in one namespace; a plain fence below is its output.
``console`` has lines that begin with ``$ tightset``, and their output; a command that is shown to say ``tightset: ...``
is one that fails. ``text`` is not run: commands for the shell that take long or need a network, usage lines, formulas.
There is no other kind.
"""

import contextlib
import importlib.util
import io
import math
import re
import shlex
import subprocess
import sys
import warnings
from copy import deepcopy
from enum import Enum
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Annotated

import numpy as np
import pandas as pd
import pytest
import typer
import yaml

import tightset.plots
from commands import run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

BY_THEMSELVES = {"examples.md"}  # whole scripts, each run by itself below
NEEDS = {  # fixtures; that of PyTorch skips where it is not installed, but not in CI
    "neural.md": "torch",
    "recipes/frozen-logits.md": "torch",
    "recipes/your-loop.md": "torch",
    "distributed.md": "files_and_clusters",
}


def script(name):
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page):
    """(language, text, language of the block right above or None) of every fenced block."""
    text = (DOCS / page).read_text()
    found = list(BLOCK.finditer(text))
    assert text.count("```") == 2 * len(found), f"{page}: a fence is not closed, or not understood"
    joined = {a.start(): b[2] for b, a in pairwise(found) if not text[b.end() : a.start()].strip()}
    return [(block[2], dedent(block[3]), joined.get(block.start())) for block in found]


def assert_alike(printed, shown):
    """The same words, and figures that another machine's rounding may have moved a little; sets of numbers may differ."""
    number = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
    printed, shown = (re.sub(r"\[\d+(?:, \d+)*\]", "[set]", text) for text in (printed, shown))
    words = [re.sub(r"\s+", " ", re.sub(number, "#", text)).strip() for text in (printed, shown)]
    if words[0] != words[1]:
        assert printed == shown
    for here, there in zip(*(map(float, re.findall(number, text)) for text in (printed, shown)), strict=True):
        assert math.isclose(here, there, abs_tol=0.05 + 0.25 * max(0.0, abs(there) - 1)), f"{printed}\nis not\n{shown}"


def run_python(code, namespace):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("error", tightset.TightsetWarning)
        exec(compile(code, "<docs>", "exec"), namespace)
    return out.getvalue()


@pytest.fixture
def run_command(monkeypatch, capsys):
    """What a command prints, or says if it is to fail; in this process, for the time that imports take."""
    for name, value in (("COLUMNS", "100"), ("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)

    def run_line(line, *, fails):
        command = shlex.split(line)
        assert command[0] == "tightset", f"only tightset runs in a console block; got {line!r}"
        code, out, err = run(monkeypatch, capsys, *command[1:])
        assert code == (1 if fails else 0), f"{line}: exit code {code}: {err}"
        return err if fails else out

    return run_line


@pytest.fixture
def files_and_clusters(tmp_path, monkeypatch):
    """Files for docs/distributed.md to read, and one small cluster in place of those that it starts."""
    import dask
    from dask.distributed import Client, LocalCluster

    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 400)
    frame = pd.DataFrame(rng.normal(size=(400, 3)) + label[:, None], columns=list("abc"))
    for folder, rows in (("rows", frame.assign(label=label)), ("new", frame)):
        (tmp_path / folder).mkdir()
        rows.to_parquet(tmp_path / folder / "0.parquet")
    before = deepcopy(dask.config.config)
    one = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**one) as cluster, Client(cluster) as client:
        monkeypatch.setattr("dask.distributed.LocalCluster", lambda **_: cluster)
        monkeypatch.setattr("dask.distributed.Client", lambda *_: client)
        yield
    dask.config.config.clear()
    dask.config.config.update(before)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in BY_THEMSELVES])
def test_the_blocks_of_a_page_run_and_print_what_is_shown(page, tmp_path, monkeypatch, request, run_command):
    if page in NEEDS:
        request.getfixturevalue(NEEDS[page])
    monkeypatch.chdir(tmp_path)
    namespace, printed = {"__name__": "__main__"}, ""
    for language, text, above in blocks(page):
        if language == "python":
            assert printed == "", f"{page}: a block prints what the page does not show: {printed}"
            printed = run_python(text, namespace)
        elif language == "console":
            commands = re.split(r"^\$ ", text.replace("\\\n", ""), flags=re.MULTILINE)  # a line may go on
            assert commands[0] == "", f"{page}: a console block begins with `$ tightset`"
            for command in commands[1:]:
                line, _, shown = command.partition("\n")
                assert_alike(run_command(line, fails=shown.startswith("tightset: ")), shown)
        elif language == "":
            assert above == "python", f"{page}: a plain fence is the output of Python right above; else say `text`"
            assert_alike(printed, text)
            printed = ""
        else:
            assert language == "text", f"{page}: a fence says python, console or text; got {language!r}"
    assert printed == "", f"{page}: the last block prints what the page does not show"


def test_pages_with_a_rule_of_their_own_are_there():
    assert {*BY_THEMSELVES, *NEEDS} <= set(PAGES)


examples_page = script("examples_page")


@pytest.mark.parametrize("example", examples_page.SCRIPTS, ids=lambda path: path.stem)
def test_an_example_prints_what_the_page_shows(example, tmp_path, monkeypatch, request):
    if "import torch" in example.read_text():
        request.getfixturevalue("torch")
    monkeypatch.chdir(tmp_path)
    shown = [text for language, text, _ in blocks("examples.md") if language == ""]
    printed = run_python(example.read_text(), {"__name__": "__main__"})  # in this process, for the time of imports
    assert_alike(printed, shown[examples_page.SCRIPTS.index(example)])
    assert len(example.read_text().splitlines()) < 60


def test_the_page_of_examples_has_every_script_as_it_is():
    shown = iter([text for language, text, _ in blocks("examples.md") if language == ""])
    assert examples_page.text(lambda _: next(shown)) == (DOCS / "examples.md").read_text()
    assert len(examples_page.SCRIPTS) == 6


def test_the_reference_of_the_command_line_is_what_the_commands_say():
    written = script("cli_reference").text()
    assert written == (DOCS / "command-line.md").read_text(), "run: python tools/cli_reference.py"


def test_the_reference_has_words_defaults_and_every_example():
    class Shape(Enum):
        ROUND = "round"
        FLAT = "flat"

    app = typer.Typer(help="Things.\n\nExample: tightset cut a.csv")

    @app.callback()
    def root() -> None: ...

    @app.command()
    def cut(
        data: Annotated[Path, typer.Argument(help="A file | or -.")],
        target: Annotated[str, typer.Option("--target", "-t", metavar="COL", help="Its <label>.")],
        shape: Annotated[Shape, typer.Option(help="What for.")] = Shape.FLAT,
        loud: Annotated[bool, typer.Option("--loud/--quiet", help="Say more.")] = True,
    ) -> None:
        """Cut it.

        Examples:
        tightset cut a.csv -t b
        tightset cut - -t b
        """

    @app.command(hidden=True)
    def inner() -> None: ...

    reference = script("cli_reference")
    written = "\n".join(reference.text_of(app, "tightset"))
    assert "inner" not in written
    assert "tightset cut DATA [OPTIONS]\n" in written
    assert "| `DATA` | A file \\| or -. |" in written
    assert "| `--target COL`, `-t COL` | Its &lt;label>. Required. |" in written
    assert "| `--shape SHAPE` | What for. One of `round`, `flat`. Default: `flat`. |" in written
    assert "| `--loud`, `--quiet` | Say more. Default: `--loud`. |" in written
    assert "Examples:\n\n```text\ntightset cut a.csv -t b\ntightset cut - -t b\n```" in written


def test_pictures_are_drawn(tmp_path):
    script("figures").draw(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    shown = set(re.findall(r"\(figures/(plots-.*?\.png)\)", (DOCS / "figures.md").read_text()))
    assert len(shown) == 8
    assert drawn == {"assurance.png", "calibration.png", "levels.png", "p-values.png", *shown}
    assert all((DOCS / "figures" / name).exists() for name in drawn)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(folder),
    ]  # --quiet would not be strict
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


def test_the_site_builds_with_every_page_and_loads_nothing_from_elsewhere(site):
    assert {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")} == {*PAGES, "404.md"}
    for path in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", path.read_text())
        loaded = [at for tag in tags for at in re.findall(r'(?:src|href)="([^"]*)"', tag)]
        assert [at for at in loaded if re.match(r"(?:https?:)?//", at)] == [], path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", path.read_text()), path.name


def test_the_reference_shows_signatures_parameters_and_shared_methods(site):
    page = (site / "reference.html").read_text()
    for name in ("metrics.bootstrap_difference", "scores.RAPS", "Search.only", "SCPOClassifier.summary"):
        assert f'id="tightset.{name}"' in page
    assert [name for name in tightset.plots.__all__ if f'id="tightset.plots.{name}"' not in page] == []
    assert 'id="tightset.estimators.base.ConformalPredictor.predict_set"' in page
    assert "<code>float or sequence of float</code>" in page  # types as the docstrings give them
    assert "array-like of shape (n_samples,)" in page
    assert not re.search(r"<code>[^<]*\bAny\b", page)
    assert "&gt;&gt;&gt;" not in re.sub(r"<code>.*?</code>", "", page, flags=re.DOTALL)  # doctests have a fence


def test_the_reference_is_exactly_the_public_face(torch):
    named = re.findall(r"^::: tightset\.(\S+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted({*dir(tightset), "estimators.base.ConformalPredictor"} - {"__version__"})
    for name in dir(tightset):
        assert getattr(tightset, name) is not None


def test_the_picture_and_the_list_of_files_are_those_of_the_package():
    drawn = script("architecture")
    assert drawn.page() == (DOCS / "architecture.md").read_text(), "run: python tools/architecture.py"
    assert drawn.picture() == drawn.PICTURE.read_text(), "run: python tools/architecture.py"


def test_the_architecture_names_files_that_there_are():
    page = (DOCS / "architecture.md").read_text()
    named = re.findall(
        r"`((?:compute|conformal|measures|objectives|solvers|models|search|estimators|storage|tables|tests)/[\w./]+)`",
        page,
    )
    assert len(named) > 15
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "src" / "tightset" / name).exists(), name


def test_every_page_is_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    def leaves(entry):
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values() if isinstance(entry, dict) else entry:
                yield from leaves(below)

    assert sorted(leaves(nav)) == PAGES
