"""Commands for tables: from a file to a decision."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from tightset.cli.show import reading, show, show_comparison

__all__ = ["tables_app"]

tables_app = typer.Typer()

Data = Annotated[
    str,
    typer.Argument(help="A table: CSV, TSV or Parquet, compressed or not; - is standard input.", show_default=False),
]
Model = Annotated[Path, typer.Argument(help="A model file that `tightset fit` wrote.", show_default=False)]
Target = Annotated[str, typer.Option(help="The column of labels.", show_default=False)]
Confidence = Annotated[
    list[float] | None,
    typer.Option(help="Level, between 0 and 1; may be repeated.", show_default=False),
]
Estimator = Annotated[
    str,
    typer.Option(
        help="What measures are trained on: linear (the columns themselves: fast), auto (trees, columns and mixtures "
        "of them: slow, often the smallest sets), or on top of hgb, rf, et, mlp, logistic, lightgbm."
    ),
]
Search = Annotated[str, typer.Option(help="fast, default or thorough.")]
Categorical = Annotated[
    list[str] | None, typer.Option(help="A column of numbers that are categories; may be repeated.", show_default=False)
]
Drop = Annotated[list[str] | None, typer.Option(help="A column not to use; may be repeated.", show_default=False)]
Missing = Annotated[
    list[str] | None,
    typer.Option(help="A text that stands for a missing value, such as '?'; may be repeated.", show_default=False),
]
Delimiter = Annotated[
    str | None, typer.Option(help="Between cells; a comma, or a tab in .tsv files.", show_default=False)
]
Encoding = Annotated[str, typer.Option(help="Of text files.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For the rows that calibrate, and all that is drawn.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Lenient = Annotated[
    bool,
    typer.Option(
        "--lenient", help="Go by the names of columns, ignore others, and take unseen categories as rare ones."
    ),
]

_BASES = ("hgb", "rf", "et", "mlp", "logistic", "lightgbm")


@tables_app.command()
def fit(
    data: Data,
    target: Target,
    confidence: Confidence = None,
    estimator: Estimator = "linear",
    out: Annotated[Path, typer.Option(help="The model file to write.")] = Path("model.tightset"),
    search: Search = "default",
    label_conditional: Annotated[
        bool, typer.Option("--label-conditional", help="Coverage for each label, not only on average.")
    ] = False,
    no_empty: Annotated[bool, typer.Option("--no-empty", help="An empty set gets the most conforming label.")] = False,
    baseline: Annotated[bool, typer.Option(help="Also fit the plain threshold, to compare with.")] = True,
    categorical: Categorical = None,
    drop: Drop = None,
    missing: Missing = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train a predictor on a table, and write it to a model file.

    A quarter of the rows (more if the level needs more) calibrates and does not train.

    Example: tightset fit train.csv --target species --confidence 0.9 --confidence 0.95 --out iris.tightset
    """
    from tightset.tables import fit_table

    levels = _levels(confidence)
    _may_write(out, data, model=True)
    table = _table(data, delimiter, encoding, missing)
    table.twice()
    how: dict[str, Any] = {"label_conditional": label_conditional, "allow_empty": not no_empty, "random_state": seed}
    predictor, plain = _predictors(estimator, levels, search, how)
    with reading(f"reading {Path(table.name).name}", table.n_bytes, passes=3) as progress:
        model = fit_table(
            table,
            target,
            predictor,
            plain if baseline else None,
            categorical=categorical or (),
            drop=drop or (),
            about={
                "data": Path(table.name).name,
                "sha256": _digest(table),
                "estimator": estimator,
                "baseline": _baseline_name(estimator),
            },
            progress=progress,
        )
    model.save(out)
    told = {
        "model": str(out),
        "labels": [str(label) for label in model.classes_],
        "levels": levels,
        "columns": [column.name for column in model.encoding.columns],
        "left_out": model.encoding.left_out,
        "summary": predictor.summary(),
        **model.about,
    }
    if as_json:
        typer.echo(json.dumps(told))
        return
    used, rows = len(model.encoding.columns), model.about
    typer.echo(
        f"{rows['rows']:,} rows, {used} column{'s' if used > 1 else ''}, {len(model.classes_)} labels; "
        f"{rows['trained']:,} rows train, {rows['calibrated']:,} calibrate."
    )
    for name, why in model.encoding.left_out.items():
        if name in (drop or []):
            continue
        typer.echo(f"left out {name!r}: {why}")
    typer.echo(predictor.summary())
    typer.echo(f"written: {out}; next: tightset evaluate {out} NEW.csv, tightset predict {out} NEW.csv")


