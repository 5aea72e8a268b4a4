"""``hyperpod-find-slow-node``: which node, link or switch is slow, from tests between pairs."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import nccl_test, pairs, slow_node
from hyperpod_commands.cluster import Trouble, Workers
from hyperpod_commands.pairs import Pair

from tests.lifecycle.commands.test_commands import answering, fact
from tests.lifecycle.rig import group, record

FAST, SLOW = 40.0, 12.0
Slow = Callable[[str, str], bool]


def names(number: int) -> list[str]:
    return [f"n{place:02}" for place in range(number)]


def measured(nodes: list[str], slow: Slow) -> list[Pair]:
    """Every pair of every round: healthy ones differ by a few percent."""
    found = [pair for members in pairs.rounds(nodes) for pair in members]
    return [Pair(pair, SLOW if slow(*pair) else FAST + place % 3) for place, pair in enumerate(found)]


def test_pairs_of_a_round_are_disjoint_and_no_pair_comes_twice() -> None:
    for number in range(2, 40):
        every = [frozenset(pair) for members in pairs.rounds(names(number)) for pair in members]
        assert len(set(every)) == len(every)
        for members in pairs.rounds(names(number)):
            there = [node for pair in members for node in pair]
            assert len(set(there)) == len(there) == number - number % 2


def test_the_number_of_rounds_grows_with_the_logarithm_of_the_nodes() -> None:
    assert {number: len(pairs.rounds(names(number))) for number in (2, 3, 4, 8, 64, 1000)} == {
        2: 1, 3: 3, 4: 3, 8: 4, 64: 7, 1000: 11,
    }  # fmt: skip


def test_a_slow_node_is_named_alone_whichever_it_is_in_clusters_of_every_size() -> None:
    for number in (*range(3, 20), 33, 64):
        nodes = names(number)
        for bad in nodes:
            found = pairs.judge(measured(nodes, lambda *pair, bad=bad: bad in pair), None, {})
            assert (found.nodes, found.links, found.common) == ((bad,), (), False), (number, bad)


def test_two_slow_nodes_are_both_named() -> None:
    nodes = names(16)
    for other in nodes[1:]:
        found = pairs.judge(measured(nodes, lambda *pair, other=other: bool({"n00", other} & {*pair})), None, {})
        assert found.nodes == ("n00", other)


def test_a_slow_link_is_not_blamed_on_its_nodes() -> None:
    nodes = names(8)
    link = pairs.rounds(nodes)[1][2]
    found = pairs.judge(measured(nodes, lambda *pair: pair == link), None, {})
    assert (found.nodes, found.links) == ((), (link,))
    assert f"slow link: {link[0]} - {link[1]}; both are fast with others" in pairs.verdict(found)


def test_a_slow_switch_is_not_blamed_on_nodes_or_links() -> None:
    nodes = names(16)
    blocks = {node: f"leaf-{place // 8}" for place, node in enumerate(nodes)}
    found = pairs.judge(measured(nodes, lambda one, other: blocks[one] != blocks[other]), None, blocks)
    assert (found.nodes, found.links, found.switches) == ((), (), (("leaf-0", "leaf-1"),))
    assert pairs.verdict(found)[-2:] == ["slow switch: every pair between leaf-0 and leaf-1", "FAIL"]


def test_a_pair_whose_test_fails_counts_as_slow() -> None:
    found = pairs.judge([Pair(("a", "b"), None, "no route"), Pair(("a", "c"), None), Pair(("b", "c"), FAST)], None, {})
    assert found.nodes == ("a",)
    assert pairs.verdict(found) == [
        "Fastest pair: 40.00 GB/s; slow is below 32.00 GB/s",
        "slow node: a, in most of its pairs",
        "FAIL",
    ]


def test_where_every_pair_is_below_the_wires_threshold_no_node_is_blamed() -> None:
    found = pairs.judge(measured(names(8), lambda *pair: False), 100.0, {})
    assert (found.common, found.nodes, found.good) == (True, (), False)
    assert pairs.verdict(found)[1:] == [
        "every pair is below 100.00 GB/s: the cause is common to all, not one node",
        "FAIL",
    ]


def test_a_healthy_cluster_passes() -> None:
    found = pairs.judge(measured(names(8), lambda *pair: False), 28.0, {})
    assert found.good
    # What is just fast enough is.
    assert pairs.judge([Pair(("a", "b"), FAST), Pair(("a", "c"), 0.8 * FAST), Pair(("b", "c"), FAST)], None, {}).good
    assert pairs.verdict(found)[-1] == "PASS"


def output(busbw: float) -> str:
    return f"   1073741824  268435456  float  sum  -1  1.0  1.0  {busbw}  0\n# Avg bus bandwidth : {busbw}\n"


@pytest.fixture
def allocation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Inside an allocation of four p5 nodes under two leaf switches; n3 is slow."""
    facts = [fact(name) for name in ("n4", "n1", "n3", "n2")]
    asked: dict[str, Any] = {"commands": []}
    workers = group("workers", "ml.p5.48xlarge")
    monkeypatch.setattr(slow_node, "record", lambda: record(group("controller", "ml.m5.xlarge"), workers))
    monkeypatch.setattr(slow_node, "as_person", {"hyperpod-find-slow-node": None}.__getitem__)
    monkeypatch.setattr(slow_node, "ask_workers", lambda nodes: Workers(facts[:nodes]))
    monkeypatch.setenv("HYPERPOD_INSIDE", "4")

    leaf_0, leaf_1 = (f"SwitchName=leaf-{one} Level=0 LinkSpeed=1 Nodes=n[{one + 1},{one + 3}]\n" for one in (0, 1))
    slurm = {
        "scontrol show topology": f"{leaf_0}{leaf_1}SwitchName=root Level=1 Nodes=n[1-4]\n",
        "scontrol show hostnames n[1,3]": "n1\nn3",
        "scontrol show hostnames n[2,4]": "n2\nn4",
    }

    def run_test(command: list[str], timeout: float, show: object) -> tuple[int, str]:
        asked["commands"].append(command)
        assert timeout == 180
        hosts = command[command.index("--host") + 1]
        return 0, output(120.0 if "n3" in hosts else 400.0)

    monkeypatch.setattr(slow_node, "run", answering(slurm, seconds=20))
    monkeypatch.setattr(nccl_test, "run_test", run_test)
    return asked


