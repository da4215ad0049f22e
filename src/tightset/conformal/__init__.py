"""Conformal prediction: calibration, scores and metrics; independent of training."""
