"""Tables of any kind: files and data frames in, sets of labels out."""

from tightset.tables.files import TableFile
from tightset.tables.fitting import fit_table
from tightset.tables.predictor import TablePredictor

__all__ = ["TableFile", "TablePredictor", "fit_table"]
