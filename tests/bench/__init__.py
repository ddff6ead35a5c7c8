"""Timings. Nothing here is run by the ordinary test command."""
