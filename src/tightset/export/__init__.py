"""Export to ONNX: scores, p-values or sets from raw features, for servers without Python.

`graph` writes nodes, `bases` knows other people's classifiers, `models` the trained measures, `onnx` the whole.
"""

from __future__ import annotations

from tightset.export.onnx import add_outputs, to_onnx

__all__ = ["add_outputs", "to_onnx"]
