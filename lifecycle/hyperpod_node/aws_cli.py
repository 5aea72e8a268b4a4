"""The aws command: parses its JSON, and tells transient errors from permanent ones."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import StepError
from .model import Node


class Refused(Exception):
    """AWS answered with an error; ``code`` is its code, such as AccessDeniedException."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def call(node: Node, *args: str) -> Any:
    """One call, its output parsed. Raises Refused, or StepError when the command is missing."""
    command = ("aws", *args, "--region", node.parameters.region, "--output", "json")
    result = node.host.run(
        *command,
        check=False,
        timeout=node.timeout("aws"),
        env={"AWS_PAGER": "", "AWS_EC2_METADATA_V1_DISABLED": "true"},
    )
    if result.code != 0:
        match = re.search(r"An error occurred \((\w+)\)", result.err)
        raise Refused(match.group(1) if match else "", result.reason)
    try:
        return json.loads(result.out or "{}")
    except ValueError:
        raise StepError(f"`aws {' '.join(args[:2])}` printed no JSON: {result.out[:80]!r}") from None
