"""Fixtures of the verbs' tests."""

from tests.operations.aws import aws, kubernetes, on, plugin, refusing
from tests.operations.small import project

__all__ = ["aws", "kubernetes", "on", "plugin", "project", "refusing"]
