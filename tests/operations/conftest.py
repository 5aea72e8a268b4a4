"""Fixtures of the verbs' tests."""

from tests.operations.aws import aws, kubernetes, on, plugin, refusing

__all__ = ["aws", "kubernetes", "on", "plugin", "refusing"]
