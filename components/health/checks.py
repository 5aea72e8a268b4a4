"""Checks of the keys of node health."""

from collections.abc import Iterator

from ..schema.problems import Problem


def recovery_problems(policy: str, recovery: str) -> Iterator[Problem]:
    """Report a policy that needs recovery without it: HyperPod acts on a node's label or reason in Slurm only if it may
    recover nodes by itself (awsome-distributed-ai, hyperpod-mental-model.md).
    """
    if policy in ("reboot", "replace") and recovery == "None":
        yield Problem(
            key="hyperpod:healthPolicy",
            what=f"without automatic recovery HyperPod does not {policy} the nodes that are marked",
            fix="nodeRecovery Automatic, or healthPolicy drain",
        )
