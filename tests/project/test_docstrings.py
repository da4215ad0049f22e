"""The docstrings of the public face are numpydoc: every parameter has a name, a type and words, and they are true."""

import ast
import inspect
import os
import re
from types import ModuleType

import pytest

import tightset
from tightset.tables import TableFile

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n(.*?)(?=\n\n\w[\w ]*\n-{3,}\n|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*) : (?P<type>\S.*)$")
SECTIONS = ["Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes", "Examples"]  # in this order

# Methods for what is built on a predictor or a score, which users do not call; contracts and comments say what they do.
INNER = {
    *("calibrating_share", "check_new_rows", "check_parameters", "fit_given", "label_codes", "levels_asked"),
    *("stored_fields", "upgraded", "warn_if_stricter"),
    *("choices", "export"),
}


def methods(cls):
    """Public functions of a class that this package wrote, also those that it inherits."""
    for name in dir(cls):
        home = next((base for base in cls.__mro__ if name in vars(base)), None)
        if home is None or name.startswith("_") or name in INNER or not home.__module__.startswith("tightset."):
            continue
        if callable(getattr(cls, name)):
            yield name, getattr(cls, name)


def public_face():
    for name in dir(tightset):
        try:
            one = getattr(tightset, name)
        except ImportError:  # of PyTorch, which CI must have
            if os.environ.get("CI") == "true":
                raise
            continue
        if isinstance(one, ModuleType):
            yield from ((f"{name}.{own}", getattr(one, own)) for own in one.__all__)
        elif callable(one):
            yield name, one
    yield "TableFile", TableFile


def documented():
    for name, one in public_face():
        yield name, one
        if inspect.isclass(one):
            yield from ((f"{name}.{own}", method) for own, method in methods(one))


FACE = dict(documented())


def sections(text):
    return dict(SECTION.findall(text))


def entries(section):
    """(name, type) of each, with the stars of what takes any number of them; each must have words."""
    lines = section.splitlines()
    for at, line in enumerate(lines):
        if line and not line.startswith(" "):
            found = ENTRY.match(line)
            assert found, f"not `name : type`: {line!r}"
            assert "".join(lines[at + 1 : at + 2]).startswith("    "), f"no words below {line!r}"
            yield from ((name, found["type"]) for name in found["names"].split(", "))


def signature(one):
    """Parameters by name, with the stars that numpydoc writes; of a named tuple, its fields."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = inspect.signature(one).parameters.values()
    return {stars.get(each.kind, "") + each.name: each for each in found if each.name not in ("self", "cls")}


def check(one):
    """Raise unless the docstring is true to the signature."""
    text = inspect.getdoc(one)
    assert text, "there is no docstring"
    assert re.match(r".+(\n\n|\Z)", text), "the summary must be one line"
    found = sections(text)
    assert [name for name in found if name not in SECTIONS] == []
    assert list(found) == sorted(found, key=SECTIONS.index), "sections are out of order"
    if inspect.isclass(one) and issubclass(one, Exception):
        return
    is_tuple = inspect.isclass(one) and issubclass(one, tuple)
    given = signature(one)
    told = list(entries(found.get("Attributes" if is_tuple else "Parameters", "")))
    assert [name for name, _ in told] == list(given)
    for name, of_type in told:
        default = re.search(r", default (.+)$", of_type)
        if default:
            assert given[name].default == ast.literal_eval(default[1]), name
        if of_type.endswith(", optional"):
            assert given[name].default is not inspect.Parameter.empty, name
    list(entries(found.get("Attributes", "")))  # which have types too
    if not inspect.isclass(one) and inspect.signature(one).return_annotation not in ("None", None):
        assert {"Returns", "Yields"} & set(found), "there is no Returns section"


@pytest.mark.parametrize("name", FACE)
def test_a_docstring_is_true_to_the_signature(name):
    check(FACE[name])


def test_all_of_the_public_face_is_looked_at(torch):
    assert {"SCPOClassifier.fit", "ConformalClassifier.predict_set", "Search.fast", "plots.coverage"} <= set(FACE)
    assert {"scores.RAPS", "metrics.evaluate", "TablePredictor.save", "TableFile.chunks", "load"} <= set(FACE)
    assert {name for name in dir(tightset) if name != "__version__"} <= {name.partition(".")[0] for name in FACE}


def undocumented(a, b=1):
    """Do it."""


def old_form(a):
    """Do it.

    Parameters
    ----------
    a : what it is for.
    """


def too_many(a):
    """Do it.

    Parameters
    ----------
    a, b : int
        Numbers.
    """


def wrong_default(a=1):
    """Do it.

    Parameters
    ----------
    a : int, default 2
        A number.
    """


def no_returns(a) -> int:
    """Do it.

    Parameters
    ----------
    a : int
        A number.
    """


@pytest.mark.parametrize("wrong", [undocumented, old_form, too_many, wrong_default, no_returns])
def test_what_is_wrong_is_found(wrong):
    with pytest.raises(AssertionError):
        check(wrong)


def right(a, *, b=None, **more) -> None:
    """Do it.

    Parameters
    ----------
    a, b : array-like of shape (n,)
        Rows.

        - One.
    **more : dict
        Anything.
    """


def test_what_is_right_is_let_through():
    check(right)
