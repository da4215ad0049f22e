"""Experiments and the pages that they write: the paper reproduced, set sizes, other libraries."""
