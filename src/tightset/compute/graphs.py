"""Formulas as nodes of a graph: what measures and scores use to say how they are exported.

A graph is written by `tightset.export.graph.Graph`; tensors are known by their names. Only this much of it is needed.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["GraphWriter", "in_order", "larger_in_row", "log_sum"]


class GraphWriter(Protocol):
    """Adds nodes of ONNX to a graph, and names what they give."""

    def add(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """The output of a new node; inputs are names, or numbers and arrays that become constants."""
        ...

    def reduce(self, op: str, tensor: str) -> str:
        """``ReduceSum``, ``ReduceMax`` and the like over the labels, an axis of one left."""
        ...

    def columns(self, tensor: str, at: Any) -> str:
        """Some of the columns."""
        ...

    def cast(self, tensor: str, to: str) -> str: ...


def log_sum(graph: GraphWriter, Z: str) -> tuple[str, str]:
    """``log sum_c exp Z_c`` of every row in two terms: the largest, and the rest."""
    top = graph.reduce("ReduceMax", Z)
    return top, graph.add("Log", graph.reduce("ReduceSum", graph.add("Exp", graph.add("Sub", Z, top))))


def in_order(graph: GraphWriter, P: str, k: int) -> str:
    """The ``k`` largest of each row, the largest first."""
    return graph.add("TopK", P, [k], axis=1)


def larger_in_row(graph: GraphWriter, ordered: str, P: str, C: int, relation: str) -> str:
    """How many of its row are greater than each (or as great), by binary search in the row: int ``(n, C)``."""
    found = graph.add("Mul", graph.cast(graph.add("IsNaN", P), "INT64"), 0)
    for step in [2**at for at in reversed(range(C.bit_length()))]:
        at = graph.add("Add", found, step - 1)
        probe = graph.add("GatherElements", ordered, graph.add("Min", at, C - 1), axis=1)
        further = graph.add("And", graph.add(relation, probe, P), graph.add("Less", at, C))
        found = graph.add("Add", found, graph.add("Where", further, step, 0))
    return found
