"""Random histories, every invariant checked after every event."""
