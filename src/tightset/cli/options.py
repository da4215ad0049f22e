"""Arguments that the commands for tables share, and their checks."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightset.cli.shares import share

if TYPE_CHECKING:
    from tightset.tables.predictor import TablePredictor

__all__ = [
    "Abstain",
    "AsJson",
    "Assurance",
    "ByLabel",
    "Categorical",
    "CertainBy",
    "Confidence",
    "ConfidenceToFit",
    "ConfidencesToCompare",
    "Cost",
    "Data",
    "Decimal",
    "Delimiter",
    "Drop",
    "DropUnlabelled",
    "Encoding",
    "Estimator",
    "Group",
    "Lenient",
    "Minimise",
    "Missing",
    "Model",
    "Ordered",
    "RareLabels",
    "RareRows",
    "Search",
    "Seed",
    "Target",
    "Thousands",
    "check_model",
    "check_ordered",
    "check_out",
    "check_rare",
    "digest",
    "levels_of",
    "load_model",
    "model_of",
    "table_of",
    "without_nan",
]

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A table: CSV, TSV or Parquet, compressed or not; - is standard input.", show_default=False
    ),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file that `tightset fit` wrote.", show_default=False)
]
Target = Annotated[str, typer.Option(metavar="COLUMN", help="The column that holds the labels.", show_default=False)]


def _levels(default: str) -> Any:
    told = f"Level between 0 and 1; may be repeated. Default: {default}."
    return typer.Option(parser=share, metavar="LEVEL", help=told, show_default=False)


Confidence = Annotated[list[float] | None, _levels("the model's")]
ConfidenceToFit = Annotated[list[float] | None, _levels("0.95")]
ConfidencesToCompare = Annotated[list[float] | None, _levels("0.8, 0.9, 0.95 and 0.99")]
Assurance = Annotated[
    float | None,
    typer.Option(
        parser=share,
        metavar="SHARE",
        help="Choose thresholds so that coverage is at least the level with this probability over the calibration "
        "rows, such as 0.95; sets are a little larger. Default: coverage holds on average.",
        show_default=False,
    ),
]
Abstain = Annotated[
    float | None,
    typer.Option(
        parser=share,
        metavar="ERROR",
        help="Write one label for each row that is certain enough, and an empty set for the others: among answered "
        "rows at most this share is wrong.",
        show_default=False,
    ),
]
CertainBy = Annotated[
    float, typer.Option(parser=share, metavar="SHARE", help="With --abstain: how certain the error rate is to hold.")
]
Estimator = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What measures are trained on: linear (the columns themselves: fast), auto (trees, columns and mixtures "
        "of them: slow, often the smallest sets), or on top of hgb, rf, et, mlp, logistic, lightgbm.",
    ),
]
ByLabel = Annotated[
    bool,
    typer.Option("--by-label", "--label-conditional", help="Coverage for each label, not only on average."),
]
Cost = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What a label in a set costs: a CSV file with the columns label and cost; or a square table whose header "
        "and first column are labels, with a row for each true label. Sets of small cost are trained for.",
        show_default=False,
    ),
]
Ordered = Annotated[
    str | None,
    typer.Option(
        metavar="LABELS",
        help="The labels from the lowest to the highest, such as low,medium,high; or auto: the order of numbers, or of "
        "an ordered category in Parquet. Sets are then intervals, as narrow as possible.",
        show_default=False,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="A column with the group of each row, such as a hospital: coverage within each group. It is not predicted "
        "from; new rows need it.",
        show_default=False,
    ),
]
Minimise = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="What is made small: size (labels per set), multiple (sets of several labels, and a little of "
        "excess), excess (labels beyond the first) or log (the logarithm of 1 + size).",
    ),
]
Search = Annotated[str, typer.Option(metavar="NAME", help="fast, default or thorough.")]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="A column to treat as categories, such as numeric codes or texts with many values; may be repeated.",
        show_default=False,
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="A column not to use; may be repeated.", show_default=False)
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT", help="A text that stands for a missing value, such as '?'; may be repeated.", show_default=False
    ),
]
RareLabels = Annotated[
    str,
    typer.Option(
        metavar="POLICY",
        help="What to do with labels that have few rows: keep, other (merge them into one label), or drop (their rows "
        "are left out).",
    ),
]
RareRows = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="ROWS",
        help="Labels with fewer rows are rare. Default: 10; with --by-label four times as many as the level "
        "needs to calibrate a label, which is 76 at 0.95.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="MARK",
        help="The column separator, such as ';' or tab. Default: what the file shows.",
        show_default=False,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The encoding of text files. Default: utf-8; with a model, as in its table.",
        show_default=False,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar="MARK",
        help="The decimal mark: '.' or ','. Default: '.'; with a model, as in its table.",
        show_default=False,
    ),
]
Thousands = Annotated[
    str | None,
    typer.Option(
        metavar="MARK",
        help="The thousands separator, such as ',', or '' for none. Default: none; with a model, as in its table.",
        show_default=False,
    ),
]
DropUnlabelled = Annotated[
    bool, typer.Option("--drop-unlabelled", help="Leave out the rows that have no label, instead of stopping at them.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="NUMBER", help="Seed for all random choices.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Lenient = Annotated[
    bool,
    typer.Option(
        "--lenient", help="Match columns by name, ignore extra ones, and treat unseen categories as rare ones."
    ),
]


def levels_of(confidence: list[float] | None) -> list[float]:
    return sorted(set(confidence or [0.95]))


def check_ordered(ordered: str | None, *, by_label: bool, cost: Path | None) -> Any:
    """The order of the labels that was asked for, as `order_labels` takes it; None if none was."""
    from tightset.exceptions import TableError
    from tightset.tables.orders import labels_in

    other = "--by-label" if by_label else "--cost" if cost is not None else None
    if ordered is None:
        return None
    if other is not None:
        raise typer.BadParameter(
            f"it cannot be combined with {other}: thresholds that differ between labels would cut intervals up",
            param_hint="--ordered",
        )
    try:
        return labels_in(ordered)
    except TableError as error:
        raise typer.BadParameter(str(error), param_hint="--ordered") from None


def check_rare(policy: str) -> None:
    from tightset.tables.target import POLICIES

    if policy not in POLICIES:
        raise typer.BadParameter(f"{policy!r} is none of {', '.join(POLICIES)}", param_hint="--rare-labels")


def load_model(path: Path) -> Any:
    """Of a table or of arrays."""
    from tightset.tables.stored import load

    check_model(path)
    return load(path)


def check_model(path: Path) -> None:
    from tightset.exceptions import ModelFileError

    if not path.exists():
        raise ModelFileError(f"there is no file {path}")


def model_of(path: Path, confidence: list[float] | None) -> tuple[Any, list[float]]:
    """The model of a table, and the levels that are asked for, its own if none are."""
    from tightset.exceptions import ModelFileError

    loaded = load_model(path)
    if not hasattr(loaded, "encoding"):
        raise ModelFileError(
            f"{path} holds a model fitted on arrays, not on a table; use tightset.load in Python, or "
            "`tightset fit` to fit one on a table"
        )
    return loaded, [float(level) for level in loaded.levels_] if confidence is None else levels_of(confidence)


def table_of(
    data: str, written: Sequence[str | None], *, missing: Any = None, model: TablePredictor | None = None
) -> Any:
    """The table of a command; ``written`` is delimiter, encoding, decimal and thousands, else as the model's table."""
    from tightset.tables.dialect import Dialect
    from tightset.tables.files import TableFile

    before = Dialect() if model is None else model.dialect
    given = Dialect(*written)
    dialect = given.over(before._replace(delimiter=None))
    missing = model.encoding.missing if model is not None else missing or ()
    how: Any = {"likely": before.delimiter, "as_before": given.encoding is None}
    return TableFile(data, **dialect._asdict(), missing=missing, **how)


