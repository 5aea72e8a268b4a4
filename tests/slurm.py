"""The Slurm that the rehearsal of nodes keeps, where only what a test starts sees it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from rehearsal.nodes import slurm_packages

needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or slurm_packages.missing(slurm_packages.DEFAULT),
    reason="needs root, and the Slurm of `make node-packages`",
)
# Over the machine's own folders: /opt/slurm, and what Debian's build looks for in /usr.
_MOUNTS = 'for one in opt usr; do mount -t overlay slurm -o "lowerdir=$1/$one:/$one" "/$one" || exit; done'


@dataclass(frozen=True)
class Slurm:
    """How to start its programs: ``inside`` comes before a command line, ``environment`` has them on PATH."""

    inside: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def kept_slurm(**environment: str) -> Iterator[Slurm]:
    """The kept Slurm in a mount namespace of its own, with ``environment`` for what is started."""
    kept = slurm_packages.folder(slurm_packages.DEFAULT)
    path = f"/opt/slurm/bin:/opt/slurm/sbin:{os.environ['PATH']}"
    keeper = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"{_MOUNTS}; echo ready; exec sleep infinity", "sh", str(kept)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert keeper.stdout
        assert keeper.stdout.readline() == "ready\n", f"{kept} cannot be mounted"
        yield Slurm(("nsenter", "-t", str(keeper.pid), "-m"), {**os.environ, "PATH": path, **environment})
    finally:
        keeper.kill()
        keeper.communicate()
