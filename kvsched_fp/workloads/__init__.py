"""Readers of public request traces, and the stub model that answers a step."""
