"""The command that exports a model to ONNX: `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tightset.cli.options import Confidence, Model, check_out, levels_of, load_model
from tightset.cli.show import say, show

__all__ = ["exporting_app"]

exporting_app = typer.Typer()

_OUTPUTS = ("sets", "p-values", "scores")
_MOST_SHOWN = 20
_CAN = "What `tightset fit` trains with --estimator linear, logistic, hgb, rf, et or mlp can be exported"


@exporting_app.command()
def export(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The ONNX file to write.")] = Path("model.onnx"),
    output: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="sets (the default), p-values or scores; may be repeated.", show_default=False
        ),
    ] = None,
    confidence: Confidence = None,
) -> None:
    """Write a model as ONNX, for programs without Python: raw columns in, sets, p-values or scores out.

    Example: tightset export iris.tightset --out iris.onnx --output sets --output p-values
    """
    levels = None if confidence is None else levels_of(confidence)
    for kind in output or []:
        if kind not in _OUTPUTS:
            raise typer.BadParameter(f"{kind!r} is none of {', '.join(_OUTPUTS)}", param_hint="--output")
    check_out(out, str(model))
    loaded = load_model(model)

    from tightset.export import ExportError, to_onnx

    try:
        proto = to_onnx(loaded, out, output=output or ["sets"], confidence=levels)
    except ExportError as error:
        raise ExportError(f"{error}. {_CAN}") from error
    about = {one.key: json.loads(one.value) for one in proto.metadata_props}
    inputs = _inputs(proto, about)
    show(None, ("input", "type", "shape", "holds"), inputs[:_MOST_SHOWN], left=range(4))
    if len(inputs) > _MOST_SHOWN:
        say(f"and {len(inputs) - _MOST_SHOWN} more inputs; the file's metadata list all of them.\n")
    show(None, ("output", "type", "shape", "holds"), _outputs(proto, about), left=range(4))
    say(
        f"written: {out}. Run it with onnxruntime; in Python, with x a dict of arrays by input name: "
        f"onnxruntime.InferenceSession({str(out)!r}).run(None, x)"
    )


def _inputs(proto: Any, about: dict[str, Any]) -> list[list[str]]:
    told = about.get("inputs", {})
    return [[*_end(one), _holds(told.get(one.name))] for one in proto.graph.input]


def _holds(column: dict[str, Any] | None) -> str:
    if column is None:
        return "rows"
    if column["kind"] == "number":
        return "a number; NaN if it is missing"
    return f"a text; {column['missing'][0] or 'empty'} if it is missing"


def _outputs(proto: Any, about: dict[str, Any]) -> list[list[str]]:
    labels = [str(label) for label in about["classes"]]
    shown = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
    rows = []
    for one in proto.graph.output:
        level = about["outputs"][one.name]["confidence"]
        at = "" if level is None else f" at {100 * level:g}%"
        rows.append([*_end(one), f"{about['outputs'][one.name]['kind']}{at}; a column for each of {shown}"])
    return rows


def _end(one: Any) -> tuple[str, str, str]:
    """Name, type and shape of an input or output."""
    from onnx import TensorProto

    kind = one.type.tensor_type
    sizes = [str(size.dim_param or size.dim_value) for size in kind.shape.dim]
    return one.name, TensorProto.DataType.Name(kind.elem_type).lower(), f"({', '.join(sizes)})"
