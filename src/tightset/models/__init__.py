"""Trained measures on raw rows: scaled and unfolded columns, ensembles, other people's classifiers, trees."""
