"""What a configuration is refused for: what the tests of it share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest

from components.config import ConfigError, Problem
from tests.support import config

# By what is wrong, the settings. tests/golden/refusals/ has every problem that they cause, word for word.
Cases = dict[str, dict[str, Any]]
GROUP = {"name": "workers", "instanceType": "ml.g5.16xlarge"}
SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge"}
EKS = {"orchestrator": "eks"}
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
ROLE = "arn:aws:iam::123456789012:role/research"
PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5"


# What a key may name on the machine that deploys: a file with that text, executable if it begins with #!; a folder;
# nothing.
Tree: TypeAlias = "str | dict[str, Tree] | None"


def told(settings: dict[str, Any]) -> list[str]:
    """Everything that is said of a configuration, word for word."""
    try:
        config("dev", **settings)
    except ConfigError as refused:
        return sorted(map(str, refused.problems))
    return []


def told_of(tree: Tree, check: Callable[[str], Iterable[Problem]]) -> list[str]:
    """Everything that is said of it as ``mine``, word for word."""
    with TemporaryDirectory() as place:
        _make(Path(place, "mine"), tree)
        return [str(problem).replace(f"{place}/", "") for problem in check(f"{place}/mine")]


def _make(path: Path, tree: Tree) -> None:
    match tree:
        case str():
            path.write_text(tree)
            path.chmod(0o755 if tree.startswith("#!") else 0o644)
        case dict():
            path.mkdir()
            for name, below in tree.items():
                _make(path / name, below)


def problems(stack: str = "dev", **settings: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        config(stack, **settings)
    return {problem.key: str(problem) for problem in refused.value.problems}
