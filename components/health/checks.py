"""What is wrong with the keys of node health."""

from __future__ import annotations

from collections.abc import Iterator

from ..config.model import Settings
from ..schema.problems import Problem


def recovery_problems(settings: Settings) -> Iterator[Problem]:
    """HyperPod does what a node's label or reason in Slurm asks for only where it may recover nodes by itself
    (awsome-distributed-ai, hyperpod-mental-model.md)."""
    if settings.health_policy in ("reboot", "replace") and settings.node_recovery == "None":
        yield Problem(
            key="hyperpod:healthPolicy",
            what=f"without automatic recovery HyperPod does not {settings.health_policy} the nodes that are marked",
            fix="nodeRecovery Automatic, or healthPolicy drain",
        )
