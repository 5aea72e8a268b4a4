"""What people run: bandwidth read and rated, commands built from what the workers say."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import bandwidth, benchmark, cluster, nccl_test, nccom_test, node_facts
from hyperpod_commands.cluster import Trouble, Workers

from tests.lifecycle.rig import group

# As nccl-tests print it: a release with a root column and both halves, and an old one with one half.
NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 100 agg iters: 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    65.20    0.00    0.00      0    64.90    0.00    0.00      0
   134217728      33554432     float     sum      -1   5230.1   25.66   48.12      0   5210.4   25.76   48.30      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 24.1050
"""
OLD = """   134217728      33554432     float     sum    44510.9    3.02    3.02  1e-07
  4294967296    1073741824     float     sum    1427063    3.01    3.01      0
# Avg bus bandwidth: 1.18
"""
NCCOM = """ size(B)  count(elems)  type  time:avg(us)  algbw(GB/s)  busbw(GB/s)
 1048576        524288  bf16        145.12         7.23        14.00
134217728     67108864  bf16       7025.52        19.10        37.01
Avg bus bandwidth:      13.2900GB/s
"""


def fact(name: str, kind: str = "ml.p5.48xlarge", transport: str = "efa-rdma", **changes: Any) -> dict[str, Any]:
    row = asdict(group("workers", kind))
    return {
        "hostname": name,
        "address": "10.1.0.12",
        "group": row,
        "transport": transport,
        "environment": {"HYPERPOD_TRANSPORT": transport, "NCCL_DEBUG": "WARN", "FI_PROVIDER": "efa"},
        "devices": row["accelerators"],
        "nccl_tests": "/usr/local/cuda/efa/test-cuda-12",
        "mpirun": "/opt/amazon/openmpi/bin/mpirun",
        "nccom_test": "/opt/aws/neuron/bin/nccom-test",
        "python": "/usr/bin/python3",
        **changes,
    }


def options(**changes: Any) -> Namespace:
    found = nccl_test.parser().parse_args([])
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_nccl_tests_are_found_where_images_and_people_put_them_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_facts, "Path", lambda top: tmp_path if top == "/" else Path(top))
    assert node_facts.nccl_tests() == ""
    for folder in (
        "usr/local/bin",
        "usr/local/nccl-tests/build",
        "opt/nccl-tests/build",
        "usr/local/cuda-12.8/efa/test-cuda-12.8",
        "usr/local/cuda-13.0/efa/test-cuda-13.0",
    ):
        (program := tmp_path / folder / "all_reduce_perf").parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
        assert node_facts.nccl_tests() == str(tmp_path / folder)
    program.chmod(0o644)
    assert node_facts.nccl_tests() == str(tmp_path / "usr/local/cuda-12.8/efa/test-cuda-12.8"), "it is no program"


def test_both_forms_of_nccl_tests_output_are_read() -> None:
    new = bandwidth.rate("nccl", NCCL, 1.0)
    assert [(row.size, row.busbw, row.wrong) for row in new.rows] == [(8, 0.0, 0), (134217728, 48.30, 0)]
    assert (new.passed, new.average, new.wrong) == (True, 24.105, 0)
    old = bandwidth.rate("nccl", OLD, 1.0)
    assert [(row.time_us, row.busbw) for row in old.rows] == [(44510.9, 3.02), (1427063.0, 3.01)]
    # The first release's last column is the largest error, which is never quite 0.
    assert (old.passed, old.average, old.wrong) == (True, 1.18, 0)


def test_nccom_tests_output_is_read() -> None:
    found = bandwidth.rate("nccom", NCCOM, 1.0)
    assert [(row.size, row.type, row.busbw) for row in found.rows] == [
        (1048576, "bf16", 14.0),
        (134217728, "bf16", 37.01),
    ]
    assert (found.passed, found.average) == (True, 13.29)


@pytest.mark.parametrize(
    ("kind", "healthy", "sick"),
    [
        ("ml.p5.48xlarge", 350, 100),
        ("ml.p4d.24xlarge", 35, 10),
        ("ml.g5.48xlarge", 12, 4),
        ("ml.g5.16xlarge", 3.02, 1),
    ],
)
def test_the_threshold_lies_between_healthy_and_sick_nodes(kind: str, healthy: float, sick: float) -> None:
    limit = bandwidth.threshold("all_reduce", "nccl", group("w", kind).network_gbps, 2, 8)
    assert limit is not None
    assert sick < limit <= healthy


