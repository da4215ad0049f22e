"""The surrogate of a conformal predictor: scores and labels in, loss and ``dL/dA`` out.

The objective lives in score space and is made of sums over samples. A block of rows yields the sums and two raw
derivatives; only when all sums are known does the loss, and with it the weight of each derivative, follow:

    dL/dA_iy = a * dF_iy + b * dV_i * [y = y_i],        a, b one number per candidate.

Both derivatives are pulled back block by block before ``a`` and ``b`` are known, so one pass over the rows gives
the exact gradient for any division into blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from tightset.objectives.contract import Objective, SummedObjective
from tightset.objectives.profiled import Profiled

__all__ = ["OBJECTIVES", "Objective", "SummedObjective"]

# What the paths of a search may descend, by name: called with eps (B,), gamma (B,), f and a tolerance.
OBJECTIVES: dict[str, Callable[..., SummedObjective]] = {"profiled": Profiled}
