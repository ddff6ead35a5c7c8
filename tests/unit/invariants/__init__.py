"""The invariants: each must report a state or a step that breaks it."""