def test_the_threshold_follows_from_the_wire_the_share_of_gpus_and_the_collective() -> None:
    assert bandwidth.threshold("all_reduce", "nccl", 3200, 2, 8) == pytest.approx(280)
    assert bandwidth.threshold("all_reduce", "nccl", 3200, 16, 8) == pytest.approx(280)
    assert bandwidth.threshold("all_reduce", "nccl", 3200, 2, 4, 0.5) == pytest.approx(140)
    assert bandwidth.threshold("alltoall", "nccl", 3200, 2, 8) == pytest.approx(280 / 8 * 15 / 8)
    assert bandwidth.threshold("sendrecv", "nccl", 3200, 2, 8) is None
    assert bandwidth.threshold("all_reduce", "nccl", 3200, 1, 8) is None


def test_the_reported_trn1_result_passes() -> None:
    limit = bandwidth.threshold("all_reduce", "nccom", 800, 2, 32)
    assert bandwidth.rate("nccom", NCCOM, limit).passed


@pytest.mark.parametrize(
    ("text", "limit", "reason"),
    [
        (NCCL, 50.0, "peak 48.30 GB/s is below 50.00 GB/s"),
        ("nothing", 1.0, "the test printed no result"),
        (NCCL.replace("48.30      0", "48.30      3"), 1.0, "3 wrong values: data was corrupted in transit"),
        # What nccl-tests prints of a million and more.
        (NCCL.replace("48.30      0", "48.30 2.68435e+08"), 1.0,
         "268435000 wrong values: data was corrupted in transit"),
        (NCCL.replace("0 OK", "4 FAILED"), 1.0, "out of bounds values: 4"),
        (NCCL.replace("48.30", "nan"), 1.0, "a row cannot be read: 134217728"),
        (NCCL.replace("48.30", "inf"), 1.0, "a row cannot be read: 134217728"),
        (NCCL.replace("24.1050", "-nan"), 1.0, "the average bus bandwidth is -nan"),
        # Another rank's words in the middle of a row, as they come from mpirun.
        (NCCL.replace("-1   5230.1", "-1ip-10-1-0-1:51001:51040 [0] NCCL WARN NET/OFI Request completed with error"),
         1.0, "a row cannot be read: 134217728"),
        (NCCL.rpartition("#")[0], 1.0, "the output is incomplete: it has no average bus bandwidth"),
        (NCCL.replace("48.30      0", "48.30    N/A").replace("48.12      0", "48.12    N/A")
         .replace("0.00      0", "0.00    N/A"), None,
         "nothing to rate: no threshold is known, and the test did not check its values"),
    ],
)  # fmt: skip
def test_what_is_slow_silent_wrong_or_unrated_fails_with_the_reason(
    text: str, limit: float | None, reason: str
) -> None:
    rating = bandwidth.rate("nccl", text, limit)
    assert not rating.passed
    # Of a row its first column.
    assert rating.reasons[0].partition("  ")[0] == reason
    lines = bandwidth.verdict(rating, bandwidth.hints("tcp"))
    assert lines[-1] == "FAIL"
    assert any("EFA expected" in line for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        "mpirun noticed that process rank 3 with PID 4242 on node n2 exited on signal 6 (Aborted).",
        "n1:51001:51040 [0] NCCL WARN NET/OFI Request completed with error. RC: 4",
        "n2: Test NCCL failure common.cu:958 'remote process exited or there was a network error'",
    ],
)
def test_a_result_does_not_hide_other_errors(line: str) -> None:
    rating = bandwidth.rate("nccl", f"{NCCL}{line}\n", 1.0)
    assert (rating.passed, rating.reasons) == (False, [line])


