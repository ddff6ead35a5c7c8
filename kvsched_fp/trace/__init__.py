"""Portable traces."""
