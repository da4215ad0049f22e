"""Tables of any kind: files and data frames in, sets of labels out."""

from tightset.tables.files import TableFile
from tightset.tables.predictor import TablePredictor, fit_table

__all__ = ["TableFile", "TablePredictor", "fit_table"]
