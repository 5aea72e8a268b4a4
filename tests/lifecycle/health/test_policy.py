"""What Slurm is told about a bad node, by policy; and what is never touched."""

import fcntl
import json
import os
import stat
from pathlib import Path

import pytest
from hyperpod_node.health import policy
from hyperpod_node.health import run as health
from hyperpod_node.health.setup import run as prepare_step
from hyperpod_node.host.errors import StepError

from tests.lifecycle.health.rig import Controller, prepare, put, slurm, well
from tests.lifecycle.rig import FakeHost, World

REASON = "hyperpod-health: accelerators: 7 of 8 devices /dev/nvidia*"


@pytest.fixture
def controller(host: FakeHost) -> Controller:
    well(host)
    prepare(host)
    return slurm(host)


def lose_a_gpu(host: FakeHost) -> None:
    host.path("/dev/nvidia3").unlink(missing_ok=True)


def get_it_back(host: FakeHost) -> None:
    put(host, "/dev/nvidia3")


def state(host: FakeHost, controller: Controller) -> list[str]:
    return controller.nodes[host.hostname()]


def done(host: FakeHost) -> str:
    return str(json.loads(host.text(health.RESULTS))["done"])


def with_policy(host: FakeHost, name: str) -> None:
    host.world.render(healthPolicy=name)
    prepare(host)


def test_a_bad_node_is_drained_with_its_reason_and_resumed_when_it_is_well(
    host: FakeHost, controller: Controller
) -> None:
    health.once(host)
    assert controller.updates == []
    lose_a_gpu(host)
    health.once(host)
    assert state(host, controller) == ["IDLE+DRAIN", REASON]
    assert host.read(policy.NO_JOBS) is None
    health.once(host)
    assert len(controller.updates) == 1
    get_it_back(host)
    health.once(host)
    assert state(host, controller) == ["IDLE", ""]


def test_report_touches_nothing(host: FakeHost, controller: Controller) -> None:
    with_policy(host, "report")
    lose_a_gpu(host)
    assert health.once(host)
    assert controller.updates == []
    assert done(host) == "only reported, by policy"
    assert host.text(health.REASON) == "accelerators: 7 of 8 devices /dev/nvidia*\n"


@pytest.mark.parametrize(
    "reason", ["Action:Replace", "Action:Reboot", "maintenance by me", "Prolog error", "Not responding"]
)
def test_what_others_have_taken_out_is_not_touched_be_it_well_or_bad(
    host: FakeHost, controller: Controller, reason: str
) -> None:
    controller.nodes[host.hostname()] = ["IDLE+DRAIN", reason]
    health.once(host)
    lose_a_gpu(host)
    health.once(host)
    assert controller.updates == []
    assert done(host).startswith("left to")


def test_a_node_in_hyperpods_hands_is_not_touched_though_it_takes_jobs(host: FakeHost, controller: Controller) -> None:
    controller.nodes[host.hostname()] = ["MIXED", "Action:Replace"]
    lose_a_gpu(host)
    health.once(host)
    assert controller.updates == []


@pytest.mark.parametrize(("name", "order"), [("reboot", "Action:Reboot"), ("replace", "Action:Replace")])
def test_hyperpod_gets_a_drained_node_only_once_its_jobs_have_ended(
    host: FakeHost, controller: Controller, name: str, order: str
) -> None:
    with_policy(host, name)
    controller.nodes[host.hostname()] = ["MIXED", ""]
    lose_a_gpu(host)
    health.once(host)
    health.once(host)
    assert state(host, controller) == ["MIXED+DRAIN", REASON]
    # As scontrol marks a node that does not answer.
    controller.nodes[host.hostname()][0] = "IDLE*+DRAIN*"
    health.once(host)
    assert state(host, controller) == ["FAIL", order]
    assert done(host) == f"drained and idle: {order}"
    get_it_back(host)
    health.once(host)
    assert state(host, controller) == ["FAIL", order]


