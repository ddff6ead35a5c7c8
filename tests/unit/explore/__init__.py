"""Unit tests; the layout is that of the package."""
