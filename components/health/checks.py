"""What is wrong with the keys of node health."""

from __future__ import annotations

from collections.abc import Iterator

from ..schema.problems import Problem


def recovery_problems(policy: str, recovery: str) -> Iterator[Problem]:
    """HyperPod does what a node's label or reason in Slurm asks for only where it may recover nodes by itself
    (awsome-distributed-ai, hyperpod-mental-model.md)."""
    if policy in ("reboot", "replace") and recovery == "None":
        yield Problem(
            key="hyperpod:healthPolicy",
            what=f"without automatic recovery HyperPod does not {policy} the nodes that are marked",
            fix="nodeRecovery Automatic, or healthPolicy drain",
        )