def test_values_that_have_no_place_are_not_counted_as_wrong() -> None:
    """alltoall has no in-place form to check."""
    rating = bandwidth.rate("nccl", NCCL.replace("48.30      0", "48.30    N/A"), None)
    assert (rating.passed, rating.wrong) == (True, 0)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        (NCCOM, False),  # nobody knows whether values were checked, and one node has no threshold
        (f"nccom-test allr --nworkers 32 --datatype fp32 --check\n{NCCOM}", True),
        (f"nccom-test allr\n{NCCOM}nccom-test allr --check\n{NCCOM}", True),
        (f"nccom-test allr\n{NCCOM}nccom-test allr --check\n", False),  # the check said nothing
        (f"nccom-test allr\n{NCCOM}nccom-test allr --check\n{NCCOM.split('Avg')[0]}", False),  # nor got to its end
        ("nccom-test allr --check\n 33554432   Failure running neuron-bench - log file /tmp/a.log\n", False),
        (f"nccom-test allr --check\n{NCCOM}1 errors found - test failed\n", False),
    ],
)
def test_nccom_test_passes_only_where_something_was_rated(text: str, passed: bool) -> None:
    rating = bandwidth.rate("nccom", text, None)
    assert rating.passed is passed
    assert not passed or rating.wrong == 0
    shown = "\n".join(bandwidth.verdict(rating, []))
    assert ("not checked" in shown) is (rating.wrong is None)


def test_a_test_is_shown_as_it_runs_and_ended_when_it_takes_too_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nccl_test.run_test(["sh", "-c", "echo one; echo two >&2; exit 3"], 10) == (
        3,
        "sh -c 'echo one; echo two >&2; exit 3'\none\ntwo",
    )
    assert capsys.readouterr().out.splitlines()[1:] == ["one", "two"]
    code, text = nccl_test.run_test(["sh", "-c", "echo one; exec sleep 60"], 0.2)
    assert nccl_test.failure(code, text) == "the test timed out: one"
    monkeypatch.setattr(nccl_test, "GRACE", 0.1)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('\\xff', flush=True); time.sleep(60)"
    )
    assert nccl_test.run_test([sys.executable, "-c", deaf], 0.3)[0] == nccl_test.TIMED_OUT
    assert nccl_test.run_test(["printf", "\\377"], 10)[1].endswith("\ufffd")
    assert nccl_test.failure(*nccl_test.run_test(["false"], 10)) == "the test ended with status 1: no output"
    assert nccl_test.failure(0, "fine") == ""


def test_mpirun_keeps_mpi_on_sockets_and_gives_ranks_the_workers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    workers = Workers([fact("n1"), fact("n2")])
    command = " ".join(nccl_test.mpirun(options(nodes=2), workers, 8))
    assert command.startswith("/opt/amazon/openmpi/bin/mpirun -np 16 --map-by ppr:8:node")
    assert "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_exclude lo,docker0" in command
    assert "-x FI_PROVIDER=efa -x NCCL_DEBUG=WARN" in command
    assert command.endswith("/all_reduce_perf -b 8 -e 16G -f 2 -g 1 -c 1 -n 100")
    assert "HYPERPOD" not in command


def test_one_node_without_efa_makes_all_use_tcp_and_is_named() -> None:
    slow = fact("n2", transport="tcp", environment={"NCCL_NET_PLUGIN": "none"})
    workers = Workers([fact("n1"), slow])
    assert workers.transport == "tcp"
    assert workers.environment == {"NCCL_NET_PLUGIN": "none"}
    assert "n2 tcp" in workers.complaints()[0]


def test_a_lost_gpu_of_a_worker_is_named() -> None:
    assert Workers([fact("n1", devices=7)]).complaints() == ["n1 has 7 of 8 devices"]


def test_gloo_is_used_only_where_the_workers_have_nothing_better() -> None:
    assert nccl_test.choose(Workers([fact("n1")])) == "nccl"
    assert nccl_test.choose(Workers([fact("n1", transport="tcp", nccl_tests="")])) == "gloo"
    with pytest.raises(Trouble, match=r"the workers \(n1\) have no nccl-tests: all_reduce_perf is not in"):
        nccl_test.choose(Workers([fact("n1", nccl_tests="")]))


def test_gloo_without_pytorch_names_the_nodes() -> None:
    workers = Workers([fact("n1", python=""), fact("n2")])
    with pytest.raises(Trouble, match=r"no Python with PyTorch on n1"):
        nccl_test.gloo(options(nodes=2), workers)
    with pytest.raises(Trouble, match=r"gloo has no alltoall"):
        nccl_test.gloo(options(nodes=2, collective="alltoall"), workers)


