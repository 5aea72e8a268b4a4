"""The whole node rehearsal, run by its command."""

import json
from pathlib import Path

import pytest

from operations.failures import Exit
from operations.terminal.command_line import called
from rehearsal.nodes import requirements
from rehearsal.nodes.checks import all_idle, hostname_everywhere, job_environment, output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import until
from rehearsal.nodes.stack import Stack
from tests.rehearsal.command import main

NEXT = "26.05"


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.usefixtures("clean")
@pytest.mark.timeout(400)
def test_controller_login_and_four_workers(tmp_path: Path) -> None:
    report = tmp_path / "found.json"
    login = 'login={"instanceType":"ml.m5.large"}'
    code = main(["nodes", "dev", "--workers", "4", "--config", login, "--write", str(report)])
    found = json.loads(report.read_text())
    failed = [check for check in found["checks"] if not check["passed"]]
    assert not failed
    assert code == 0
    assert [node["role"] for node in found["nodes"]] == ["controller", "login", *["worker"] * 4]
    assert all(node["boot_seconds"] > 0 and node["steps"] for node in found["nodes"])
    assert found["recovery"]["steps_lost"] <= 20
    assert found["leftovers"] == []


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_the_next_release_of_slurm_boots_and_takes_jobs(stack: Stack) -> None:
    if lacking := requirements.missing(NEXT):
        pytest.skip("; ".join(lacking))
    with Cluster(stack, Options(workers=1, slurm=NEXT, continuous=True)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        # In the order of continuous provisioning, which the command plays.
        said = [line for line in cluster.scripts["workers-1"].lines if line.startswith("step slurm ")]
        assert "slurmd starts by itself once it does" in said[0]
        until("the worker is idle", lambda: all_idle(cluster))
        # Debian's development suite moves on, so this is the minimum release.
        version = output(cluster.controller, "scontrol --version").split()[-1]
        assert version >= NEXT
        hostname_everywhere(cluster)
        job_environment(cluster)


def test_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(requirements, "_PACKAGES", {"/nowhere/munged": "munge", "/nowhere/ip": "iproute2"})
    assert main(["nodes", "dev"]) == Exit.CANNOT_KNOW
    said = capsys.readouterr().err.splitlines()
    assert said[1].startswith("root: ")
    assert said[2:4] == ["Debian packages: munge, iproute2", "Slurm 24.11: not downloaded yet"]
    assert said[-2] == f"Next: sudo make node-packages && sudo {called()} rehearse nodes dev"


@pytest.mark.root
def test_refuses_an_eks_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "eks-gpu"]) == 1
    assert "only Slurm nodes" in capsys.readouterr().out
