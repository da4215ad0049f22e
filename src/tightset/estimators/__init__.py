"""The estimators: checks, training, calibration, prediction."""
