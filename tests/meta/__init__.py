"""The project's own rules about itself, as tests."""
