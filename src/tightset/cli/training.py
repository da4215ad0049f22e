"""Commands that train on a table: `fit` and `compare`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightset.cli.about import BASELINE, DATA, DATA_HASH, ESTIMATOR, FITTED_BY, HELD_OUT_HASH, uses_of_rows
from tightset.cli.options import (
    AsJson,
    Assurance,
    ByLabel,
    Categorical,
    ConfidencesToCompare,
    ConfidenceToFit,
    Cost,
    Data,
    Decimal,
    Delimiter,
    Drop,
    DropUnlabelled,
    Encoding,
    Estimator,
    Group,
    Minimise,
    Missing,
    Ordered,
    RareLabels,
    RareRows,
    Search,
    Seed,
    Target,
    Thousands,
    check_ordered,
    check_out,
    check_rare,
    digest,
    levels_of,
    table_of,
    without_nan,
)
from tightset.cli.predictors import baseline_name, in_order, predictors, price
from tightset.cli.short import short_on_calibration_rows, tell_short
from tightset.cli.show import ONE_SPLIT, counted, reader, say, say_json, show_comparison, working

if TYPE_CHECKING:
    from tightset.tables.predictor import TablePredictor

__all__ = ["training_app"]

training_app = typer.Typer()

_TESTED = 0.25  # of the rows, in compare
_WORK = {"fast": 3, "default": 8, "thorough": 60}  # a level takes about so long, and reading 0.5


@training_app.command()
def fit(
    data: Data,
    target: Target,
    confidence: ConfidenceToFit = None,
    estimator: Estimator = "linear",
    out: Annotated[Path, typer.Option(metavar="FILE", help="The model file to write.")] = Path("model.tightset"),
    test: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Set this share of the rows aside for testing, and write them to OUT-test.csv (or .parquet).",
        ),
    ] = 0.0,
    search: Search = "default",
    by_label: ByLabel = False,
    group: Group = None,
    cost: Cost = None,
    ordered: Ordered = None,
    minimise: Minimise = "size",
    assurance: Assurance = None,
    nested: Annotated[
        bool, typer.Option("--nested", help="Use one measure for all levels, so that sets grow with the level.")
    ] = False,
    no_empty: Annotated[
        bool, typer.Option("--no-empty", help="Put the label with the largest p-value into empty sets.")
    ] = False,
    baseline: Annotated[bool, typer.Option(help="Also fit the plain threshold, for comparison.")] = True,
    rare_labels: RareLabels = "keep",
    rare_rows: RareRows = None,
    categorical: Categorical = None,
    drop: Drop = None,
    drop_unlabelled: DropUnlabelled = False,
    missing: Missing = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train a predictor on a table, and write it to a model file.

    A quarter of the rows (more if the level needs more) calibrates and does not train.

    Example: tightset fit flowers.csv --target species --confidence 0.9 --confidence 0.95 --test 0.25
    """
    from tightset.tables.columns import Date
    from tightset.tables.costs import read_costs
    from tightset.tables.fitting import fit_prepared
    from tightset.tables.groups import Grouped
    from tightset.tables.preparing import CALIBRATE, HELD_OUT, TEST, prepare, split_rows
    from tightset.tables.target import Rare

    levels = levels_of(confidence)
    check_rare(rare_labels)
    order = check_ordered(ordered, by_label=by_label, cost=cost)
    check_out(out, data, model=True)
    if not 0 <= test < 0.9:
        raise typer.BadParameter(f"{test:g} is not a share below 0.9, such as 0.25", param_hint="--test")
    table = table_of(data, (delimiter, encoding, decimal, thousands), missing=missing)
    table.make_rereadable()
    rest = out.with_name(f"{out.stem}-test.{'parquet' if table.is_parquet else 'csv'}")
    before = _about_before(out) if rest.exists() else {}
    is_of_before = bool(before) and digest(rest) == before.get(HELD_OUT_HASH)
    if is_of_before and not test and digest(table.where) in (before.get(DATA_HASH), before[HELD_OUT_HASH]):
        say(f"warning: the rows in {rest} are in {table.name} as well, and now train: do not test with them", err=True)
    if test and rest.exists() and not is_of_before:
        raise typer.BadParameter(
            f"{rest} exists, and was not written by the last fit; move it, or give another --out", param_hint="--test"
        )
    how: dict[str, Any] = {"label_conditional": by_label, "allow_empty": not no_empty, "random_state": seed}
    how |= {"assurance": assurance, "inefficiency": minimise}
    predictor, plain = predictors(estimator, levels, search, how, nested=nested)
    costs = None if cost is None else read_costs(cost)

    grouped = Grouped(table, group, target, categorical or ())

    def assign(codes: Any) -> Any:
        part = split_rows(codes, predictor, test=test, groups=grouped.groups)
        part[part == TEST] = HELD_OUT  # they are written as they stand, and not encoded
        return part

    with working() as whole:
        read, train, write = whole.split(0.5, _WORK[search] * len(levels), 0.5)
        prepared = prepare(
            grouped,
            target,
            assign,
            categorical=categorical or (),
            drop=[*(drop or ()), *grouped.columns],
            rare=Rare.of(predictor, rare_labels, rare_rows)._replace(drop_unlabelled=drop_unlabelled),
            progress=reader(read, f"reading {Path(table.name).name}", table.n_bytes, passes=3),
        )
        about = {
            FITTED_BY: shlex.join(["tightset", *sys.argv[1:]]),
            DATA: Path(table.name).name,
            DATA_HASH: digest(table.where),
            ESTIMATOR: estimator,
            BASELINE: baseline_name(estimator, costs, order),
            **price(costs, prepared.labelled, predictor, plain),
            **in_order(order, prepared.labelled, predictor, plain),
        }
        with train.watching():
            model = fit_prepared(prepared, target, predictor, plain if baseline else None, about, grouped)
        progress = reader(write, f"writing {out.name}", table.n_bytes)
        held_out = prepared.part == HELD_OUT
        if test:
            _write_both(out, rest, table, model, held_out, progress)
        else:
            model.save(out)
    short = short_on_calibration_rows(
        predictor, levels, prepared.parts[CALIBRATE], grouped.of(prepared.part == CALIBRATE)
    )
    told = {
        "model": str(out),
        "levels": levels,
        "columns": [column.name for column in model.encoding.columns],
        "left_out": model.encoding.left_out,
        "summary": predictor.summary(),
        "short_labels_on_calibration_rows": [one.as_dicts(model.classes_.tolist()) for one in short],
        **model.about,
    }
    if as_json:
        say_json(told)
        return
    used, rows = len(model.encoding.columns), model.about
    say(
        f"{rows['rows']:,} rows, {used} column{'s' if used > 1 else ''}, {len(model.classes_)} labels; "
        f"{uses_of_rows(rows, ' rows')}."
    )
    say(f"labels: {counted(rows['labels'], 12)}")
    if model.merged:
        say(rows["rare labels"])
    for column in model.encoding.columns:
        if isinstance(column, Date):
            say(f"{column.name!r} is read as dates: {', '.join(column.names)}")
    for name, why in model.encoding.left_out.items():
        if name in (drop or []):
            continue
        say(f"left out {name!r}: {why}")
    say(predictor.summary())
    full = [f"{level:g}" for level in levels if predictor.fitted_.too_few_rows(level)]
    if full:
        say(f"At {', '.join(full)} every set holds all labels for want of calibration rows, whatever training found.")
    if by_label:
        sizes = ", ".join(f"{size:.3g} at {level}" for level, size in rows["mean size by label"].items())
        say(f"With coverage for each label, labels per set on the {rows['calibrated']:,} calibration rows: {sizes}.")
    tell_short(levels, short, model.classes_.tolist(), kind="calibration ")
    new = rest if test else "NEW.csv"
    say(f"written: {out}" + (f", and {rows['tested']:,} rows set aside for testing: {rest}" if test else ""))
    say(f"next: tightset evaluate {out} {new}, or tightset report {out} {new}")