@tables_app.command()
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; else standard output.", show_default=False)
    ] = None,
    confidence: Confidence = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="csv, jsonl, parquet or table. By default what the name of the file says; without one a table on a "
            "terminal, else csv.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column to copy to the output; may be repeated.", show_default=False)
    ] = None,
    lenient: Lenient = False,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Predict sets of labels, with their p-values, for the rows of a table; in bounded memory, however long it is.

    Example: tightset predict iris.tightset new.csv --out sets.csv --keep id
    """
    from tightset.predictions import FORMATS, first_of, predicted
    from tightset.storage import written_whole

    loaded, levels = _model(model, confidence)
    if out is not None:
        _may_write(out, data, str(model))
    form = _form(form, out, tuple(FORMATS))
    table = _table(data, delimiter, encoding, loaded.encoding.missing)
    with reading("predicting", table.n_bytes) as progress:

        def chunks() -> Iterator[Any]:
            for frame in table.chunks(text=loaded.encoding.text, progress=progress):
                _check_keep(keep or [], frame)
                yield predicted(loaded, frame, levels, keep or [], strict=not lenient)

        if form == "table":
            lines, more = first_of(chunks(), 20)
        else:
            with written_whole(out) if out else nullcontext(sys.stdout.buffer) as file:
                labels = [str(label) for label in loaded.classes_]
                with closing(FORMATS[form](file, keep or [], labels)) as writer:
                    for lines_of_chunk in chunks():
                        writer.write(lines_of_chunk)
    if form == "table":
        names = ("row", *(keep or []), "level", "size", "set (p-value)")
        cells = [
            (
                str(one.row),
                *("" if value is None else str(value) for value in one.kept),
                f"{one.confidence:g}",
                str(len(one.labels)),
                ", ".join(f"{label} ({p:.3g})" for label, p in zip(one.labels, one.p, strict=True)) or "(empty)",
            )
            for one in lines
        ]
        show(None, names, cells, left=range(len(names)))
        if more:
            typer.echo("The first 20 sets are shown; give --out FILE, or a pipe, for all.")
    elif out is not None:
        typer.echo(f"written: {out}", err=True)


@tables_app.command()
def evaluate(
    model: Model,
    data: Data,
    confidence: Confidence = None,
    by_label: Annotated[bool, typer.Option("--by-label", help="Coverage of each label as well.")] = False,
    lenient: Lenient = False,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    as_json: AsJson = False,
) -> None:
    """Measure coverage and size on labelled rows that the model has not seen, beside the baseline.

    Example: tightset evaluate iris.tightset test.csv
    """
    from tightset.comparing import compare, verdict

    loaded, levels = _model(model, confidence)
    X, y, frame = _rows(loaded, _table(data, delimiter, encoding, loaded.encoding.missing), lenient=lenient)
    y = loaded.labels(frame) if y is None else y  # says that there are none
    rows = loaded.predictor.evaluate(X, y, confidence=levels)
    if as_json:
        told: dict[str, Any] = {"predictor": rows}
        if loaded.baseline is not None:
            told["baseline"] = loaded.baseline.evaluate(X, y, confidence=levels)
        typer.echo(json.dumps(_without_nan(told)))
        return
    cells = [
        (
            f"{row['confidence']:g}",
            f"{row['coverage']:.3f}",
            f"{row['mean_size']:.3f}",
            f"{row['singleton']:.1%}",
            f"{row['empty']:.1%}",
            f"{row['worst_label_gap']:+.3f}",
        )
        for row in rows
    ]
    names: tuple[str, ...] = ("level", "coverage", "mean size", "one label", "empty", "worst label short by")
    show(f"{len(y):,} rows, {len(loaded.classes_)} labels", names, cells)
    if by_label:
        of_labels = [
            (str(label), *(f"{row[f'coverage_of_label_{label}']:.3f}" for row in rows), f"{int((y == label).sum()):,}")
            for label in loaded.classes_.tolist()
        ]
        names = ("label", *(f"{level:g}" for level in levels), "rows")
        show("Coverage of each label", names, of_labels, left=[0])
    if loaded.baseline is not None and confidence is None:
        compared = compare(loaded.baseline, loaded.predictor, X, y)
        show_comparison("Beside the plain threshold, on the same rows", "baseline", compared)
        typer.echo(verdict(compared))


@tables_app.command()
def explain(
    model: Model,
    data: Data,
    row: Annotated[int, typer.Option(min=1, help="Which row, from 1, the header not counted.", show_default=False)],
    confidence: Annotated[float | None, typer.Option(help="Level; by default the model's first.")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    as_json: AsJson = False,
) -> None:
    """Show why a row has its set: the p-values of all labels, and which columns move them.

    Example: tightset explain iris.tightset new.csv --row 3
    """
    import numpy as np

    from tightset.explaining import explain as explained

    loaded, (level, *_) = _model(model, None if confidence is None else [confidence])
    frame = _row(_table(data, delimiter, encoding, loaded.encoding.missing), row, loaded.encoding.text)
    found = explained(loaded, frame, level)
    names = loaded.classes_.astype(str)
    order = np.argsort(-found.p, kind="stable")
    if as_json:
        told = {
            "row": row,
            "confidence": found.confidence,
            "p": {names[at]: float(found.p[at]) for at in order},
            "set": [str(names[at]) for at in order if found.kept[at]],
            "columns": [
                {
                    "column": one.column,
                    "value": one.value,
                    "typical": one.typical,
                    "p": {str(name): float(p) for name, p in zip(names, one.p, strict=True)},
                    "set": names[one.kept].tolist(),
                }
                for one in found.influences
            ],
        }
        typer.echo(json.dumps(told))
        return
    cells = [
        (
            names[at],
            f"{found.p[at]:.4f}",
            "in the set" if found.kept[at] else "",
            f"above {found.joins_above(at):.2%}",
            "#" * round(30 * float(found.p[at])),
        )
        for at in order[:20]
    ]
    title = f"Row {row}: how well each label fits, beside {found.calibration_rows:,} calibration rows"
    shown = ("label", "p-value", f"at {100 * found.confidence:g} %", "is in sets", "")
    show(title, shown, cells, left=[0, 4])
    best = order[0]
    cells = [
        (one.column, one.value, one.typical, f"{one.p[best]:.4f}", ", ".join(names[one.kept]) or "(empty)")
        for one in found.influences[:8]
    ]
    columns = ("column", "value", "typical", f"p of {names[best]}", "set")
    show("If a column had its typical value, by how much that moves p-values", columns, cells, left=[0, 1, 2, 4])
    typer.echo(
        "A p-value is the share of calibration rows that fit their own label no better than this row fits this one; "
        "it is not the probability of the label."
    )


@tables_app.command()
def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    confidence: Annotated[
        list[float] | None, typer.Option(help="The level at which the page opens.", show_default=False)
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.", show_default=False)] = None,
    lenient: Lenient = False,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Write a page that a colleague without Python can open: validity, sizes, sets of rows, the baseline beside it.

    Example: tightset report iris.tightset test.csv --out report.html
    """
    from tightset import __version__
    from tightset.report import write_report

    loaded, levels = _model(model, confidence)
    _may_write(out, data, str(model))
    table = _table(data, delimiter, encoding, loaded.encoding.missing)
    X, y, frame = _rows(loaded, table, lenient=lenient)
    command = f"tightset report {model} {data} --out {out}"
    write_report(
        out,
        loaded.predictor,
        X,
        y,
        confidence=levels[0],
        baseline=loaded.baseline,
        baseline_name=f"{loaded.about['baseline']}, thresholded" if loaded.baseline is not None else "",
        frame=frame,
        title=title,
        about={
            "command": command,
            "rows": Path(table.name).name,
            "model": model.name,
            "model trained on": f"{loaded.about['data']} (SHA-256 {loaded.about['sha256'][:16]}...)",
            "estimator": loaded.about["estimator"],
            "columns left out": ", ".join(loaded.encoding.left_out) or "none",
            "tightset": __version__,
        },
    )
    typer.echo(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser")


@tables_app.command()
def compare(
    data: Data,
    target: Target,
    confidence: Confidence = None,
    estimator: Estimator = "linear",
    splits: Annotated[int, typer.Option(min=1, help="How often the rows are split anew.")] = 1,
    search: Search = "default",
    label_conditional: Annotated[
        bool, typer.Option("--label-conditional", help="Coverage for each label, not only on average.")
    ] = False,
    categorical: Categorical = None,
    drop: Drop = None,
    missing: Missing = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare SCPO with the plain threshold on a table: a quarter of the rows tests, the same rows for both.

    Example: tightset compare data.csv --target species --confidence 0.9 --confidence 0.99
    """
    from tightset.comparing import compare as compared
    from tightset.comparing import verdict
    from tightset.tables import fit_parts, prepare, split_rows

    levels = _levels(confidence or [0.8, 0.9, 0.95, 0.99])
    table = _table(data, delimiter, encoding, missing)
    table.twice()
    found = []
    for split in range(splits):
        how = {"label_conditional": label_conditional, "random_state": seed + split}
        scpo, plain = _predictors(estimator, levels, search, how)
        with reading(f"reading {Path(table.name).name}", table.n_bytes, passes=3) as progress:
            prepared = prepare(
                table,
                target,
                lambda codes: split_rows(codes, scpo, test=0.25),  # noqa: B023
                categorical=categorical or (),
                drop=drop or (),
                progress=progress,
            )
        fit_parts([plain, scpo], prepared)
        rows = compared(plain, scpo, *prepared.parts[2], seed=seed)
        found.append(rows)
        if not as_json:
            which = f", split {split + 1} of {splits}" if splits > 1 else ""
            n = len(prepared.parts[2][1])
            show_comparison(f"Prediction sets of {n:,} test rows{which}", _baseline_name(estimator).split()[0], rows)
            typer.echo(verdict(rows))
    if as_json:
        told = [{"split": at, **row._asdict()} for at, rows in enumerate(found) for row in rows]
        typer.echo(json.dumps(_without_nan(told)))
    elif splits > 1:
        cells = []
        for at, level in enumerate(levels):
            changes = [rows[at].change for rows in found]
            mean = sum(changes) / splits
            cells.append((f"{level:g}", f"{mean:+.1%}", f"{min(changes):+.1%} to {max(changes):+.1%}"))
        show(f"Change of size over {splits} splits", ("level", "mean", "from ... to"), cells)


# ---- what the commands share --------------------------------------------------------------------------------------


def _levels(confidence: list[float] | None) -> list[float]:
    for level in confidence or []:
        if not 0 < level < 1:
            hint = f"; {level:g} % is {level / 100:g}" if 1 <= level < 100 else ""
            raise typer.BadParameter(f"{level:g} is not between 0 and 1{hint}", param_hint="--confidence")
    return sorted(set(confidence or [0.95]))


def _table(data: str, delimiter: str | None, encoding: str, missing: Any) -> Any:
    from tightset.files import TableFile

    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter or "", delimiter)
    return TableFile(data, delimiter=delimiter, encoding=encoding, missing=missing or ())


def _may_write(out: Path, *inputs: str, model: bool = False) -> None:
    """Refuse, before any work, to write where something else would be lost, or where nothing can be written."""
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent}", param_hint="--out")
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder; give the name of a file", param_hint="--out")
    if any(name != "-" and Path(name).exists() and out.exists() and out.samefile(name) for name in inputs):
        raise typer.BadParameter(f"{out} is what is read; give another name", param_hint="--out")
    if model and out.exists() and out.stat().st_size and b"__metadata__" not in out.open("rb").read(64):
        raise typer.BadParameter(f"{out} exists and is not a model; give another name", param_hint="--out")


def _predictors(estimator: str, levels: list[float], search: str, how: dict[str, Any]) -> tuple[Any, Any]:
    """SCPO on an estimator, and the plain threshold on the same."""
    from tightset import ConformalClassifier, SCPOClassifier

    if search not in ("fast", "default", "thorough"):
        raise typer.BadParameter(f"{search!r} is none of fast, default, thorough", param_hint="--search")
    if estimator not in ("linear", "auto", *_BASES):
        raise typer.BadParameter(
            f"{estimator!r} is none of linear, auto, {', '.join(_BASES)}", param_hint="--estimator"
        )
    on: Any = None if estimator == "linear" else "auto" if estimator == "auto" else _base(estimator)
    plain = _base("hgb") if estimator == "auto" else on
    scpo = SCPOClassifier(levels, estimator=on, search=search, **how)
    return scpo, ConformalClassifier(plain, confidence=levels, **how)


def _baseline_name(estimator: str) -> str:
    return {"linear": "logistic regression", "auto": "hgb"}.get(estimator, estimator)


def _base(name: str) -> Any:
    if name == "lightgbm":
        try:
            from lightgbm import LGBMClassifier
        except ImportError:
            raise typer.BadParameter(
                'lightgbm is not installed: pip install "tightset[lightgbm]"', param_hint="--estimator"
            ) from None
        return LGBMClassifier(verbose=-1)
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    bases: dict[str, Any] = {
        "hgb": HistGradientBoostingClassifier(),
        "rf": RandomForestClassifier(),
        "et": ExtraTreesClassifier(),
        "mlp": make_pipeline(StandardScaler(), MLPClassifier(early_stopping=True)),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }
    return bases[name]


def _model(path: Path, confidence: list[float] | None) -> tuple[Any, list[float]]:
    from tightset.loading import load
    from tightset.packing import ModelFileError

    if not path.exists():
        raise ModelFileError(f"there is no file {path}")
    loaded = load(path)
    if not hasattr(loaded, "encoding"):
        raise ModelFileError(
            f"{path} holds a model of arrays, without the columns of a table; use tightset.load in Python, or "
            "`tightset fit` to make one of a table"
        )
    return loaded, [float(level) for level in loaded.levels_] if confidence is None else _levels(confidence)


def _rows(model: Any, table: Any, *, lenient: bool) -> tuple[Any, Any, Any]:
    """Encoded rows, their labels (None if there is no column of them), and the rows as they were."""
    import numpy as np
    import pandas as pd

    from tightset.files import TableError

    X, y, frames = [], [], []
    with reading(f"reading {Path(table.name).name}", table.n_bytes) as progress:
        for frame in table.chunks(text=[*model.encoding.text, model.target], progress=progress):
            X.append(model.encode(frame, strict=not lenient))
            frames.append(frame)
            if model.target in frame.columns:
                y.append(model.labels(frame))
    if not sum(map(len, X)):
        raise TableError(f"{table.name} has a header but no rows")
    return np.concatenate(X), np.concatenate(y) if y else None, pd.concat(frames)


def _row(table: Any, row: int, text: list[str]) -> Any:
    from tightset.files import TableError

    seen = 0
    for frame in table.chunks(text=text):
        if row - 1 in frame.index:
            return frame.loc[[row - 1]]
        seen += len(frame)
    raise TableError(f"there is no row {row}; {table.name} has {seen}")


def _form(form: str | None, out: Path | None, known: tuple[str, ...]) -> str:
    if form is None:
        if out is None:
            return "table" if sys.stdout.isatty() else "csv"
        form = {"json": "jsonl", "ndjson": "jsonl", "pq": "parquet"}.get(out.suffix[1:], out.suffix[1:])
        if form not in known:
            raise typer.BadParameter(
                f"{out.name} does not end in .csv, .jsonl or .parquet: give --format", param_hint="--out"
            )
    if form not in (*known, "table"):
        raise typer.BadParameter(f"{form!r} is none of {', '.join(known)}, table", param_hint="--format")
    if form == "table" and out is not None:
        raise typer.BadParameter("a table is to look at; give csv, jsonl or parquet for a file", param_hint="--format")
    return form


def _check_keep(keep: list[str], frame: Any) -> None:
    for name in keep:
        if name not in frame.columns:
            raise typer.BadParameter(f"there is no column {name!r}", param_hint="--keep")


def _digest(table: Any) -> str:
    path = table.path or Path(table._spool.name)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_nan(value: Any) -> Any:
    """The same with null for NaN, which is not JSON."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and value != value else value
