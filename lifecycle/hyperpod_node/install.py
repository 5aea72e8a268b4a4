"""The commands that people run: copied to the node, because HyperPod's download folder does not last."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Dict, Tuple

from .model import Node

# Folders of the lifecycle files that the commands need.
FOLDERS = ("hyperpod_node", "hyperpod_commands", "training")
LAUNCHER = "isolated.py"
# Command, module, and the roles on which it is also in /usr/local/bin. Others find it in /opt/hyperpod/bin.
HEADS = ("controller", "login")
COMMANDS: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "run-nccl-test": ("hyperpod_commands.nccl_test", HEADS),
    "run-nccom-test": ("hyperpod_commands.nccom_test", HEADS),
    "run-nanogpt": ("hyperpod_commands.nanogpt", HEADS),
    "hyperpod-validate": ("hyperpod_commands.validate", HEADS),
    "hyperpod-benchmark": ("hyperpod_commands.benchmark", HEADS),
    "hyperpod-find-slow-node": ("hyperpod_commands.slow_node", HEADS),
    "hyperpod-node-facts": ("hyperpod_commands.node_facts", ()),
    "hyperpod-requeue": ("hyperpod_node.requeue", ()),
    "hyperpod-configure": ("hyperpod_node.slurm_configure", ()),
    "hyperpod-metrics": ("hyperpod_node.metrics.writer", ()),
    "hyperpod-pull": ("hyperpod_node.metrics.pull", ()),
}
SCRIPTS = {
    "slurm/task-prolog.sh": "hyperpod-task-prolog",
    "slurm/prolog.sh": "hyperpod-prolog",
    "slurm/epilog.sh": "hyperpod-epilog",
    "slurm/conf-server.sh": "hyperpod-conf-server",
    "slurm/settle.sh": "hyperpod-settle",
    "slurm/end-job.sh": "hyperpod-end-job",
    "slurm/job-metrics.sh": "hyperpod-job-metrics",
}
# The interpreter that runs these steps: one named "python3" may be another in a user's environment. Nothing of the
# caller's environment or working folder is imported (-I), and nothing is written beside the modules (-B).
WRAPPER = """#!/bin/sh
# Made by the HyperPod lifecycle scripts.
exec {python} -IB {launcher} {module} "$@"
"""


def run(node: Node) -> str:
    """Step ``commands``."""
    host, source, target = node.host, node.host.settings.source, node.host.settings.install_folder
    for path in files(source):
        host.write_bytes(f"{target}/lib/{path.relative_to(source).as_posix()}", path.read_bytes())
    for name, command in SCRIPTS.items():
        host.write(f"{target}/bin/{command}", (source / name).read_text(encoding="utf-8"), mode=0o755)
    for command, (module, roles) in COMMANDS.items():
        text = WRAPPER.format(python=sys.executable, launcher=f"{target}/lib/{LAUNCHER}", module=module)
        host.write(f"{target}/bin/{command}", text, mode=0o755)
        if node.role in roles:
            host.link(f"/usr/local/bin/{command}", f"{target}/bin/{command}")
    return f"{len(COMMANDS)} commands in {target}/bin"


def files(source: Path) -> "list[Path]":
    """The files to copy, in a stable order."""
    below = (
        Path(folder) / name
        for top in FOLDERS
        for folder, _, names in os.walk(str(source / top))
        for name in names
        if not name.endswith(".pyc") and not name.startswith(".")
    )
    return sorted([source / LAUNCHER, *below])