def test_the_command_tests_pairs_with_every_gpu_of_both_and_names_the_slow_node(
    allocation: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [slow_node.NAME, "--json"])
    assert slow_node.main() == 1
    shown = capsys.readouterr().out
    document = json.loads(shown)
    assert shown == json.dumps(document, indent=2, sort_keys=True) + "\n"
    assert document["tested"] == ["n1", "n3", "n2", "n4"], "neighbours come first"
    assert (document["nodes"], document["links"], document["passed"]) == (["n3"], [], False)
    assert [sorted(pair) for pair in document["pairs"]] == [["busbw", "nodes", "reason"]] * 6
    assert sorted(document) == [
        "common", "fastest", "limit", "links", "nodes", "pairs", "passed", "switches", "test", "tested",
    ]  # fmt: skip
    assert (document["test"], document["common"], document["switches"]) == ("nccl", False, [])
    # 70 % of p5's 3,200 Gbit/s.
    assert document["limit"] == pytest.approx(max(280.0, 0.8 * document["fastest"]))
    hosts = {command[command.index("--host") + 1] for command in allocation["commands"]}
    assert hosts == {",".join(f"{node}:8" for node in pair["nodes"]) for pair in document["pairs"]}
    assert "n1:8,n4:8" in hosts
    assert all(command[command.index("-np") + 1] == "16" for command in allocation["commands"])
    assert {" ".join(command).partition("_perf ")[2] for command in allocation["commands"]} == {
        "-b 1G -e 1G -f 2 -g 1 -c 1 -n 20"
    }


