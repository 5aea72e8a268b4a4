"""Fixtures of the verbs' tests."""

from tests.operations.aws import aws, on, plugin

__all__ = ["aws", "on", "plugin"]
