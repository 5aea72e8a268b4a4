"""Rotation of logs, judged by logrotate itself where it is installed."""

import shutil
import subprocess

import pytest
from hyperpod_node.system import log_rotation

from tests.lifecycle.rig import World

FILE = "/etc/logrotate.d/hyperpod"


def test_what_somebody_else_rotates_is_left_to_them(world: World) -> None:
    host = world.node("controller")
    host.write("/etc/logrotate.d/sagemaker-hyperpod-slurm", '"/var/log/slurm/*.log" {\n    rotate 2\n}\n')
    log_rotation.rotate(host, "controller")
    assert "/var/log/slurm" not in host.text(FILE)
    assert "/var/log/hyperpod" in host.text(FILE)


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="no logrotate")
def test_logrotate_keeps_eight_of_each(world: World) -> None:
    host = world.node("controller")
    log_rotation.rotate(host, "controller")
    log = host.path("/var/log/slurm/slurmctld.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.parent.chmod(0o755)
    mine = host.path("/tmp/rotate.conf")
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text(host.text(FILE).replace("/var/log", str(host.path("/var/log"))).replace("systemctl kill", "true"))
    for number in range(10):
        log.write_text(f"line {number}\n")
        log.chmod(0o640)
        status = str(host.path("/tmp/status"))
        done = subprocess.run(
            [str(shutil.which("logrotate")), "-f", "-s", status, str(mine)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in log.parent.iterdir()) == [
        "slurmctld.log", "slurmctld.log.1", *(f"slurmctld.log.{number}.gz" for number in range(2, 9)),
    ]  # fmt: skip
    assert log.stat().st_mode & 0o777 == 0o640
    assert (log.parent / "slurmctld.log.1").read_text() == "line 9\n"
