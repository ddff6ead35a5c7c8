"""Tests of the kit for testing other people's schedulers."""
