"""The command line."""


def main() -> None:
    """Placeholder until the command lands."""