@training_app.command()
def compare(
    data: Data,
    target: Target,
    confidence: ConfidencesToCompare = None,
    estimator: Estimator = "linear",
    splits: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Number of random splits.")] = 5,
    search: Search = "default",
    by_label: ByLabel = False,
    group: Group = None,
    cost: Cost = None,
    ordered: Ordered = None,
    minimise: Minimise = "size",
    assurance: Assurance = None,
    rare_labels: RareLabels = "keep",
    rare_rows: RareRows = None,
    categorical: Categorical = None,
    drop: Drop = None,
    drop_unlabelled: DropUnlabelled = False,
    missing: Missing = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare SCPO with the plain threshold on a table: a quarter of the rows tests, the same rows for both.

    Example: tightset compare data.csv --target species --confidence 0.9 --confidence 0.99
    """
    from tightset.estimators.comparing import compare as compared
    from tightset.estimators.comparing import over_splits, short_over_splits, verdict
    from tightset.tables.costs import read_costs
    from tightset.tables.groups import Grouped
    from tightset.tables.preparing import TEST, fit_parts, prepare, split_rows
    from tightset.tables.target import Rare

    levels = levels_of(confidence or [0.8, 0.9, 0.95, 0.99])
    check_rare(rare_labels)
    order = check_ordered(ordered, by_label=by_label, cost=cost)
    table = table_of(data, (delimiter, encoding, decimal, thousands), missing=missing)
    table.make_rereadable()
    costs = None if cost is None else read_costs(cost)
    grouped = Grouped(table, group, target, categorical or ())
    found, tested = [], []
    with working() as whole:
        for split, part in enumerate(whole.split(*[1] * splits)):
            at = f"split {split + 1} of {splits}: "
            how: dict[str, Any] = {"label_conditional": by_label, "assurance": assurance, "inefficiency": minimise}
            how["random_state"] = (seed + split) % 2**32
            scpo, plain = predictors(estimator, levels, search, how)
            read, train = part.split(0.5, _WORK[search] * len(levels), before=at if splits > 1 else "")
            prepared = prepare(
                grouped,
                target,
                lambda codes: split_rows(codes, scpo, test=_TESTED, groups=grouped.groups),  # noqa: B023
                categorical=categorical or (),
                drop=[*(drop or ()), *grouped.columns],
                rare=Rare.of(scpo, rare_labels, rare_rows)._replace(drop_unlabelled=drop_unlabelled),
                progress=reader(read, f"reading {Path(table.name).name}", table.n_bytes, passes=3),
            )
            price(costs, prepared.labelled, scpo, plain)
            in_order(order, prepared.labelled, scpo, plain)
            with train.watching():
                fit_parts([plain, scpo], prepared, grouped.groups)
            of_tested = grouped.of(prepared.part == TEST)
            rows = compared(plain, scpo, *prepared.parts[TEST], groups=of_tested, seed=seed)
            found.append(rows)
            tested.append(prepared.parts[2][1])
            if sys.stderr.isatty():
                say(f"{at}{verdict(rows)}", err=True)
    n, name = len(prepared.parts[2][1]), baseline_name(estimator).split()[0]
    if prepared.labelled.merged and not as_json:
        say(str(prepared.labelled.told))
    names = prepared.labelled.classes.tolist()
    short = short_over_splits(found, tested, names, scpo.fitted_.rows_of_labels(), _TESTED)
    if as_json:
        told = [
            {"split": at, **row._asdict(), "short_labels_of_all_splits": one.as_dicts(names)}
            for at, rows in enumerate(found)
            for row, one in zip(rows, short, strict=True)
        ]
        say_json(without_nan(told))
    elif splits == 1:
        show_comparison(f"Prediction sets of {n:,} test rows", name, found[0])
        say(f"{verdict(found[0])}\n{ONE_SPLIT}, which --splits 5 takes into account.")
    else:
        rows = over_splits(found, _TESTED)
        show_comparison(f"Prediction sets of {n:,} test rows, mean over {splits} splits", name, rows)
        say(f"{verdict(rows)} The interval is for the mean, from the variation between splits.")
    if not as_json:
        tell_short(levels, short, names, by_label=by_label)


def _write_both(out: Path, rest: Path, table: Any, model: TablePredictor, chosen: Any, progress: Any) -> None:
    """The model, and the rows that are ``chosen`` as they stand in the table; the model knows them again."""
    from tightset.storage.file import written_whole
    from tightset.tables.set_aside import write_rows

    with written_whole(rest) as file:
        columns = [*(column.name for column in model.encoding.columns), *model.encoding.left_out]
        model.about[HELD_OUT_HASH] = write_rows(
            file, table, chosen, columns=columns, label=model.target, progress=progress
        )
        model.save(out)


def _about_before(out: Path) -> dict[str, Any]:
    """What the model that is there says of where it comes from; nothing if there is none."""
    from tightset.exceptions import ModelFileError
    from tightset.storage.file import open_model

    try:
        return dict(open_model(out).about["about"])
    except (OSError, ModelFileError, KeyError):
        return {}
