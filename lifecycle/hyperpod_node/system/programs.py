"""The commands that people run: copied to the node, because HyperPod's download folder does not last."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Dict, Sequence, Tuple

from ..facts.model import Node
from ..host.host import Host
from ..host.settings import Settings
from . import log_rotation

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
    "hyperpod-requeue": ("hyperpod_node.slurm.requeue", ()),
    "hyperpod-configure": ("hyperpod_node.slurm.configure", ()),
    "hyperpod-slurm-config": ("hyperpod_node.slurm.change", ()),
    "hyperpod-slurm-accounts": ("hyperpod_node.accounting.accounts", ()),
    "hyperpod-accounting-backup": ("hyperpod_node.accounting.backup", ()),
    "hyperpod-metrics": ("hyperpod_node.metrics.writer", ()),
    "hyperpod-pull": ("hyperpod_node.metrics.pull", ()),
    "hyperpod-users": ("hyperpod_node.people.apply", ()),
    "hyperpod-credentials": ("hyperpod_node.people.credentials", ("worker",)),
    "hyperpod-health": ("hyperpod_node.health.run", ("worker",)),
}
SCRIPTS = {
    "slurm/task-prolog.sh": "hyperpod-task-prolog",
    "slurm/prolog.sh": "hyperpod-prolog",
    "slurm/prolog-gate.sh": "hyperpod-prolog-gate",
    "slurm/epilog.sh": "hyperpod-epilog",
    "slurm/conf-server.sh": "hyperpod-conf-server",
    "slurm/take-munge-key.sh": "hyperpod-take-munge-key",
    "slurm/settle.sh": "hyperpod-settle",
    "slurm/try-conf.sh": "hyperpod-try-conf",
    "slurm/health.sh": "hyperpod-health-check",
    "slurm/end-job.sh": "hyperpod-end-job",
    "slurm/job-metrics.sh": "hyperpod-job-metrics",
    "slurm/import-image.sh": "hyperpod-import-image",
    "slurm/check-image.sh": "hyperpod-check-image",
}
# The interpreter that runs these steps: one named "python3" may be another in a user's environment. Nothing of the
# caller's environment or working folder is imported (-I), and nothing is written next to the modules (-B). Slurm's
# folder is in the PATH of a login shell, and in neither sudo's (sudoers(5), secure_path) nor Session Manager's.
WRAPPER = """#!/bin/sh
# Made by the HyperPod lifecycle scripts.
export PATH="${{PATH:-/usr/bin:/bin}}:{path}"
exec {python} -IB {launcher} {module} "$@"
"""


def run(node: Node) -> str:
    """Step ``commands``."""
    host, source, target = node.host, node.host.settings.source, node.host.settings.install_folder
    libraries(host)
    log_rotation.rotate(host, node.role)
    for name, script in SCRIPTS.items():
        host.write(f"{target}/bin/{script}", (source / name).read_text(encoding="utf-8"), mode=0o755)
    for name, (_, roles) in COMMANDS.items():
        command(host, name)
        if node.role in roles:
            host.link(f"/usr/local/bin/{name}", f"{target}/bin/{name}")
    return f"{len(COMMANDS)} commands in {target}/bin"


def libraries(host: Host, folders: Sequence[str] = FOLDERS) -> None:
    """Copy the commands' modules."""
    source, target = host.settings.source, host.settings.install_folder
    for path in files(source, folders):
        host.write_bytes(f"{target}/lib/{path.relative_to(source).as_posix()}", path.read_bytes())


def command(host: Host, name: str) -> None:
    """Install one command, which runs the module that COMMANDS names."""
    target = host.settings.install_folder
    module, launcher = COMMANDS[name][0], f"{target}/lib/{LAUNCHER}"
    text = WRAPPER.format(path=Settings.extra_path, python=sys.executable, launcher=launcher, module=module)
    host.write(f"{target}/bin/{name}", text, mode=0o755)


def files(source: Path, folders: Sequence[str] = FOLDERS) -> "list[Path]":
    """Return the files to copy, in a stable order."""
    below = (
        Path(folder) / name
        for top in folders
        for folder, _, names in os.walk(str(source / top))
        for name in names
        if not name.endswith(".pyc") and not name.startswith(".")
    )
    return sorted([source / LAUNCHER, *below])
