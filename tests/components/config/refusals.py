"""What a configuration is refused for: what the tests of it share."""

from __future__ import annotations

from typing import Any

import pytest

from components.config import ConfigError
from tests.support import config

# By what is wrong: the settings, the key that is named, and what its problem says.
Cases = dict[str, tuple[dict[str, Any], str, str]]
GROUP = {"name": "workers", "instanceType": "ml.g5.16xlarge"}
SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge"}
EKS = {"orchestrator": "eks"}
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
ROLE = "arn:aws:iam::123456789012:role/research"
PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5"


def problems(stack: str = "dev", **settings: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        config(stack, **settings)
    return {problem.key: str(problem) for problem in refused.value.problems}


def check(case: tuple[dict[str, Any], str, str]) -> None:
    """It is refused, with key, reason and remedy."""
    settings, key, text = case
    found = problems(**settings)
    assert key in found, f"{key} is not among {found}"
    assert text in found[key]
