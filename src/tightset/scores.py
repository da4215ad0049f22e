"""Conformity scores that are made of probabilities: the public names of `tightset.conformal.scores`."""

from tightset.conformal.ordinal import OrdinalAPS
from tightset.conformal.priced import PerCost
from tightset.conformal.scores import APS, LAC, RAPS, SAPS, Hull, Margin, TopK

__all__ = ["APS", "LAC", "RAPS", "SAPS", "Hull", "Margin", "OrdinalAPS", "PerCost", "TopK"]
