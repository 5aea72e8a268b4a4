"""The stack's own lines of slurm.conf on the controller: kept, tried first, and taken back where slurmctld fails."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import ConfFile, ExtraConf
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import change, conf, configure, extra_conf, trial
from hyperpod_node.slurm import controller as slurm

from components.catalogue.slurm_parameters import PARAMETERS
from tests.lifecycle.rig import FakeHost, World
from tests.lifecycle.slurm_rig import ready

ETC = "/opt/slurm/etc"
FILES = (ConfFile("a.conf", "MaxJobCount=5000\n# why\nKillWait=77\n"), ConfFile("b.conf", "PartitionName=x Nodes=ALL"))


def controller(world: World, files: Sequence[ConfFile] = FILES, code: int = 0) -> FakeHost:
    """A controller whose second slurmctld ends at lines with the word bad, as the script that starts it says.

    ``code``: what the script ends with otherwise.
    """
    host = world.node("controller")
    (world.source / extra_conf.FILE_NAME).write_text(parameters.render(ExtraConf("mine-12345678", tuple(files))))

    def unshare(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        folder = Path(args[3]).parent
        address, seconds = "10.1.0.10", str(trial.SECONDS)
        script = "/opt/hyperpod/bin/hyperpod-try-conf"
        assert tuple(args) == ("unshare", "--net", script, f"{folder}/slurm.conf", address, seconds)
        assert host.calls[-2] == ("chown", "-R", "root", str(folder))
        assert "StateSaveLocation" in Path(args[3]).read_text()
        included = [
            line.split()[1] for line in (folder / "hyperpod.conf").read_text().splitlines() if "include" in line
        ]
        text = "".join((folder / name).read_text() for name in included)
        (host.path("/tried")).write_text(text)
        words = 'slurmctld: error: "Include" failed\nslurmctld: fatal: it is bad\n'
        return Result(1, words) if "bad" in text else Result(code, "")

    host.commands |= {"unshare": unshare, "rm": remove, "chown": lambda host, args, stdin: Result(0)}
    return host


def remove(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    assert args[1] == "-rf"
    assert args[2].endswith(trial.FOLDER)
    shutil.rmtree(args[2], ignore_errors=True)
    return Result(0)


def booted(world: World) -> FakeHost:
    host = controller(world)
    node = ready(host)
    host.remember()
    slurm.run(node)
    return host


def test_lines_take_the_place_of_ours_and_stay_when_the_agent_writes_slurm_conf_anew(world: World) -> None:
    host = booted(world)
    agents = host.text(f"{ETC}/slurm.conf")
    for _ in range(2):
        ours = host.text(f"{ETC}/hyperpod.conf")
        assert ours.endswith("include hyperpod-own-a.conf\ninclude hyperpod-own-b.conf\n")
        assert "KillWait" not in ours
        assert host.text(f"{ETC}/hyperpod-own-b.conf") == FILES[1].text + "\n"
        whole = (world.shared / ".hyperpod/slurm/slurm.conf").read_text()
        assert conf.parse(whole).get("KillWait") == "77"
        assert "PartitionName=x Nodes=ALL" in whole
        host.path(f"{ETC}/slurm.conf").write_text(conf.without_include(agents))
        assert configure.configure_again(host)
        configure.publish(host, host.remember())


def test_a_partition_of_the_stacks_does_not_take_the_place_of_hyperpods(world: World) -> None:
    assert "PartitionName=gpu" in booted(world).text(f"{ETC}/hyperpod.conf")


def test_the_first_line_with_which_slurmctld_does_not_start_fails_the_step(world: World) -> None:
    host = controller(world, [FILES[0], ConfFile("b.conf", "# good\nX=bad\nY=bad\n")])
    node = ready(host)
    with pytest.raises(StepError, match=r"slurm\.extraConf: b\.conf, line 2: fatal: it is bad$"):
        slurm.run(node)
    assert "slurmctld" not in host.active
    assert not host.path(trial.FOLDER).exists()


@pytest.mark.parametrize("code", [1, 2])
def test_lines_are_not_blamed_where_slurmctld_starts_without_them_no_better(world: World, code: int) -> None:
    host = controller(world, code=code)
    node = ready(host)
    slurm.run(node)
    assert "could not be tried" in node.warnings["slurm"][0]


def test_a_living_controller_takes_lines_only_after_it_has_tried_them(world: World) -> None:
    host = booted(world)
    host.calls.clear()
    with pytest.raises(StepError, match=r"^a\.conf, line 1: fatal: it is bad"):
        change.apply(host, (ConfFile("a.conf", "X=bad\n"),))
    assert not host.ran("scontrol", "reconfigure")
    assert extra_conf.in_use(host) == FILES
    assert "KillWait=77" in host.text(f"{ETC}/hyperpod-own-a.conf")
    assert change.apply(host, (ConfFile("c.conf", "KillWait=78\n"),))
    assert host.ran("scontrol", "reconfigure")
    assert host.text(f"{ETC}/hyperpod.conf").endswith("include hyperpod-own-c.conf\n")
    assert not host.path(f"{ETC}/hyperpod-own-a.conf").exists()
    assert "KillWait=78" in (world.shared / ".hyperpod/slurm/slurm.conf").read_text()
    assert not change.apply(host, (ConfFile("c.conf", "KillWait=78\n"),))
    assert change.apply(host, ())
    assert "KillWait=10" in host.text(f"{ETC}/hyperpod.conf")


def test_the_lines_of_before_are_back_where_slurmctld_does_not_take_the_new_ones(world: World) -> None:
    host = booted(world)
    scontrol = host.commands["scontrol"]
    host.commands["scontrol"] = lambda host, args, stdin: (
        Result(1, err="no") if "reconfigure" in args else scontrol(host, args, stdin)
    )
    with pytest.raises(StepError, match=r"failed: no; the previous lines were restored"):
        change.apply(host, (ConfFile("c.conf", "KillWait=78\n"),))
    assert extra_conf.in_use(host) == FILES
    assert host.text(f"{ETC}/hyperpod.conf").endswith("include hyperpod-own-a.conf\ninclude hyperpod-own-b.conf\n")
    assert host.ran("systemctl", "restart", "slurmctld")


def test_what_is_for_the_database_is_not_tried_where_none_answers(world: World) -> None:
    host = controller(
        world, [ConfFile("a.conf", 'accountingstoragetres=x\nPartitionName=x TRESBillingWeights="a=1" Nodes=ALL')]
    )
    slurm.run(ready(host))
    assert host.text("/tried") == "\nPartitionName=x  Nodes=ALL\n"


def test_only_a_controller_takes_lines(world: World) -> None:
    host = world.node("login")
    host.remember()
    with pytest.raises(StepError, match="only the controller"):
        change.apply(host, ())


def test_what_the_nodes_set_themselves_is_known_to_slurm() -> None:
    """The table is of the man page; names that our own scripts write check it."""
    text = conf.render(conf.parse(""), {}, {}, "/opt/hyperpod/bin", contain=True, database="x")
    ours = [line.split("=")[0] for line in text.splitlines() if "=" in line and not line.startswith("PartitionName")]
    assert [name for name in ours if name.lower() not in PARAMETERS] == []
    assert all(PARAMETERS[name.lower()].instead for name in ("Prolog", "GresTypes", "HealthCheckProgram"))


# hyperpod-slurm-config


@pytest.fixture
def living(world: World, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """A controller that has booted with FILES; the bucket has others."""
    host = booted(world)
    files = (ConfFile("c.conf", "KillWait=78\n"),)
    world.objects["s3://bucket/lines"] = parameters.render(ExtraConf("mine-12345678", files))
    monkeypatch.setattr(change, "Host", lambda settings: host)
    return host


def test_a_living_controller_takes_the_lines_of_the_bucket_and_says_which(
    living: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    digests, before = set(), living.tree()
    assert change.main(["s3://bucket/lines", "--region", "us-west-2", "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["files"], planned["changed"], living.tree()) == (["c.conf"], True, before)
    for changed in (True, False):
        assert change.main(["s3://bucket/lines", "--region", "us-west-2"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["files"], told["changed"]) == (["c.conf"], changed)
        digests.add(told["digest"])
    assert digests == {extra_conf.digest(extra_conf.in_use(living))}
    assert change.main([]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == []
    assert extra_conf.in_use(living) == ()


def test_lines_that_are_missing_or_anothers_change_nothing(
    living: FakeHost, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.objects["s3://bucket/other"] = world.objects["s3://bucket/lines"].replace("mine-1", "other-1")
    world.objects["s3://bucket/half"] = world.objects["s3://bucket/lines"][:20]
    before = living.tree()
    for name, said in (
        ("none", "404"),
        ("other", "s3://bucket/other is of the cluster other-12345678"),
        ("half", "s3://bucket/half cannot be read"),
    ):
        assert change.main([f"s3://bucket/{name}", "--region", "us-west-2"]) == 1
        error = capsys.readouterr().err
        assert error.startswith("hyperpod-slurm-config: ")
        assert said in error
    assert living.tree() == before


def test_a_controller_that_does_not_answer_gets_the_lines_of_before(living: FakeHost) -> None:
    scontrol = living.commands["scontrol"]
    living.commands["scontrol"] = lambda host, args, stdin: (
        Result(1, err="down") if "ping" in args else scontrol(host, args, stdin)
    )
    began = living.clock
    assert change.main(["s3://bucket/lines", "--region", "us-west-2"]) == 1
    assert extra_conf.in_use(living) == FILES
    assert living.clock - began >= change.ANSWERS_SECONDS


def test_lines_are_tried_with_this_clusters_groups_nodes_and_what_workers_have_noted(
    living: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, ...]] = []

    def refusal(*given: Any) -> str:
        seen.append(given)
        return "not these"

    monkeypatch.setattr(trial, "refusal", refusal)
    assert change.main(["s3://bucket/lines", "--region", "us-west-2"]) == 1
    with pytest.raises(StepError, match=r"^slurmctld does not start with slurm\.extraConf: not these$"):
        slurm.run(ready(living))
    for (host, record, instances, files), wanted in zip(seen, ("KillWait=78\n", FILES[0].text), strict=True):
        assert (host, record, files[0].text) == (living, living.remember(), wanted)
        assert len(instances) == 4
