"""The base is light: what only the command line, tables, reports and other people's estimators need may be missing."""

import subprocess
import sys
import textwrap

import pytest

MISSING = ["pandas", "rich", "typer", "jinja2", "skops", "pyarrow", "matplotlib", "dask", "onnx", "torch", "polars"]


HIDE = f"""
import sys
from importlib.machinery import PathFinder

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in {MISSING!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Finder if one is PathFinder else one for one in sys.meta_path if "editable" not in str(one).lower()]
"""


def without_extras(code, *words):
    code = HIDE + f"sys.argv = ['tightset', *{list(words)!r}]\n" + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What one process printed that had no extras: a line of what worked, then one for each that is missing."""
    tmp_path = tmp_path_factory.mktemp("light")
    found = without_extras(f"""
        import numpy as np, tightset
        from sklearn.datasets import load_wine
        X, y = load_wine(return_X_y=True)
        for clf in (tightset.SCPOClassifier(0.9, search="fast", random_state=0), tightset.SCPOClassifier.paper(0.9, max_iter=5)):
            clf.fit(X, y).save({str(tmp_path / "m.tightset")!r})
            assert (tightset.load({str(tmp_path / "m.tightset")!r}).predict_p(X) == clf.predict_p(X)).all()
        clf = tightset.ConformalClassifier(confidence=0.9, random_state=0).fit(X, y)
        print(clf.evaluate(X, y)["coverage"] > 0.8, repr(clf), len(clf._repr_html_()) > 100)
        for ask in (
            lambda: clf.predict_set(X, as_frame=True),
            lambda: clf.save({str(tmp_path / "m.tightset")!r}),
            lambda: tightset.write_report({str(tmp_path / "r.html")!r}, clf, X, y),
            lambda: tightset.plots.coverage(clf, X, y),
            lambda: tightset.to_onnx(clf),
        ):
            try:
                ask()
            except ImportError as error:
                print(error)
        """)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_both_estimators_work_and_are_stored_without_extras(told):
    assert told[0].startswith("True ConformalClassifier(")
    assert told[0].endswith(" True")


def test_a_missing_extra_is_named(told):
    told = told[1:]
    assert told[0] == 'as_frame=True needs pandas, which is not installed: pip install "tightset[cli]"'
    assert told[1].endswith('needs skops, which is not installed: pip install "tightset[files]"')
    assert told[2].startswith("a report needs")
    assert told[2].endswith('pip install "tightset[cli]"')
    assert told[3].endswith('pip install "tightset[plots]"')
    assert told[4].endswith('pip install "tightset[onnx]"')


def test_the_command_line_says_what_it_needs():
    found = without_extras("from tightset.cli import main; main()", "demo")
    assert found.returncode == 1
    assert (
        found.stderr == 'tightset: the command line needs typer, which is not installed: pip install "tightset[cli]"\n'
    )


def test_an_interrupt_while_the_command_line_is_loaded_is_one_as_well():
    code = """
        class Interrupted:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "tightset.cli.app":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupted)
        from tightset.cli import main
        main()
        """
    found = without_extras(code, "--help")
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "interrupted\n")
