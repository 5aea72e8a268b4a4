"""The boot step ``metrics``: what it leaves to run, that nothing of it is waited for, and that it goes away again."""

import contextlib
import csv
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node.host.errors import Skip, StepError
from hyperpod_node.host.host import Result
from hyperpod_node.metrics import collector, exporters, pull, step, writer

from components.catalogue.regions import REGIONS
from tests.lifecycle.rig import LIFECYCLE, REMOTE_WRITE, FakeHost, Killed, World
from tests.metrics.names import FOLDER, rows

UNITS = "/etc/systemd/system"
IMAGE = "602401143452.dkr.ecr.us-west-2.amazonaws.com/hyperpod/node_exporter:v1.9.1"
TIMERS = {"hyperpod-metrics@node.timer", "hyperpod-metrics@lustre.timer"}
STARTER = "hyperpod-metrics.timer"


def ran(host: FakeHost) -> str:
    found = host.node()
    found.enter("metrics")
    said = step.run(found)
    host.notes = found.warnings.get("metrics", [])  # type: ignore[attr-defined]
    return said


def started_later(host: FakeHost) -> set[str]:
    """What the timer starts, by way of its target."""
    assert "\nUnit=hyperpod-metrics.target\n" in host.text(f"{UNITS}/{STARTER}")
    lines = host.text(f"{UNITS}/hyperpod-metrics.target").splitlines()
    return {name for line in lines if line.startswith("Wants=") for name in line[6:].split()}


def test_the_boot_starts_a_timer_and_nothing_else_and_so_does_a_reboot(host: FakeHost) -> None:
    """What they do first would take processor time that the boot of the node needs."""
    ran(host)
    assert [call[1:] for call in host.calls if call[0] == "systemctl"] == [("start", "--no-block", STARTER)]
    assert host.active == {STARTER}
    waits = dict(line.split("=") for line in host.text(f"{UNITS}/{STARTER}").splitlines() if "Sec=" in line)
    assert int(waits["OnActiveSec"]) >= 30
    # A registry that does not answer must not hold up a reboot: nothing that it waits for is started by anything else.
    enabled = list(host.path(UNITS).glob("*.wants/*"))
    assert [(path.parent.name, str(path.readlink())) for path in enabled] == [
        ("timers.target.wants", f"{UNITS}/{STARTER}")
    ]
    assert not any("[Install]" in path.read_text() for path in host.path(UNITS).glob("hyperpod-*") if path.is_file())