@pytest.mark.parametrize("reason", ["hyperpod-health: xid: XID 79", "Action:Replace"])
def test_while_one_node_is_out_the_next_is_only_reported(host: FakeHost, controller: Controller, reason: str) -> None:
    controller.nodes["other-1"] = ["IDLE+DRAIN", reason]
    lose_a_gpu(host)
    health.once(host)
    assert controller.updates == []
    assert done(host) == "only reported: 1 of 4 nodes are out already (other-1)"
    assert host.read(policy.NO_JOBS) is None


def test_one_in_twenty_may_be_out(host: FakeHost) -> None:
    well(host)
    prepare(host)
    many = slurm(host, others=59)
    many.nodes |= {f"other-{n}": ["IDLE+DRAIN", "hyperpod-health: x"] for n in (1, 2)}
    lose_a_gpu(host)
    health.once(host)
    assert state(host, many)[0] == "IDLE+DRAIN"


def test_of_two_that_drain_at_once_the_last_takes_it_back(
    host: FakeHost, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = policy._drain

    def both(*args: str) -> None:
        controller.nodes["other-1"] = ["IDLE+DRAIN", "hyperpod-health: xid: XID 79"]
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(policy, "_drain", both)
    lose_a_gpu(host)
    health.once(host)
    assert state(host, controller) == ["IDLE", ""]
    assert done(host).startswith("only reported: 1 of 4")


def test_a_drain_that_slurm_did_not_take_keeps_jobs_away_by_the_prolog(host: FakeHost, controller: Controller) -> None:
    def deaf(*args: object) -> None:
        raise StepError("connect failure")

    lose_a_gpu(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "_drain", deaf)
        health.once(host)
    assert host.text(policy.NO_JOBS) == REASON + "\n"
    health.once(host)
    assert host.read(policy.NO_JOBS) is None
    assert state(host, controller)[0] == "IDLE+DRAIN"


def test_what_our_own_prolog_has_drained_is_ours(host: FakeHost, controller: Controller) -> None:
    put(host, policy.PROLOG_FAILED, "7 of 8 devices\n")
    controller.nodes[host.hostname()] = ["IDLE+DRAIN", "Prolog error : job_id=7"]
    lose_a_gpu(host)
    health.once(host)
    assert state(host, controller) == ["IDLE+DRAIN", REASON]
    get_it_back(host)
    health.once(host)
    assert state(host, controller) == ["IDLE", ""]
    assert host.read(policy.PROLOG_FAILED) is None


def test_a_person_who_resumes_a_node_accepts_the_xids_so_far_and_nothing_else(
    host: FakeHost, controller: Controller
) -> None:
    put(host, "/dev/kmsg", "4,7,1,-;NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.\n")
    health.once(host)
    assert state(host, controller)[0] == "IDLE+DRAIN"
    controller.nodes[host.hostname()] = ["IDLE", ""]
    health.once(host)
    health.once(host)
    assert state(host, controller) == ["IDLE", ""]
    lose_a_gpu(host)
    health.once(host)
    assert state(host, controller) == ["IDLE+DRAIN", REASON]


def test_what_was_bad_and_cannot_be_asked_now_does_not_come_back(host: FakeHost, controller: Controller) -> None:
    from tests.lifecycle.health.rig import gpus

    gpus(host, failure="Yes")
    health.once(host)
    assert state(host, controller)[0] == "IDLE+DRAIN"
    host.missing.add("nvidia-smi")
    health.once(host)
    health.once(host)
    assert state(host, controller)[0] == "IDLE+DRAIN"
    host.missing.clear()
    gpus(host)
    health.once(host)
    assert state(host, controller)[0] == "IDLE"


def test_without_a_controller_the_results_are_filed_all_the_same(host: FakeHost, controller: Controller) -> None:
    controller.deaf = True
    host.path(health.METRICS).mkdir(parents=True)
    lose_a_gpu(host)
    health.once(host)
    assert "Unable to contact" in done(host)
    assert 'hyperpod_health_check_ok{check="accelerators"} 0' in host.text(f"{health.METRICS}/health.prom")


def test_on_eks_nothing_is_told_to_slurm_and_a_timer_runs_the_checks(world: World) -> None:
    world.render(orchestrator="eks")
    host = world.node("worker")
    put(host, "/proc/self/mounts", "overlay / overlay rw 0 0\n")
    prepare(host)
    assert host.ran("systemctl", "start", "hyperpod-health.timer")
    assert host.read("/opt/hyperpod/lib/hyperpod_node/health/xid.csv")
    assert "hyperpod_node.health.run" in host.text("/opt/hyperpod/bin/hyperpod-health")
    lose_a_gpu(host)
    health.once(host)
    assert not host.ran("scontrol")
    assert host.text(health.REASON).startswith("accelerators: 7 of 8")


def test_users_own_checks_become_executable_and_go_when_they_are_no_longer_shipped(host: FakeHost) -> None:
    shipped = host.world.source / "checks"
    shipped.mkdir()
    for name in ("one", "two"):
        (shipped / name).write_text("#!/bin/sh\n")
    assert prepare_step(host.node()).endswith("2 own checks")
    assert stat.S_IMODE(host.path("/opt/hyperpod/checks/two").stat().st_mode) == 0o755
    (shipped / "two").unlink()
    prepare(host)
    assert host.read("/opt/hyperpod/checks/two") is None


def test_the_command_shows_every_check_and_logs_a_bad_node(
    host: FakeHost,
    controller: Controller,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    open_, lock, locks = os.open, tmp_path / "lock", []

    def elsewhere(name: str, *how: int, **more: int) -> int:
        if name != "/run/hyperpod-health.lock":
            return open_(name, *how, **more)
        locks.append(open_(lock, *how, **more))
        return locks[-1]

    def command() -> tuple[int, str, str]:
        code = health.main()
        # As the end of the process does.
        os.close(locks.pop())
        return (code, *capsys.readouterr())

    monkeypatch.setattr(os, "open", elsewhere)
    monkeypatch.setattr(os, "umask", lambda mask: 0)
    monkeypatch.setattr(health, "Host", lambda settings: host)
    monkeypatch.setattr(health, "LOG", str(tmp_path / "log/health.log"))
    code, out, _ = command()
    lines = out.splitlines()
    assert (code, lines[0], lines[-1]) == (0, "accelerators  ok       8 devices", "nothing to do")
    assert not (tmp_path / "log").exists()
    lose_a_gpu(host)
    code, out, _ = command()
    assert (code, out.splitlines()[-1]) == (1, "drained")
    when, _, said = (tmp_path / "log/health.log").read_text().partition(" ")
    wrong = {"accelerators": "7 of 8 devices /dev/nvidia*"}
    assert (int(when), json.loads(said)) == (int(host.wall()), {"wrong": wrong, "done": "drained"})
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, out, err = command()
        assert (code, out) == (
            0,
            "hyperpod-health: it is already running here; its results will be in /run/hyperpod-health/results.json\n",
        )
        assert "the other run has not ended within 60 s" in err
    host.path("/etc/hyperpod/node.json").unlink()
    code, _, err = command()
    assert (code, "the lifecycle scripts have not run here" in err) == (2, True)


def test_a_node_whose_killed_job_has_ended_late_is_resumed_when_it_is_empty_and_well(
    host: FakeHost, controller: Controller
) -> None:
    """awsome-distributed-ai, issue 185: nodes stayed drained after "Kill task failed" until somebody looked."""
    controller.nodes[host.hostname()] = ["ALLOCATED+DRAIN+COMPLETING", "Kill task failed"]
    health.once(host)
    assert controller.updates == []
    assert done(host) == "left until the job has ended: Kill task failed"
    controller.nodes[host.hostname()] = ["IDLE+DRAIN", "Kill task failed"]
    lose_a_gpu(host)
    health.once(host)
    assert state(host, controller) == ["IDLE+DRAIN", REASON]
    get_it_back(host)
    controller.nodes[host.hostname()] = ["IDLE+DRAIN", "Kill task failed"]
    health.once(host)
    assert state(host, controller) == ["IDLE", ""]
