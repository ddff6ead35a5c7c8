"""What must always hold."""
