#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""The checks of this project on any system; on POSIX systems `make test`, `make lint` and `make docs` do the same.

``nox`` alone runs the linters and the tests; ``nox --list`` says what else there is.
"""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"

EXTRAS = ".[cli,dask,io,lightgbm,onnx,plots]"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # for each of two workers


def install(session: nox.Session, *what: str) -> None:
    """Install with the versions of constraints.txt, and with a pip that knows groups where uv is not there."""
    if session.venv_backend != "uv":
        session.install("--upgrade", "pip>=25.1")
    session.install("--constraint", "constraints.txt", *what)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, and who may import whom."""
    install(session, "--editable", EXTRAS, "--group", "dev")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def tests(session: nox.Session) -> None:
    """The tests; what follows -- goes to pytest."""
    install(session, "--editable", EXTRAS, "--group", "test", "--group", "peers")
    session.run("pytest", *(session.posargs or ["-n", "2"]), env=ONE_THREAD)


@nox.session(venv_backend="uv", default=False)
def lowest(session: nox.Session) -> None:
    """The tests with the oldest versions that pyproject.toml allows."""
    install(session, "--resolution", "lowest-direct", "--editable", EXTRAS)
    session.install("--constraint", "constraints.txt", "--group", "test", "polars<2")
    session.run("pytest", *(session.posargs or ["-n", "2"]), env=ONE_THREAD)


@nox.session(venv_backend="uv", default=False)
def newest(session: nox.Session) -> None:
    """The tests with releases of NumPy, SciPy, scikit-learn and pandas that are still being tested themselves."""
    install(session, "--editable", EXTRAS, "--group", "test", "--group", "peers")
    session.install("--upgrade", "--prerelease", "allow", "numpy", "scipy", "scikit-learn", "pandas")
    session.run("pytest", *(session.posargs or ["-n", "2"]), env=ONE_THREAD)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """The site, into site/; a link that leads nowhere is an error."""
    install(session, "--editable", ".", "--group", "docs")
    session.run("mkdocs", "build", "--strict")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """The source archive and the wheel, into dist/, and whether an index would take them."""
    session.install("build", "twine")
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", "dist/*")


if __name__ == "__main__":
    nox.main()
