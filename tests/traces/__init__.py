"""Traces recorded from the real scheduler, and the script that records them."""
