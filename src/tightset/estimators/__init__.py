"""The estimators: checks, training, calibration, answers."""
