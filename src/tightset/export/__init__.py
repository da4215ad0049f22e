"""Export to ONNX: scores, p-values or sets from raw features, for servers without Python.

`graph` writes nodes, `linear` scales and adds up, `bases` knows other people's classifiers, `models` the trained
measures, `tables` the columns of a table, `onnx` the whole.
"""

from __future__ import annotations

from tightset.export.bases import ExportError
from tightset.export.onnx import add_outputs, to_onnx

__all__ = ["ExportError", "add_outputs", "to_onnx"]
