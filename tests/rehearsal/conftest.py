"""Fixtures of the verbs' tests, for the verbs that the rehearsal adds."""

from tests.operations.aws import aws, on

__all__ = ["aws", "on"]
