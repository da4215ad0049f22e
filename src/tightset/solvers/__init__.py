"""Descent: one loop for many candidates at once; knows neither measures nor objectives."""
