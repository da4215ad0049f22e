"""Conformity measures ``A(x, y; theta)`` and their pull-backs ``dL/dA -> dL/dtheta``.

Conventions
-----------
X : (k, m), the last column the constant 1; theta : (B, m, D); A, dA : (B, k, C). Larger is more typical.
``D`` is the number of columns of parameters: ``C``, or ``2 C`` where a measure has a second matrix.
`forward` returns the scores and what `backward` needs to know of them; neither changes its inputs, except that
`backward` uses up what `forward` returned and ``dA``.
"""

from __future__ import annotations

from tightset.measures.contract import Measure
from tightset.measures.linear import Linear
from tightset.measures.softmax import Softmax
from tightset.measures.two_matrix import TwoMatrix

__all__ = ["MEASURES", "Linear", "Measure", "Softmax", "TwoMatrix"]

MEASURES: dict[str, Measure] = {one.name: one for one in (Linear(), Softmax(), TwoMatrix())}
