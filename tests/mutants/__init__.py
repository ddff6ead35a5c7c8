"""Planted faults: each must be noticed by whom it names."""
