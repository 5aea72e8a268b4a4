"""What the nodes' commands share: who runs them, on which workers, and what they say where that fails."""

import json
import os
import pwd
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import cluster, nanogpt, nccl_test
from hyperpod_commands.cluster import Trouble
from hyperpod_node.facts.model import NodeRole

from tests.lifecycle.commands.test_commands import answering, fact
from tests.lifecycle.rig import group, record


def test_root_goes_on_as_ubuntu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "execvp", lambda program, words: became.append([{"runuser": ()}[program], *words][1:]))
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(sys, "argv", ["anything", "4", "--json"])
    monkeypatch.setattr(pwd, "getpwnam", lambda user: {"ubuntu": Namespace(pw_dir=str(tmp_path))}[user])
    monkeypatch.chdir("/")
    cluster.as_person("run-nccl-test")
    assert became == [["runuser", "-u", "ubuntu", "--", "/opt/hyperpod/bin/run-nccl-test", "4", "--json"]]
    assert dict(os.environ) == {"HOME": str(tmp_path), "USER": "ubuntu", "LOGNAME": "ubuntu"}
    assert Path.cwd() == tmp_path
    monkeypatch.setattr(cluster, "PERSON", "nobody-of-that-name")
    said = r"^cannot continue as nobody-of-that-name \(.*\); run it as a user with a home folder here$"
    with pytest.raises(Trouble, match=said):
        cluster.as_person("run-nccl-test")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    cluster.as_person("run-nccl-test")
    assert len(became) == 1


@pytest.mark.parametrize("command", ["run-nanogpt", "run-nccl-test"])
def test_session_managers_own_user_goes_on_as_ubuntu(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """With accounting Slurm refuses a job of somebody without an association (slurm.conf(5), AccountingStorageEnforce).
    The user of a session has none, and is on no worker either."""

    class Became(Exception):
        pass

    def become(program: str, words: list[str]) -> None:
        raise Became(program, words)

    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {1001: Namespace(pw_name="ssm-user")}[uid])
    monkeypatch.setattr(os, "execvp", become)
    monkeypatch.setattr(sys, "argv", [command, "2"])
    with pytest.raises(Became) as became:
        {"run-nanogpt": nanogpt.main, "run-nccl-test": nccl_test.main}[command]()
    program, words = became.value.args
    assert (program, words[:6]) == ("sudo", ["sudo", "-n", "-H", "-u", "ubuntu", "--"])
    assert words[-2:] == [f"/opt/hyperpod/bin/{command}", "2"]


def test_workers_that_do_not_answer_are_counted_and_one_without_record_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(*lines: str) -> None:
        asked = f"srun --mpi=none --nodes={number} --ntasks={number} --ntasks-per-node=1 --gres=none"
        answers = {f"{asked} /opt/hyperpod/bin/hyperpod-node-facts": "\n".join(lines), "scontrol show hostnames": order}
        monkeypatch.setattr(cluster, "run", answering(answers))

    number, order = 2, "n1\nn2\n"
    one, two = (json.dumps(fact(name)) for name in ("n1", "n2"))
    answer(two, "srun: a word of warning", one)
    assert cluster.ask_workers(2).names == ["n1", "n2"], "in Slurm's order"
    answer(one, one)
    with pytest.raises(Trouble, match=r"^1 of 2 workers answered: n1$"):
        cluster.ask_workers(2)
    answer("")
    with pytest.raises(Trouble, match=r"^0 of 2 workers answered: none$"):
        cluster.ask_workers(2)
    answer(one, json.dumps({"hostname": "n2", "error": "no node.json"}))
    with pytest.raises(Trouble, match=r"^n2: no node\.json$"):
        cluster.ask_workers(2)
    # Slurm's names are not the nodes' own.
    number, order = 1, "worker-1\n"
    answer(one)
    assert cluster.ask_workers(1).names == ["n1"]


def test_the_worker_group_is_the_first_or_the_first_of_the_partition() -> None:
    roles: list[tuple[str, NodeRole, str]] = [("c", "controller", "b"), ("w1", "worker", "a"), ("w2", "worker", "b")]
    groups = [replace(group(name, "ml.p5.48xlarge"), role=role, partition=partition) for name, role, partition in roles]
    assert cluster.worker_group(record(*groups), None).name == "w1"
    assert cluster.worker_group(record(*groups), "b").name == "w2"
    assert cluster.worker_group(record(*groups), "w2").partition == "b"
    for found, partition, said in (
        (groups, "x", "no worker group has the partition x"),
        (groups[:1], None, "the cluster has no workers"),
    ):
        with pytest.raises(Trouble, match=f"^{said}$"):
            cluster.worker_group(record(*found), partition)


def test_a_group_that_shares_a_partition_is_measured_in_its_own() -> None:
    cpus = replace(group("prepare", "ml.m5.xlarge"), role="worker", partition="prepare")
    shared = [replace(group(name, "ml.p5.48xlarge"), partition="gpu") for name in ("reserved", "trial")]
    for asked, wanted in ((None, "reserved"), ("trial", "trial"), ("gpu", "reserved"), ("prepare", "prepare")):
        assert cluster.worker_group(record(cpus, *shared), asked).partition == wanted


def test_whole_nodes_are_allocated_and_the_command_goes_on_inside(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda program, words: became.append([{"salloc": ()}[program], *words][1:]))
    cluster.allocate(2, 8, "gpu", "dev", ["/opt/hyperpod/bin/run-nccl-test", "2"])
    cluster.allocate(1, 1, "", None, ["x"])
    assert became == [
        ["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=8", "--exclusive", "--gres=gpu:8", "--partition=dev",
         "/opt/hyperpod/bin/run-nccl-test", "2"],
        ["salloc", "--quiet", "--nodes=1", "--ntasks-per-node=1", "--exclusive", "x"],
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "waiting for 2 idle nodes of partition dev; `squeue` shows who has them, Ctrl-C cancels",
        "waiting for 1 idle nodes; `squeue` shows who has them, Ctrl-C cancels",
    ]
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    said = r"^command not found: salloc; run this on the controller or a login node$"
    with pytest.raises(Trouble, match=said):
        cluster.allocate(1, 1, "", None, ["x"])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sh", "-c", "echo first >&2; echo the reason >&2; exit 3"], r"^`sh -c .*` failed: the reason$"),
        (["sh", "-c", "echo the reason; exit 3"], r"failed: the reason$"),
        # Of a long one its first four words.
        (["sh", "-c", "exit 3", "x", "y"], r"^`sh -c exit 3 x` failed: exit status 3$"),
        (["sleep", "9", "0", "0", "0"], r"^`sleep 9 0 0` did not end within 0 s$"),
        (["no-such-command"], r"^command not found: no-such-command$"),
        (["sleep", "9"], r"^`sleep 9` did not end within 0 s$"),
    ],
)
def test_a_command_that_fails_says_why(command: list[str], said: str) -> None:
    with pytest.raises(Trouble, match=said):
        cluster.run(command, timeout=0.1 if command[0] == "sleep" else 5)


def test_a_command_reads_what_it_is_given_and_its_output_is_text() -> None:
    assert cluster.run(["sh", "-c", "cat; echo aside >&2"], stdin="größer\n") == "größer\n"