def test_all_nine_collectives_are_known() -> None:
    assert len(nccl_test.COLLECTIVES) == 9


def test_nccom_test_runs_by_its_full_path_and_checks_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4007")
    workers = Workers([fact("n1", "ml.trn1.32xlarge"), fact("n2", "ml.trn1.32xlarge", address="10.1.0.13")])
    words = nccom_test.command(Namespace(collective="all_reduce", nodes=2), workers, 32, nccom_test.SWEEP)
    assert " ".join(words) == (
        "srun --mpi=none --nodes=1 --ntasks=1 --nodelist=n1 --overlap env "
        "NEURON_RT_ROOT_COMM_ID=10.1.0.12:61007 /opt/aws/neuron/bin/nccom-test allr "
        "--nworkers 64 --nnodes 2 --hosts n1 n2 --minbytes 1kb --maxbytes 128mb --stepfactor 2 --datatype bf16 "
        "--iters 5 --warmup_iters 5"
    )
    alone = " ".join(nccom_test.command(Namespace(collective="all_gather", nodes=1), workers, 32, nccom_test.CHECK))
    assert "NEURON_RT_ROOT_COMM_ID" not in alone
    assert " allg --nworkers 32 --minbytes" in alone
    assert alone.endswith("--datatype fp32 --check --iters 1")
    with pytest.raises(Trouble, match=r"the Neuron tools are not installed"):
        nccom_test.command(Namespace(collective="all_reduce", nodes=1), Workers([fact("n1", nccom_test="")]), 32, ())


def test_a_missing_record_points_to_the_summary(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match=r"did on_create.sh succeed here"):
        cluster.record(str(tmp_path / "node.json"))


def test_a_nodes_facts_come_from_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "task.env").write_text("FI_PROVIDER=efa\nNEURON_CC_FLAGS=--a=b\n")
    row = asdict(group("workers", "ml.m5.large"))
    (tmp_path / "node.json").write_text(json.dumps({"address": "1.2.3.4", "group": row, "transport": "tcp"}))
    found = node_facts.facts(str(tmp_path))
    assert found["environment"] == {"FI_PROVIDER": "efa", "NEURON_CC_FLAGS": "--a=b"}
    assert found["devices"] == 0
    assert "node.json" in node_facts.facts(str(tmp_path / "none"))["error"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--json"], ["3", "--json"]),
        (["--timeout", "600"], ["3", "--timeout", "600"]),
        (["2", "--timeout", "600"], ["2", "--timeout", "600"]),
    ],
)
def test_a_benchmark_runs_the_accelerators_test_on_the_idle_workers(
    given: list[str], wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = asdict(group("workers", "ml.trn1.32xlarge"))
    monkeypatch.setattr(benchmark, "record", lambda: {"role": "controller", "groups": [row]})
    monkeypatch.setattr(benchmark, "run", lambda command: "1 drain\n2 alloc\n2 idle\n1 idle\n4 idle*\n")
    monkeypatch.setattr(sys, "argv", ["hyperpod-benchmark", *given])
    became: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda path, words: became.append((path, words)))
    benchmark.main()
    assert became == [("/opt/hyperpod/bin/run-nccom-test", ["run-nccom-test", *wanted])]


@pytest.mark.parametrize(
    ("module", "kind", "devices"), [(nccl_test, "ml.p4d.24xlarge", 8), (nccom_test, "ml.trn1.32xlarge", 16)]
)
def test_a_network_test_is_of_the_partition_that_is_asked_for(
    module: Any, kind: str, devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [asdict(group("other", "ml.g5.8xlarge")), {**asdict(group("own", kind)), "partition": "own"}]
    monkeypatch.setattr(module, "record", lambda: {"role": "controller", "groups": groups})
    monkeypatch.setattr(module, "as_person", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["run", "2", "--partition", "own"])
    monkeypatch.setenv("HYPERPOD_INSIDE", "")
    asked: list[tuple[Any, ...]] = []

    def allocate(*words: Any) -> None:
        asked.append(words)
        raise SystemExit

    monkeypatch.setattr(module, "allocate", allocate)
    with pytest.raises(SystemExit):
        module.main()
    assert asked[0][0] == 2
    assert asked[0][1] == devices
    assert asked[0][3] == "own"
