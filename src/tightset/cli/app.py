"""The command line: a thin shell over the library."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from typing import Annotated, Any

import typer

from tightset.cli.exporting import exporting_app
from tightset.cli.looking import looking_app
from tightset.cli.options import levels_of, without_nan
from tightset.cli.predicting import predicting_app
from tightset.cli.shares import share
from tightset.cli.show import say, say_json, show, visible
from tightset.cli.training import training_app
from tightset.cli.using import using_app

__all__ = ["app", "run"]


class _Group(typer.core.TyperGroup):
    """Commands with their whole first sentence, however long it is."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        told = [(name, " ".join((one.help or "").split("\n\n")[0].split())) for name, one in found if one is not None]
        with formatter.section("Commands"):
            formatter.write_dl(told)


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain lines: rich cuts the names of options in a narrow terminal
    help="Prediction sets with guaranteed coverage, trained to be small.\n\nExample: tightset demo",
)


_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_PRINTED = ("compare", "demo", "evaluate", "explain", "info")  # commands whose result is what they print


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from tightset import __version__

        say(f"tightset {__version__}")
        raise typer.Exit
    if sys.stdout is None and context.invoked_subcommand in _PRINTED:
        raise OSError("standard output is closed, and this command writes nowhere else")


@app.command()
def demo(
    confidence: Annotated[
        list[float] | None,
        typer.Option(parser=share, metavar="LEVEL", help="Confidence level, between 0 and 1; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="NUMBER", help="Seed for the data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Show what prediction sets are, and what training them to be small gains, in ten seconds.

    Example: tightset demo --confidence 0.99
    """
    from tightset.cli.demo import ROWS, run_demo

    levels = levels_of(confidence)
    found = run_demo(levels, seed=seed, verbose=sys.stderr.isatty())
    if as_json:
        told = {
            "examples": [one._asdict() for one in found.examples],
            "measured": found.measured,
            "against": {name: [row._asdict() for row in rows] for name, rows in found.against.items()},
        }
        say_json(without_nan(told))
        return
    train, calibrate, test = (f"{rows:,}" for rows in ROWS)
    say(
        f"Which fruit is it, by size and colour? The kinds overlap. {train} fruits train, {calibrate} calibrate, "
        f"{test} test. The sets are to hold the true kind of {100 * levels[-1]:.5g}% of all fruits.\n"
    )
    cells = [
        (f"{one.size:g}", f"{one.colour:g}", ", ".join(one.labels) or "(empty)", one.true, one.meaning)
        for one in found.examples
    ]
    show("Sets of some test fruits", ("size", "colour", "set", "true kind", "what it says"), cells, left=[2, 3, 4])
    rows = [
        (name, f"{row['confidence']:g}", f"{row['coverage']:.3f}", f"{row['mean_size']:.2f}")
        for at in range(len(levels))
        for name, measured in found.measured.items()
        for row in [measured[at]]
    ]
    show(f"All {test} test fruits", ("sets of", "level", "coverage", "labels per set"), rows, left=[0])
    say(
        "Thresholded: a label is in the set if its probability is above a threshold, which is calibrated. The best "
        "possible: the same with the true probabilities, known because the data are made.\n"
    )
    for name, compared in found.against.items():
        row = compared[-1]
        smaller = f"{-row.change:.0%} smaller than" if row.high < 0 else "not clearly different in size from"
        say(
            f"At {row.confidence:g} and equal coverage, tightset's sets are {smaller} those of {name} "
            f"(95% interval of the change {row.low:+.0%} to {row.high:+.0%})."
        )
    say(
        "\nWhere nothing is gained, tightset says so: docs/when-it-pays.md.\n"
        "Next: tightset fit mine.csv --target label --test 0.25, or in Python: from tightset import SCPOClassifier"
    )


app.add_typer(training_app)
app.add_typer(predicting_app)
app.add_typer(using_app)
app.add_typer(looking_app)
app.add_typer(exporting_app)


def _show_usage(error: Any) -> None:
    message = "\n".join(map(visible, error.format_message().split("\n")))
    error.format_message = lambda: message
    error.show()


def _open_standard_streams() -> None:
    """Where one is closed, a file opened later would take its place, and get what libraries print."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - as long as the process


def run(commands: typer.Typer | None = None) -> None:
    """Run a command line; whatever goes wrong is a sentence and an exit code, not a traceback.

    0: done. 1: a file, a table or a model is not as it should be. 2: wrong usage. 130: interrupted. 141: who reads the
    output has had enough.
    """
    said: set[str] = set()
    stopped = False

    def say_once(message: Any, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            say(f"warning: {message}", err=True)

    def stop(*_: Any) -> None:
        nonlocal stopped
        stopped = True
        raise KeyboardInterrupt

    warnings.showwarning = say_once
    _open_standard_streams()
    if threading.current_thread() is threading.main_thread():
        for how in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            signal.signal(how, stop)  # so that what is half done is taken away
    try:
        code = (commands or app)(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where it can still be said that nobody reads it
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):  # typer makes 1 of it
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to write is not missed
        code = 141
    except Exception as error:  # noqa: BLE001 - the boundary to people
        if stopped:  # pandas makes an error of its own of it
            pass
        elif hasattr(error, "show"):  # wrong usage: typer knows how to say it
            _show_usage(error)
        elif isinstance(error, OSError) and error.strerror:
            where = error.filename
            if where is None and error.errno in _FULL:  # files name themselves
                where = "standard output"
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries again when it ends
            say(f"tightset: {error.strerror}" + (f": {where}" if where else ""), err=True)
        else:
            say(f"tightset: {error}", err=True)
        code = 130 if stopped else getattr(error, "exit_code", 1)
    if code == 130:
        say("interrupted", err=True)
    raise SystemExit(code or 0)
