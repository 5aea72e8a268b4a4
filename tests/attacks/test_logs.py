"""What Slurm's own user does in the folder of its logs, in which root's logrotate works every day."""

import os
import subprocess
from pathlib import Path

import pytest
from hyperpod_node.system import log_rotation

from tests.lifecycle.rig import FakeHost, World

FILE = "/etc/logrotate.d/hyperpod"


@pytest.mark.parametrize(
    ("role", "owner", "line", "made"),
    [
        ("controller", "slurm", "    su slurm {group}\n", []),
        ("controller", "root", "", []),
        ("controller", "64030", "", []),
        ("worker", "slurm", "", ["root"]),
        ("login", "slurm", "", ["root"]),
        ("worker", "root", "", []),
    ],
)
def test_root_rotates_nothing_in_a_folder_of_slurms(
    world: World, monkeypatch: pytest.MonkeyPatch, role: str, owner: str, line: str, made: list[str]
) -> None:
    host = world.node(role)
    host.path(log_rotation.SLURM).mkdir(parents=True, exist_ok=True)
    given: list[str | None] = []
    monkeypatch.setattr(host, "owner", lambda name: owner)
    monkeypatch.setattr(host, "secure", lambda name, mode, owner: given.append(owner))
    log_rotation.rotate(host, role)
    text = host.text(FILE)
    group = host.path(log_rotation.SLURM).group()
    assert (line.format(group=group) in text, "    su " in text) == (True, bool(line))
    assert given == made


@pytest.mark.root
def test_logrotate_works_as_the_owner_and_opens_the_logs_again_as_root(
    host: FakeHost, everybodys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one: files that it makes are the owner's, and what comes after the rotation is done as root."""
    folder, told = everybodys / "slurm", everybodys / "told"
    folder.mkdir()
    log = folder / "slurmctld.log"
    log.write_text("line\n")
    for path in (folder, log):
        os.chown(path, 65534, 65534)
    host.path(log_rotation.SLURM).parent.mkdir(parents=True, exist_ok=True)
    host.path(log_rotation.SLURM).symlink_to(folder)
    monkeypatch.setattr(host, "owner", lambda name: "nobody")
    log_rotation.rotate(host, "controller")
    text = host.text(FILE).split("/var/log/hyperpod")[0].replace(log_rotation.SLURM, str(folder))
    assert "    su nobody nogroup\n" in text
    start = text.index("systemctl kill")
    end = text.index("|| true", start)
    settings = everybodys / "settings"
    settings.write_text(text[:start] + f"id -u >> {told} " + text[end:])
    for number in range(3):
        log.write_text(f"line {number}\n")
        done = subprocess.run(
            ["logrotate", "-f", "-s", str(everybodys / "status"), str(settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert {path.name: path.stat().st_uid for path in folder.iterdir()} == {
        "slurmctld.log": 65534, "slurmctld.log.1": 65534, "slurmctld.log.2.gz": 65534, "slurmctld.log.3.gz": 65534,
    }  # fmt: skip
    assert set(told.read_text().split()) == {"0"}
    # Root would go on where the folder became a link to one of root's; its owner cannot.
    victim = everybodys / "victim"
    victim.mkdir()
    (victim / "slurmctld.log").write_text("root's\n")
    (victim / "slurmctld.log").chmod(0o600)
    settings.write_text(settings.read_text().replace(str(folder), str(victim)))
    subprocess.run(
        ["logrotate", "-f", "-s", str(everybodys / "status"), str(settings)], capture_output=True, check=False
    )
    assert [path.name for path in victim.iterdir()] == ["slurmctld.log"]
