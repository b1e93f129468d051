"""Fixtures and helpers of the package's tests."""

pytest_plugins = ["pytester"]
