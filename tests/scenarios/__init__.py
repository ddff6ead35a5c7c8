"""Readable golden scenarios: commands, and what the scheduler does."""
