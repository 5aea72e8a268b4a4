"""Runs the aws command: parses its JSON, and distinguishes transient errors from permanent ones."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import StepError
from .host import Host, Result

# The command's own limits are 60 s each, and the first would use up a step's whole wait. With these, all three attempts
# fit (AWS CLI User Guide, "Command line options" and "AWS CLI retries").
LIMITS = ("--cli-connect-timeout", "5", "--cli-read-timeout", "15")


class Refused(Exception):
    """AWS answered with an error; ``code`` is its code, such as AccessDeniedException."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def ask(host: Host, region: str, timeout: float, *args: str, v1: bool = False) -> Any:
    """Return one call's parsed output. ``v1``: accept credentials without a session token.

    Raises Refused, or StepError if the command is missing.
    """
    result = host.run(
        *("aws", *args, "--region", region, "--output", "json", *LIMITS),
        check=False,
        timeout=timeout,
        env={"AWS_PAGER": "", "AWS_EC2_METADATA_V1_DISABLED": str(not v1).lower()},
    )
    if result.code != 0:
        match = re.search(r"An error occurred \((\w+)\)", result.err)
        raise Refused(match.group(1) if match else "", result.reason)
    try:
        return json.loads(result.out or "{}")
    except ValueError:
        raise StepError(f"`aws {' '.join(args[:2])}` printed no JSON: {result.out[:80]!r}") from None


def copied(host: Host, uri: str, region: str, target: str) -> Result:
    """Copy an object of S3 to a path on the node; "-" is the command's output. Raises StepError."""
    return host.run("aws", "s3", "cp", "--only-show-errors", "--region", region, *LIMITS, uri, target, timeout=60)
