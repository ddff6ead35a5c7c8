"""The tests; see README.md beside this file for where one goes."""
