"""What keeps Slurm's configuration ours while HyperPod's agent rewrites it: a part of hyperpod-requeue."""

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import configure
from hyperpod_node.slurm.conf_watch import Configuration

from tests.lifecycle.rig import FakeHost, World, group

CONTROLLER = group("controller", "ml.m5.xlarge")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    """A controller as its scripts have left it."""
    node = World(tmp_path).node("controller")
    node.remember(instance_groups=(CONTROLLER,))
    node.path("/fsx/.hyperpod/slurm").mkdir(parents=True)
    return node


def test_a_rewritten_slurm_conf_gets_its_include_back_and_slurm_reads_it(host: FakeHost) -> None:
    lines: list[str] = []
    configuration = Configuration(host, lines.append)
    configuration.round()
    assert "include hyperpod.conf" in host.text("/opt/slurm/etc/slurm.conf")
    assert host.calls == [("scontrol", "reconfigure")]
    configuration.round()
    assert len(host.calls) == 1


def test_what_the_agent_writes_while_slurm_reads_its_configuration_is_looked_at_too(host: FakeHost) -> None:
    """On a large cluster Slurm reads for seconds, and nodes join one after the other."""
    conf = host.path("/opt/slurm/etc/slurm.conf")
    before = conf.read_text()

    def scontrol(h: FakeHost, args: Sequence[str], stdin: object) -> Result:
        if len(h.calls) == 1:
            conf.write_text(before + "NodeName=ip-10-1-0-19 State=CLOUD\n")
        return Result(0)

    host.commands["scontrol"] = scontrol
    configuration = Configuration(host, lambda line: None)
    configuration.round()
    assert "include hyperpod.conf" not in conf.read_text()
    configuration.round()
    assert "include hyperpod.conf" in conf.read_text()
    assert "ip-10-1-0-19" in conf.read_text()


def test_a_node_that_hyperpod_has_replaced_is_in_the_login_nodes_copy(host: FakeHost) -> None:
    configuration = Configuration(host, lambda line: None)
    configuration.round()
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("ip-10-1-0-[12-13]", "ip-10-1-0-[12,14]"))
    os.utime(conf, (0, 0))
    host.calls.clear()
    configuration.round()
    assert "ip-10-1-0-[12,14]" in host.text("/fsx/.hyperpod/slurm/slurm.conf")
    # Slurm itself was told by HyperPod.
    assert host.calls == []


def test_a_controller_that_dies_of_a_changed_slurm_conf_is_started_again_and_tells_the_nodes(host: FakeHost) -> None:
    answers = iter([1, 1, 1, 0])
    host.commands["scontrol"] = lambda h, args, stdin: Result(next(answers), "", "Unable to contact slurm controller")
    lines: list[str] = []
    Configuration(host, lines.append).round()
    assert host.calls == [
        ("scontrol", "reconfigure"),
        ("systemctl", "restart", "slurmctld"),
        # Until it answers: nobody tells the nodes a second time.
        *[("scontrol", "reconfigure")] * 3,
    ]
    assert lines == ["slurm.conf changed: Unable to contact slurm controller; restarted"]


def test_a_login_node_that_the_agents_line_has_shown_is_hidden_again(host: FakeHost) -> None:
    """Slurm 26.05 keeps it in the partition otherwise, idle, and jobs would wait for it."""
    host.remember(instance_groups=(CONTROLLER, replace(group("login", "ml.m5.large"), role="login")))
    shown = {"ip-10-1-0-11"}

    def scontrol(h: FakeHost, args: Sequence[str], stdin: object) -> Result:
        if "State=FUTURE" in args:
            shown.clear()
        return Result(0 if args[1] != "show" or args[3] in shown else 1)

    host.commands["scontrol"] = scontrol
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text() + "NodeName=ip-10-1-0-11 NodeAddr=10.1.0.11 State=CLOUD\n")
    Configuration(host, lambda line: None).round()
    assert host.calls == [
        ("scontrol", "reconfigure"),
        ("scontrol", "show", "node", "ip-10-1-0-11"),
        ("scontrol", "update", "NodeName=ip-10-1-0-11", "State=DOWN", "Reason=login node"),
        ("scontrol", "update", "NodeName=ip-10-1-0-11", "State=FUTURE"),
    ]
    assert "NodeName=ip-10-1-0-11 NodeAddr=10.1.0.11 State=FUTURE" in conf.read_text()


def test_nodes_that_slurm_drained_between_two_configurations_return_to_service_if_groups_differ(host: FakeHost) -> None:
    host.remember(instance_groups=(CONTROLLER, group("big", "ml.p5.48xlarge"), group("small", "ml.g5.16xlarge")))
    said = "ip-10-1-0-[12-13]|gres/gpu count reported lower than configured (0 < 8)\nip-10-1-0-14|Action:Replace\n"
    host.commands["sinfo"] = lambda h, args, stdin: Result(0, said)
    lines: list[str] = []
    configuration = Configuration(host, lines.append)
    configuration.round()
    configuration.round()
    updates = [call for call in host.calls if call[:2] == ("scontrol", "update")]
    assert updates == [("scontrol", "update", "NodeName=ip-10-1-0-[12-13]", "State=RESUME")]
    assert [call for call in host.calls if call[0] == "sinfo"] == [("sinfo", "-h", "-R", "-o", "%N|%E")]
    assert lines[1:] == ["ip-10-1-0-[12-13] is back: its accelerators were counted between two configurations"]


def test_what_runs_before_slurmctld_settles_the_same(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configure, "Host", lambda settings: host)
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text("TopologyPlugin=topology/tree\n" + conf.read_text())
    configure.main()
    assert "\nTopologyPlugin" not in "\n" + conf.read_text()
    assert "include hyperpod.conf" in conf.read_text()


def test_a_file_system_that_does_not_answer_keeps_no_slurmctld_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configure.PATIENCE == 20
    monkeypatch.setattr(configure, "PATIENCE", 0.01)
    hung, ended = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        hung.wait(10)
        ended.set()

    monkeypatch.setattr(configure, "configure_again", hang)
    configure.main()
    assert not ended.is_set()
    hung.set()
