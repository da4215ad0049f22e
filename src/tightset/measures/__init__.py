"""Conformity measures and their pull-backs."""