def test_a_boot_without_metrics_imports_nothing_of_them(world: World) -> None:
    world.remote_write_url = None
    world.render()
    code = "import sys, hyperpod_node.__main__; print(*[m for m in sys.modules if '.metrics.' in m or m == 'xml'])"
    said = subprocess.run([sys.executable, "-c", code], cwd=LIFECYCLE, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["hyperpod_node.metrics.step"]
    with pytest.raises(Skip):
        ran(world.node())


def test_the_agent_reads_the_file_that_its_translator_writes(host: FakeHost) -> None:
    """Beside the file of --output, whatever that is called (amazon-cloudwatch-agent, tool/translator/translator.go,
    yamlConfigFileName). With none there the agent ends at once, and nothing is sent."""
    text = collector.unit(host)
    (written,) = re.findall(r" --output (\S+)/\S+ ", text)
    assert re.findall(r" -otelconfig (\S+)", text) == [f"{written}/amazon-cloudwatch-agent.yaml"]


@pytest.mark.parametrize(
    "url", [REMOTE_WRITE.replace(".amazonaws.com", ".amazonaws.com.cn"), "https://example.com/api/v1/write"]
)
def test_an_address_that_the_agent_cannot_write_to_is_refused(world: World, url: str) -> None:
    world.remote_write_url = url
    world.render()
    with pytest.raises(StepError, match="cannot write to https://"):
        ran(world.node())


def test_exporters_listen_on_loopback_alone_and_have_limits(tmp_path: Path) -> None:
    for world in (World(tmp_path / "gpu"), World(tmp_path / "trainium", "ml.trn1.32xlarge")):
        host = world.node()
        found, _ = exporters.for_node(host.node(), "602401143452.dkr.ecr.us-west-2.amazonaws.com")
        assert len(found) == 2
        for text in [*(one.text for one in found), collector.unit(host)]:
            assert "Restart=always" in text
            assert {"CPUQuota", "MemoryMax"} <= {line.split("=")[0] for line in text.splitlines()}
            assert "docker run" not in text or ("--cpus " in text and "--memory " in text)
        for one in found:
            if f"127.0.0.1:{one.port}" not in one.text:
                # systemd filters what is sent, too (systemd.resource-control(5), IPAddressAllow): besides this node,
                # neuron-monitor needs the metadata, for the labels of its series (its guide, "instance_info").
                lines = [line for line in one.text.splitlines() if line.startswith("IPAddress")]
                assert lines == ["IPAddressDeny=any", "IPAddressAllow=localhost 169.254.169.254"], one.name


def test_without_docker_or_the_agent_the_node_says_what_it_cannot_send(world: World) -> None:
    host = world.node()
    host.missing.add("docker")
    host.path("/opt/aws/amazon-cloudwatch-agent/bin/config-translator").unlink()
    ran(host)
    assert started_later(host) == TIMERS
    assert host.notes == [  # type: ignore[attr-defined]
        "docker is not installed: no node_exporter, and no DCGM exporter",
        "no /opt/aws/amazon-cloudwatch-agent/bin/config-translator: nothing sends this node's metrics",
    ]


def test_a_second_run_starts_nothing_anew_and_another_configuration_does(world: World) -> None:
    ran(world.node())
    again = world.node()
    ran(again)
    assert (again.changes, again.ran("systemctl", "restart")) == ([], False)
    world.remote_write_url = REMOTE_WRITE.replace("0123abcd", "ffff")
    world.render()
    other = world.node()
    ran(other)
    assert other.ran("systemctl", "restart", "--no-block", "hyperpod-node-exporter.service")


def test_units_that_run_with_older_files_are_read_again_before_they_start_anew(world: World) -> None:
    ran(world.node())
    host = world.node()
    host.active.add("hyperpod-collector.service")
    host.loaded["hyperpod-collector.service"] = {"hyperpod-collector.service": "an older text"}
    world.remote_write_url = REMOTE_WRITE.replace("0123abcd", "ffff")
    world.render()
    ran(host)
    verbs = [call[1] for call in host.calls if call[0] == "systemctl"]
    assert verbs == ["show", "daemon-reload", "restart", "start"]


def test_a_node_whose_stack_has_no_workspace_any_more_sends_nothing(world: World) -> None:
    fresh = World(world.folder / "fresh", remote_write_url=None).node()
    with pytest.raises(Skip):
        ran(fresh)
    assert (fresh.changes, fresh.calls) == ([], [])
    host = world.node()
    before = host.tree()
    ran(host)
    host.write(f"{writer.FOLDER}/node.prom", "a 1\n")
    world.remote_write_url = None
    world.render()
    with pytest.raises(Skip, match="no workspace"):
        ran(host)
    left = set(host.tree()) - set(before)
    assert left == {"etc/hyperpod/collector/scrape.json", "etc/hyperpod/collector/agent.d/hyperpod.json",
                    "etc/hyperpod/dcgm-metrics.csv"}  # fmt: skip
    assert host.active == set()


def test_a_step_that_was_killed_anywhere_has_everything_running_when_it_runs_again(tmp_path: Path) -> None:
    clean = World(tmp_path / "clean").node()
    ran(clean)
    for number in range(1, clean.operations + 1):
        world = World(tmp_path / str(number))
        host = world.node()
        host.node()
        host.kill_at = host.operations + number
        with contextlib.suppress(Killed):
            ran(host)
        again = world.node()
        ran(again)
        assert set(again.tree()) == set(clean.tree()), number
        assert again.active == clean.active, number


# The DCGM exporter's list


def test_the_dcgm_exporter_gives_fields_that_exist_and_more_where_more_is_asked_for() -> None:
    known = {row["metric"] for row in rows(FOLDER / "published/dcgm.csv")}
    basic, advanced = (
        {fields[0]: fields[1].strip() for fields in csv.reader(exporters.metrics_list(detail).splitlines())}
        for detail in ("basic", "advanced")
    )
    assert set(basic) < set(advanced) <= known
    # A counter would arrive under another name.
    assert set(advanced.values()) == {"gauge"}
    assert all(line.count(",") == 2 for line in exporters.metrics_list("advanced").splitlines())


# Pulling


def commands(host: FakeHost, here: bool) -> list[dict[str, object]]:
    """Docker and ECR; what Docker is given to sign in with is remembered."""
    signed: list[dict[str, object]] = []

    def docker(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if args[1] == "image":
            return Result(0 if here else 1)
        file = Path(args[2]) / "config.json"
        signed.append({"mode": file.stat().st_mode & 0o777, "auths": json.loads(file.read_text())["auths"]})
        return Result(0)

    def aws(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        return Result(0, json.dumps({"authorizationData": [{"authorizationToken": "c2VjcmV0"}]}))

    host.commands |= {"docker": docker, "aws": aws}
    host.path("/run").mkdir(exist_ok=True)
    return signed


def test_an_image_is_pulled_once_and_its_token_is_in_no_command_and_on_no_disk(host: FakeHost) -> None:
    signed = commands(host, here=False)
    assert pull.ensure(host, IMAGE)
    assert signed == [{"mode": 0o600, "auths": {IMAGE.split("/")[0]: {"auth": "c2VjcmV0"}}}]
    assert not any("c2VjcmV0" in word for call in host.calls for word in call)
    assert list(host.path("/run").iterdir()) == []
    commands(host, here=True)
    assert not pull.ensure(host, IMAGE)


def test_the_command_says_whether_it_pulled_or_why_not(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pull, "Host", lambda settings: host)
    for words, here, code, out, err in (
        ([IMAGE], False, 0, "hyperpod-pull: pulled\n", ""),
        ([IMAGE], True, 0, "hyperpod-pull: already here\n", ""),
        ([IMAGE, IMAGE], True, 1, "", "hyperpod-pull:  is not an image in Amazon ECR\n"),
    ):
        commands(host, here)
        monkeypatch.setattr(sys, "argv", ["hyperpod-pull", *words])
        assert pull.main() == code
        assert capsys.readouterr() == (out, err)
    asked = [" ".join(call) for call in host.calls if call[0] in ("docker", "aws")]
    assert re.sub(r"(--config) \S+", r"\1 FOLDER", "\n".join(asked)).splitlines() == [
        f"docker image inspect --format {{{{.Id}}}} {IMAGE}",
        "aws ecr get-authorization-token --region us-west-2 --output json --cli-connect-timeout 5 "
        "--cli-read-timeout 15",
        f"docker --config FOLDER pull --quiet {IMAGE}",
        f"docker image inspect --format {{{{.Id}}}} {IMAGE}",
    ]


@pytest.mark.parametrize("image", ["", "docker.io/prom/node-exporter:latest", f"{IMAGE} --privileged", "-v"])
def test_nothing_else_is_pulled(host: FakeHost, image: str) -> None:
    with pytest.raises(StepError, match="not an image in Amazon ECR"):
        pull.ensure(host, image)


def test_a_pull_that_fails_says_why_and_leaves_no_token(host: FakeHost) -> None:
    commands(host, here=False)
    host.fail["docker"] = Result(1, "", "Error response from daemon: manifest unknown")
    with pytest.raises(StepError, match="manifest unknown"):
        pull.ensure(host, IMAGE)
    assert list(host.path("/run").iterdir()) == []


def test_images_are_pulled_from_the_regions_own_registry(host: FakeHost) -> None:
    for region in REGIONS.values():
        image = f"{region.registry(region.eks_images_account)}/{exporters.NODE_IMAGE}"
        commands(host, here=True)
        assert not pull.ensure(host, image)
