"""Tests of the bridges to other schedulers."""