def check_out(out: Path, *inputs: str, model: bool = False) -> None:
    """Refuse, before any work, to write where something else would be lost, or where nothing can be written."""
    try:
        out.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise typer.BadParameter(f"{out} is a link that points to itself", param_hint="--out") from None
    folder = Path(os.path.realpath(out)).parent if out.is_symlink() else out.parent  # a link stays one
    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {folder}", param_hint="--out")
    if not os.access(folder, os.W_OK):
        raise typer.BadParameter(f"the folder {folder} cannot be written to", param_hint="--out")
    if out.exists() and not os.access(out, os.W_OK):
        raise typer.BadParameter(f"{out} is read-only; give another name", param_hint="--out")
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder; give the name of a file", param_hint="--out")
    if any(name != "-" and Path(name).exists() and out.exists() and out.samefile(name) for name in inputs):
        raise typer.BadParameter(f"{out} is also the input; give another name", param_hint="--out")
    if model and out.exists() and out.stat().st_size and b"__metadata__" not in out.open("rb").read(64):
        raise typer.BadParameter(f"{out} exists and is not a model; give another name", param_hint="--out")


def digest(path: Path | None) -> str | None:
    """The SHA-256 of the file of a table; None of a stream."""
    if path is None:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def without_nan(value: Any) -> Any:
    """The same with null for NaN, which is not JSON."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and value != value else value
