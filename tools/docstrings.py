"""Read the docstrings of this library as they are written; mkdocs.yml names this file.

They say `name : what it is for` where numpydoc has `name : type`, put doctests anywhere, and annotate with `Any` what
is checked at run time. So the text after the colon moves into the description, doctests get a fence (or, below another
section, one of their own), and `Any` is not shown.
"""

import re
from typing import Any

import griffe

_SECTIONS = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=\n\n\S|\Z)", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^([\w, ]+) : (.*)$", re.MULTILINE)
_HEADING = re.compile(r"^\w+\n-{3,}$", re.MULTILINE)
_DOCTEST = re.compile(r"(?<=\n\n)>>> .*?(?=\n\n|\Z)", re.DOTALL)


class AsWritten(griffe.Extension):
    """The texts of all objects, made into what a numpydoc parser expects."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
        if isinstance(obj, griffe.Function):
            for parameter in obj.parameters:
                parameter.annotation = _told(parameter.annotation)
            obj.returns = _told(obj.returns)
        elif isinstance(obj, griffe.Attribute):
            obj.annotation = _told(obj.annotation)


def readable(text: str) -> str:
    """The text with descriptions below their names, and with fences around doctests outside a section of examples.

    Below another section, which has no end but the next one, doctests get a section.
    """
    text = _SECTIONS.sub(lambda found: f"{found[1]}\n{'-' * len(found[1])}\n" + _below(found[2]), text)
    before, examples, after = text.partition("Examples\n--------\n")
    head = _HEADING.search(before)
    sectioned = head.start() if head else len(before)
    fenced = _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", before[:sectioned])
    return fenced + _DOCTEST.sub(r"Examples\n--------\n\g<0>", before[sectioned:]) + examples + after


def _below(entries: str) -> str:
    return _NAMED.sub(lambda found: f"{found[1]}\n    {found[2]}", entries)


def _told(annotation: Any) -> Any:
    return None if str(annotation) == "Any" else annotation
