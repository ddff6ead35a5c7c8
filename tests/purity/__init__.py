"""The functions are pure: inputs stay, equal calls give equal results, states are values."""
