"""Measurements that take too long for the tests, each with its own clock as the truth."""
