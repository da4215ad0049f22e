"""Write docs/command-line.md from the commands themselves: `python tools/cli_reference.py`.

Only what typer has kept from version to version is read, and nothing is laid out by the terminal, so the page is the
same on every machine. tests/project/test_docs.py checks that the page is what this writes.
"""

import typing
from collections.abc import Iterator
from enum import Enum
from inspect import unwrap
from pathlib import Path
from typing import Any, Literal

import typer

from tightset.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"

TOP = """\
# The command line

Every command with its options. `--help` after any of them prints the same in the terminal. (`python
tools/cli_reference.py` writes this page from the commands themselves.)
"""


def text() -> str:
    """The whole page."""
    return "\n".join([TOP, *text_of(app, "tightset")])


def text_of(some_app: typer.Typer, name: str) -> Iterator[str]:
    """The section of every command."""
    for path, command in walk(typer.main.get_command(some_app), name):
        yield from section(path, command)


def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that people see, with what they type for it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from walk(below, f"{path} {name}")


def section(path: str, command: Any) -> Iterator[str]:
    """A heading, what the command does, its usage, arguments, options and examples."""
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-") and not p.hidden]
    group = bool(getattr(command, "commands", {}))
    prose, examples = parts(command.help or "")
    yield f"## `{path}`\n" if path == "tightset" or path.count(" ") == 1 else f"### `{path}`\n"
    yield f"{prose}\n"
    usage = [
        path,
        *(usage_of(p) for p in arguments),
        *(["[OPTIONS]"] if options else []),
        *(["COMMAND"] if group else []),
    ]
    yield f"```text\n{' '.join(usage)}\n```\n"
    if group:
        shown = {name: below for name, below in command.commands.items() if not below.hidden}
        yield from table(("command", ""), [(f"`{name}`", first_line(below)) for name, below in shown.items()])
    yield from table(("argument", ""), [(f"`{placeholder(p)}`", meaning(p, command)) for p in arguments])
    yield from table(("option", ""), [(spelling(p), meaning(p, command)) for p in options])
    if examples:
        yield f"{'Example' if len(examples) == 1 else 'Examples'}:\n"
        yield "```text\n" + "\n".join(examples) + "\n```\n"


def parts(help_text: str) -> tuple[str, list[str]]:
    """Prose, and the commands after ``Example:`` or ``Examples:``, each on a line of its own."""
    prose, examples = [], []
    for paragraph in help_text.replace("\b", "").strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines and lines[0].startswith(("Example:", "Examples:")):
            examples += [line for line in [lines[0].split(":", 1)[1].strip(), *lines[1:]] if line]
        elif lines and examples and lines[0].startswith(("tightset ", "$ ", "cat ")):
            examples += lines
        else:
            prose.append(" ".join(lines))
    return "\n\n".join(prose), examples


def first_line(command: Any) -> str:
    return parts(command.help or "")[0].split("\n\n")[0]


def table(head: tuple[str, str], rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |", *(f"| {left} | {right} |" for left, right in rows)]
        yield "\n".join(lines) + "\n"


def usage_of(argument: Any) -> str:
    name = placeholder(argument) + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def placeholder(param: Any) -> str:
    """What stands for the value; a name that says enough stands for itself."""
    return str(param.metavar or param.name.upper()).strip("[].")


def spelling(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag or getattr(option, "count", False):
        return names
    return ", ".join(f"`{name} {placeholder(option)}`" for name in option.opts)


def meaning(param: Any, command: Any) -> str:
    """The help of an argument or option, the words that it takes, and its default."""
    said = [" ".join((param.help or "").split())]
    choices = words(param, command)
    if choices:
        said.append(f"One of {', '.join(f'`{word}`' for word in choices)}.")
    default = param.default.value if isinstance(param.default, Enum) else param.default
    if callable(default) or default in (None, False, "", (), []) or (default is True and not param.secondary_opts):
        default = None
    if param.required and param.opts[0].startswith("-"):
        said.append("Required.")
    elif default is not None and param.show_default is not False:
        shown = param.opts[0] if default is True else default
        said.append(f"Default: `{param.show_default if isinstance(param.show_default, str) else shown}`.")
    return " ".join(filter(None, said)).replace("|", "\\|").replace("<", "&lt;")


def words(param: Any, command: Any) -> list[str]:
    """What an argument may be, where its annotation counts it up: an Enum or a Literal."""
    hints = typing.get_type_hints(unwrap(command.callback)) if command.callback else {}
    kinds = [hints.get(param.name)]
    while kinds:
        kind = kinds.pop()
        if typing.get_origin(kind) is Literal:
            return [str(word) for word in typing.get_args(kind)]
        if isinstance(kind, type) and issubclass(kind, Enum):
            return [str(word.value) for word in kind]
        kinds += [inner for inner in typing.get_args(kind) if inner is not type(None)]
    return []


if __name__ == "__main__":
    PAGE.write_text(text())
