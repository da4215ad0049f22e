"""An ONNX graph, written node by node, and the two searches of a conformal predictor as nodes.

Conventions
-----------
A tensor is its name. Numbers are float64 all the way, whatever the rows are given in. Nodes that no output needs are
left out when the graph is finished.

Scores of the graph differ from those of the library in their last digits, since products are rounded in another order,
and a row that calibrated must still tie with itself. The library compares scores of 40 binary digits; the graph
compares with what `least_equal` gives, a little below a calibration score.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tightset.compute.identity import Same

__all__ = ["OPSET", "Graph", "add_counts", "add_first_largest", "add_kept", "in_double", "least_equal", "unfused"]

OPSET = 18
_TREES_OPSET = 5  # of ai.onnx.ml: the first with trees in float64; onnxruntime has it since 1.21
_IR_VERSION = 10
_DIGITS = {np.dtype(np.float64): 40, np.dtype(np.float32): 19}  # see arrays.settle

_End = tuple[str, str, list[Any]]  # name, type and shape of an input or output


class Graph:
    """Nodes in the making; ``known`` holds what was added already, by whatever tells it apart.

    ``single`` has, of tensors ``(n, p)`` in float64, which columns the fitted model has in float32; ``errors`` by how
    much sums may be rounded otherwise than by the fitted model, as tensors ``(n, C)`` or ``(n, 1)``. ``taken`` are
    names of inputs, which no tensor may have: columns are named by other people.

    >>> graph = Graph()
    >>> graph.add("Mul", graph.add("Abs", "X"), 2.0)
    'Mul_3'
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._taken = tuple(taken)
        self.known: dict[Any, str] = {}
        self.single: dict[str, np.ndarray] = {}
        self.errors: dict[str, str] = {}
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._count = 0

    def name(self, stem: str) -> str:
        """A new one."""
        self._count += 1
        made = f"{stem}_{self._count}"
        return self.name(stem) if any(one.startswith(made) for one in self._taken) else made

    def remember(self, thing: Any, X: str, tensor: str) -> str:
        """Keep the tensor that an object makes of X, for `recall`."""
        self.known[Same(thing), X] = tensor
        return tensor

    def recall(self, thing: Any, X: str) -> str | None:
        return self.known.get((Same(thing), X))

    def add(self, op: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        """The output of a new node; inputs are names, or numbers and arrays that become constants."""
        from onnx import helper

        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        output = self.name(op)
        more = [f"{output}_at"] if op == "TopK" else []
        self._nodes.append(helper.make_node(op, names, [output, *more], domain=domain, **attributes))
        return output

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        array = array.astype(np.int64) if array.dtype.kind in "iu" else array
        key = ("constant", array.dtype.str, array.shape, array.tobytes() if array.size < 64 else Same(value))
        if key not in self.known:
            name = self.known[key] = self.name("constant")
            self._constants[name] = numpy_helper.from_array(array, name)
        return self.known[key]

    def rename(self, tensor: str, name: str) -> str:
        """Give a tensor a name that people see, with _ behind it if an input has that name."""
        while name in self._taken:
            name += "_"
        self.add("Identity", tensor)
        self._nodes[-1].output[0] = name
        return name

    def cast(self, tensor: str, to: str) -> str:
        """As ``"DOUBLE"``, ``"FLOAT"``, ``"INT64"`` or ``"BOOL"``."""
        from onnx import TensorProto

        return self.add("Cast", tensor, to=TensorProto.DataType.Value(to))

    def columns(self, tensor: str, at: Any) -> str:
        made = self.add("Gather", tensor, np.asarray(at, dtype=np.int64), axis=1)
        if tensor in self.single:
            self.single[made] = self.single[tensor][np.asarray(at, dtype=np.int64)]
        return made

    def is_single(self, tensor: str) -> bool:
        """Whether the fitted model computes with these columns in float32: all of them are."""
        return tensor in self.single and bool(self.single[tensor].all())

    def rounded_as(self, given: str, tensor: str) -> str:
        """What was made of given columns, as many of them, one by one: in float32 where they are."""
        if not self.is_single(given):
            return tensor
        made = self.cast(self.cast(tensor, "FLOAT"), "DOUBLE")
        self.single[made] = self.single[given]
        return made

    def with_error(self, tensor: str, error: str | None) -> str:
        """The same tensor, its error noted if there is one."""
        if error is not None:
            self.errors[tensor] = error
        return tensor

    def reduce(self, op: str, tensor: str) -> str:
        """``ReduceSum``, ``ReduceMax`` and the like over the labels, an axis of one left."""
        return self.add(op, tensor, np.array([1]), keepdims=1)

    def inline(self, model: Any, X: str, output: str) -> str:
        """The nodes of another ONNX model of one input, fed with ``X``; the tensor that it calls ``output``."""
        from onnx import compose

        prefix = self.name("part") + "_"
        inner = compose.add_prefix(model, prefix).graph
        self._constants |= {one.name: one for one in inner.initializer}
        self.rename(X, inner.input[0].name)
        self._nodes.extend(inner.node)
        return prefix + output

    def finish(
        self,
        inputs: Sequence[tuple[str, str, Any]],
        outputs: Sequence[tuple[str, str, Any]],
        metadata: Mapping[str, Any],
    ) -> Any:
        """The model, checked, with metadata as JSON."""
        import onnx
        from onnx import TensorProto, helper

        first, last = (
            [helper.make_tensor_value_info(name, TensorProto.DataType.Value(kind), shape) for name, kind, shape in ends]
            for ends in (inputs, outputs)
        )
        nodes = _needed(self._nodes, {name for name, *_ in outputs})
        used = {name for node in nodes for name in _read_by(node)}
        constants = [tensor for name, tensor in self._constants.items() if name in used]
        graph = helper.make_graph(nodes, "tightset", first, last, initializer=constants)
        trees = any(node.op_type == "TreeEnsemble" for node in nodes)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", _TREES_OPSET if trees else 3)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="tightset")
        helper.set_model_props(model, {key: json.dumps(value, default=str) for key, value in metadata.items()})
        onnx.checker.check_model(model, full_check=True)
        return model


def unfused(model: Any) -> Any:
    """The same with Gemm for MatMul: a number beside a MatMul onnxruntime draws into it, as an ``alpha`` in float32."""
    from onnx import TensorProto, shape_inference

    inferred = shape_inference.infer_shapes(model).graph
    types = {one.name: one.type.tensor_type for one in [*inferred.value_info, *inferred.output]}
    for node in model.graph.node:
        made = types.get(node.output[0])
        if node.op_type == "MatMul" and made and made.elem_type == TensorProto.DOUBLE and len(made.shape.dim) == 2:
            node.op_type = "Gemm"
    return model


def in_double(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _read_by(node: Any) -> list[str]:
    """The tensors that a node reads, those that a graph inside it takes from outside among them."""
    inside = [name for attribute in node.attribute for inner in attribute.g.node for name in _read_by(inner)]
    return [*node.input, *inside]


def _needed(nodes: list[Any], outputs: set[str]) -> list[Any]:
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(_read_by(node))
    return kept[::-1]


def least_equal(alphas: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """For each calibration score the least score that counts as equal to it, in float64.

    That is the least that `arrays.settle` rounds to it, and ``slack`` less, by which scores may be rounded otherwise
    here. No label is moved but one whose score is as near as that and not equal.

    >>> (1 - least_equal(np.array([1.0]), np.array([2.0**-44]))) * 2**44
    array([5.])
    """
    exact = np.asarray(alphas, dtype=np.float64)
    finite = np.where(np.isfinite(exact), exact, 0.0)
    mantissa, exponent = np.frexp(finite)
    # Digits are half as large just below a power of two, and just below zero there are none.
    half_a_digit = np.ldexp(
        np.sign(np.abs(mantissa)), exponent - _DIGITS[alphas.dtype] - np.where(mantissa == 0.5, 3, 2)
    )
    least = exact - half_a_digit
    least = np.where(finite < 0, np.nextafter(least, np.inf), least)  # halves are rounded away from zero
    return np.asarray(least - slack)


def add_kept(graph: Graph, scores: str, thresholds: np.ndarray) -> str:
    """``A >= t`` for thresholds ``(1,)`` or ``(C,)``. A score that is NaN excludes nothing."""
    return graph.add("Not", graph.add("Less", scores, thresholds))


def add_counts(graph: Graph, scores: str, alphas: Sequence[np.ndarray]) -> str:
    """How many sorted alphas are at most each score ``(n, C)``: of one array, or of one for each label.

    A binary search with its steps written out, since ONNX has none: each looks one alpha up for every score, so there
    is no array of calibration rows x new rows. What is NaN is above all.
    """
    sizes = np.array([len(one) for one in alphas])
    steps = max(int(sizes.max()).bit_length(), 1)
    table = np.full((len(alphas), 2**steps - 1), np.inf)
    for row, one in zip(table, alphas, strict=True):
        row[: len(one)] = one
    first = np.arange(len(alphas)) * table.shape[1]
    flat = table.ravel()
    found = ""
    for step in [2**at for at in reversed(range(steps))]:
        if found:
            probe = graph.add("Gather", flat, graph.add("Add", found, first + step - 1))
        else:
            probe = graph.constant(table[:, step - 1])
        forward = graph.add("Where", graph.add("Less", scores, probe), 0, step)
        found = graph.add("Add", found, forward) if found else forward
    return graph.add("Min", found, sizes)


def add_first_largest(graph: Graph, scores: str, slack: float) -> str:
    """Bool ``(n, C)``: the label of the largest score of a row, the first of those that tie."""
    largest = graph.reduce("ReduceMax", scores)
    near = graph.add("Add", graph.add("Mul", graph.add("Abs", largest), 2.0**-41), slack)
    ties = graph.cast(graph.add("GreaterOrEqual", scores, graph.add("Sub", largest, near)), "INT64")
    return graph.add("Equal", graph.add("Mul", graph.add("CumSum", ties, 1), ties), 1)