@pytest.mark.parametrize(
    ("kind", "more", "limit", "began", "ended"),
    [
        ("ml.trn1.32xlarge", {}, 35.0, "srun --mpi=none --nodes=1 --ntasks=1 --nodelist=n1 --overlap env ",
         " allr --nworkers 64 --nnodes 2 --hosts n1 n2 --minbytes 128mb --maxbytes 128mb --datatype bf16 --iters 20"),
        ("ml.g5.16xlarge", {"transport": "tcp", "nccl_tests": ""}, 0.625, "srun --mpi=none --nodes=2 --ntasks=2 ",
         "/gloo_sweep.py all_reduce --min 16M --max 16M --master 10.1.0.12 --iterations 5"),
    ],
)  # fmt: skip
def test_pairs_of_other_workers_run_their_own_test(
    kind: str,
    more: dict[str, str],
    limit: float,
    began: str,
    ended: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []

    def run_test(command: list[str], timeout: float, show: object) -> tuple[int, str]:
        ran.append(" ".join(command))
        assert timeout == 7
        return 0, f"{ran[0]}\n 134217728  67108864  bf16  7025.52  19.10  37.01\nAvg bus bandwidth: 37.01\n"

    monkeypatch.setattr(nccl_test, "run_test", run_test)
    tester = slow_node.Tester(Workers([fact(name, kind, **more) for name in ("n1", "n2")]), "trn" in kind, 7)
    found = tester.run()
    assert tester.threshold == pytest.approx(limit)
    assert ran[0].startswith(began)
    assert ran[0].endswith(ended)
    assert [pair.nodes for pair in found] == [("n1", "n2")]
    assert found[0].busbw == (37.01 if "trn" in kind else None), "gloo prints nccl-tests' columns"
    assert capsys.readouterr().out.startswith("round 1 of 1: n1 - n2 ")


@pytest.mark.parametrize("slurm", ["24.11's tree", "25.11's blocks"])
def test_the_topology_is_slurms_leaves_or_blocks(slurm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {
        "24.11's tree": "SwitchName=a Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=top Level=1 Nodes=n[1-3]\n",
        "25.11's blocks": "BlockName=a BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=empty BlockIndex=1\n",
    }[slurm]
    asked = {"scontrol show topology": shown, "scontrol show hostnames n[1-2]": "n1\nn2\n"}
    monkeypatch.setattr(slow_node, "run", answering(asked, seconds=20))
    assert slow_node.topology() == {"n1": "a", "n2": "a"}


def test_a_healthy_allocation_passes(
    allocation: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nccl_test, "run_test", lambda *_: (0, output(400.0)))
    monkeypatch.setattr(sys, "argv", [slow_node.NAME])
    assert slow_node.main() == 0
    out = capsys.readouterr().out
    assert "round 1 of 3: n1 - n4 400.00 GB/s" in out
    assert out.endswith("PASS\n")


@pytest.mark.parametrize(
    ("words", "limit", "passed"),
    [([], 280, False), (["--threshold", "300"], 300, False), (["--threshold", "0"], 200, True)],
)
def test_the_threshold_of_a_pair_is_the_types_or_ones_own(
    words: list[str],
    limit: int,
    passed: bool,
    allocation: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(nccl_test, "run_test", lambda *_: (0, output(250.0)))
    monkeypatch.setattr(sys, "argv", [slow_node.NAME, *words])
    assert slow_node.main() == int(not passed)
    assert f"Fastest pair: 250.00 GB/s; slow is below {limit}.00 GB/s\n" in capsys.readouterr().out


def test_a_test_that_ends_early_says_why(
    allocation: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nccl_test, "run_test", lambda *_: (1, "mpirun\nssh: no route to host"))
    monkeypatch.setattr(sys, "argv", [slow_node.NAME])
    assert slow_node.main() == 1
    assert "round 1 of 3: n1 - n4 failed: the test printed no result\n" in capsys.readouterr().out


def test_it_allocates_idle_workers_whole_all_or_as_many_as_asked_for(
    allocation: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HYPERPOD_INSIDE")
    idle = {"workers": 6}
    monkeypatch.setattr(slow_node, "idle_workers", lambda group: idle[group.name])
    ran: list[list[str]] = []

    def exec_(program: str, command: list[str]) -> None:
        ran.append(command)
        raise SystemExit

    monkeypatch.setattr("os.execvp", exec_)
    for words, nodes, partition in ([], 6, "gpu"), (["2", "-p", "gpu"], 2, "gpu"):
        monkeypatch.setattr(sys, "argv", [slow_node.NAME, *words])
        with pytest.raises(SystemExit):
            slow_node.main()
        assert ran.pop() == [
            "salloc", "--quiet", f"--nodes={nodes}", "--ntasks-per-node=8", "--exclusive", "--gres=gpu:8",
            f"--partition={partition}", "/opt/hyperpod/bin/hyperpod-find-slow-node", *words,
        ]  # fmt: skip
        assert os.environ.pop("HYPERPOD_INSIDE") == str(nodes)


@pytest.mark.parametrize(
    ("role", "words", "said"),
    [
        ("controller", [], "a pair needs two idle workers, and there is 1; see sinfo"),
        ("controller", ["-p", "other"], "no worker group has the partition other"),
        ("worker", [], "run this on the controller or a login node; it allocates the workers"),
    ],
)
def test_what_cannot_be_tested_is_said_in_one_line(
    role: str,
    words: list[str],
    said: str,
    allocation: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("HYPERPOD_INSIDE")
    first = group("first", "ml.m5.xlarge" if role == "controller" else "ml.p5.48xlarge")
    monkeypatch.setattr(slow_node, "record", lambda: record(first, group("workers", "ml.p5.48xlarge")))
    monkeypatch.setattr(slow_node, "idle_workers", lambda group: 1)
    monkeypatch.setattr(sys, "argv", [slow_node.NAME, *words])
    assert slow_node.entry() == 2
    assert capsys.readouterr().err == f"hyperpod-find-slow-node: {said}\n"


def test_without_a_topology_every_node_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(command: list[str], **_: Any) -> str:
        raise Trouble("topology/flat")

    monkeypatch.setattr(slow_node, "run", refuse)
    assert slow_node.topology() == {}
