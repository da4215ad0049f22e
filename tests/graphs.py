"""Formulas that were written as nodes of a graph, computed."""

import onnxruntime

from tightset.export.graph import Graph


def run(write, *arrays):
    """What ``write(graph, *tensors)`` gives for arrays of float64, computed by onnxruntime."""
    names = [f"in_{at}" for at in range(len(arrays))]
    graph = Graph(names)
    outputs = [graph.rename(one, f"out_{at}") for at, one in enumerate(write(graph, *names))]
    inputs = [(name, "DOUBLE", [None, one.shape[1]]) for name, one in zip(names, arrays, strict=True)]
    model = graph.finish(inputs, [(name, "DOUBLE", [None, None]) for name in outputs], {})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, arrays, strict=True)))
