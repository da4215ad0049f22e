"""The command line: a thin shell over the library."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Prediction sets with guaranteed coverage, trained to be small.\n\nExample: tightset demo",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from tightset import __version__

        typer.echo(f"tightset {__version__}")
        raise typer.Exit


@app.command()
def demo(
    confidence: Annotated[
        list[float] | None, typer.Option(help="Level, between 0 and 1; give it several times for several levels.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Which split of the data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON, for machines.")] = False,
) -> None:
    """Compare logistic regression with SCPO on scikit-learn's digits.

    Example: tightset demo --confidence 0.9 --confidence 0.99
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tightset.demo import compare_on_digits

    levels = confidence or [0.8, 0.9, 0.95, 0.99]
    for level in levels:
        if not 0 < level < 1:
            raise typer.BadParameter(f"{level} is not between 0 and 1", param_hint="--confidence")
    rows = compare_on_digits(levels, seed=seed, verbose=sys.stderr.isatty())
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows]))
        return
    table = Table(
        title=f"Prediction sets on digits: {rows[0].scpo['n']} test rows, 10 labels",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("level", "logistic\ncoverage", "\nsize", "SCPO\ncoverage", "\nsize", "change", "95 % interval", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        base = max(row.baseline["mean_size"], 1e-9)
        table.add_row(
            f"{row.confidence:g}",
            f"{row.baseline['coverage']:.3f}",
            f"{base:.3f}",
            f"{row.scpo['coverage']:.3f}",
            f"{row.scpo['mean_size']:.3f}",
            f"{row.change:+.1%}",
            f"{row.low / base:+.1%} to {row.high / base:+.1%}",
            "< 0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}",
        )
    console = Console()
    console.print(table)
    smaller = [f"{row.confidence:g}" for row in rows if row.high < 0]
    larger = [f"{row.confidence:g}" for row in rows if row.low > 0]
    console.print(
        f"SCPO's sets are smaller at {', '.join(smaller) or 'no level'}, larger at {', '.join(larger) or 'no level'}"
        f"{'' if len(smaller) + len(larger) == len(rows) else ', and not clearly different at the others'}."
    )
    console.print(
        "This is the paper's linear measure from a zero start; on easy data with many labels it can lose to "
        "logistic regression.\nNext: tightset demo --seed 1, or in Python: from tightset import SCPOClassifier",
        highlight=False,
    )


paper_app = typer.Typer(no_args_is_help=True, help="The paper's experiments.\n\nExample: tightset paper run --quick")
app.add_typer(paper_app, name="paper")

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of raw files; else TIGHTSET_DATA, else the per-user cache.", show_default=False),
]


@paper_app.command("run")
def paper_run(
    out: Annotated[Path, typer.Option(help="Folder of results; a run that was broken off goes on there.")] = Path(
        "results/paper"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes: five sets, two levels, one split.")] = False,
    splits: Annotated[int, typer.Option(min=1, help="How many splits of each data set.")] = 5,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    device: Annotated[str | None, typer.Option(help="A PyTorch device such as cuda; else NumPy on the CPU.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure the paper's tables anew; every finished row is kept.

    Example: tightset paper run --quick --out quick
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from tightset.paper.datasets import DATASETS
    from tightset.paper.experiments import plan, run

    unknown = set(dataset or []) - set(DATASETS)
    if unknown:
        raise typer.BadParameter(f"{unknown.pop()} is none of {', '.join(DATASETS)}", param_hint="--dataset")
    experiments = plan(range(splits), dataset or DATASETS, quick=quick)
    columns = (
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.fields[rows]} rows, {task.description}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("starting", total=1.0, done=0, rows=len(experiments), left="")
        started: list[float] = []  # when, and at which share of the cost, this session began

        def progress(done: int, rows: int, share: float, experiment: Any) -> None:
            started.extend([time.monotonic(), share] if not started else [])
            gone, gained = time.monotonic() - started[0], share - started[1]
            left = f"about {gone / gained * (1 - share) / 60:.0f} min left" if gained > 0.01 else ""
            title = f"{experiment.dataset} {experiment.method} {experiment.confidence:g}" if experiment else "done"
            bar.update(task, completed=share, done=done, rows=rows, left=left, description=title)

        run(experiments, out, data_dir=data_dir, device=device, progress=progress)
    typer.echo(f"{len(experiments)} rows in {out / 'rows.csv'}; next: tightset paper report --results {out}")


def main() -> None:
    """Run the command line; whatever goes wrong is a sentence and an exit code, not a traceback."""
    warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        code = 130
    except Exception as error:  # noqa: BLE001 - the boundary to people
        if hasattr(error, "show"):  # wrong usage: typer knows how to say it
            error.show()
        else:
            typer.echo(f"tightset: {error}", err=True)
        code = getattr(error, "exit_code", 1)
    if code == 130:
        typer.echo("interrupted", err=True)
    raise SystemExit(code or 0)
