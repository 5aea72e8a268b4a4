"""``benchmark``: real outputs of nccl-tests and nccom-test, whole, cut short and broken, rated by the wire."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import nccl_test, nccom_test

from operations import records
from operations.cluster import benchmark, sessions
from operations.cluster.sessions import Remote
from operations.failures import Exit, Failure
from tests.operations.aws import (
    NODES,
    FakeKubernetes,
    StubbedAws,
    command,
    ended,
    ended_json,
    node,
    run,
    run_json,
    stack,
    with_nodes,
    with_session,
)

HEAD = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 100 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1001 on ip-10-1-1-1 device  0 [0000:53:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1002 on ip-10-1-1-2 device  0 [0000:53:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """\
           8             2     float     sum      -1    41.21    0.00    0.00      0    40.02    0.00    0.00      0
     1048576        262144     float     sum      -1   120.50    8.70   16.31      0   119.00    8.81   16.52      0
  1073741824     268435456     float     sum      -1  4500.00  238.61  {large:.2f}      {wrong}  4510.0  238.08  {large:.2f}      {wrong}
"""  # noqa: E501
TAIL = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 150.12\n#\n"
NCCOM = """\
     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)
        1024             512     bf16          60           0.02           0.03
   134217728        67108864     bf16        5000          26.84          {large:.2f}
Avg bus bandwidth:      18.1234GB/s
"""


def nccl(large: float = 450.0, wrong: int = 0) -> str:
    """What all_reduce_perf prints on two p5 nodes with one rank each."""
    return HEAD + ROWS.format(large=large, wrong=wrong) + TAIL


@pytest.mark.parametrize(
    ("large", "passed"),
    # p5: 3,200 Gbit/s are 400 GB/s of wire; one of eight GPUs' share of it, and 70% of that, is the threshold.
    [(450.0, True), (36.0, True), (34.0, False)],
)
def test_the_threshold_is_the_wire_rate_of_the_devices_used(large: float, passed: bool, aws: StubbedAws) -> None:
    result = benchmark.rate_text(stack(aws, "slurm-gpu"), nccl(large), "all_reduce")
    assert result.threshold == pytest.approx(3200 / 8 / 8 * 0.7)
    assert (result.nodes, result.ranks_per_node) == (2, 1)
    assert result.passed is passed
    assert bool(result.hints) is not passed


@pytest.mark.parametrize(("name", "ranks"), [("dev", "1 rank each"), ("slurm-gpu", "8 ranks each")])
def test_a_result_says_how_many_ranks_a_node_had(name: str, ranks: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    assert f", {ranks}, " in run("benchmark", name, "--from", str(tmp_path / "log"))[1].splitlines()[0]


@pytest.mark.parametrize(("large", "passed"), [(50.0, True), (20.0, False)])
def test_trainium_is_rated_by_its_own_test(large: float, passed: bool, aws: StubbedAws) -> None:
    result = benchmark.rate_text(stack(aws, "slurm-trainium"), NCCOM.format(large=large), "all_reduce")
    assert result.test == "nccom"
    assert result.threshold == pytest.approx(800 / 8 * 0.35)
    assert result.passed is passed


def _on_the_nodes(passed: bool) -> dict[str, Any]:
    """What run-nccl-test --json prints."""
    row = {"size": 1 << 30, "count": 1, "type": "float", "time_us": 1.0, "algbw": 2.0, "busbw": 3.0, "wrong": 0}
    return {
        "test": "nccl", "collective": "all_gather", "backend": "gloo", "transport": "tcp", "nodes": ["a", "b"],
        "ranks_per_node": 1, "instance_type": "ml.g5.16xlarge", "warnings": [], "rows": [row], "passed": passed,
        "average": 2.5, "peak": 3.0, "threshold": 2.2, "wrong": 0, "reasons": [] if passed else ["too slow"],
    }  # fmt: skip


@pytest.mark.parametrize("passed", [True, False])
def test_slurm_runs_the_nodes_own_command_and_keeps_history_and_picture(
    passed: bool, aws: StubbedAws, plugin: Path, tmp_path: Path
) -> None:
    document = json.dumps(_on_the_nodes(passed), indent=2)
    command(
        plugin, "run-nccl-test", f'echo "all_gather, 2 nodes" >&2\necho "$@" >&2\ncat <<END\n{document}\nEND\nexit 1'
    )
    with_nodes(aws)
    with_session(aws)
    picture = tmp_path / "bandwidth.png"
    words = ("benchmark", "dev", "--collective", "all_gather", "--nodes", "2", "--picture", str(picture))
    code, (found,) = run_json(*words)
    assert code == (Exit.GOOD if passed else Exit.FAILED)
    assert (found["peak"], found["threshold"], found["transport"]) == (3.0, 2.2, "tcp")
    assert picture.read_bytes().startswith(b"\x89PNG")
    (kept,) = records.read(stack(aws), "benchmarks")
    assert (kept["collective"], kept["peak"], kept["passed"]) == ("all_gather", 3.0, passed)
    assert kept["time"]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are empty: drawing one takes a third of a second, and another test looks at them."""
    monkeypatch.setattr(benchmark, "draw", lambda result, path: None)


@pytest.mark.usefixtures("undrawn")
def test_several_collectives_are_run_one_after_the_other(aws: StubbedAws, plugin: Path) -> None:
    good, bad = json.dumps(_on_the_nodes(True), indent=2), json.dumps(_on_the_nodes(False), indent=2)
    command(plugin, "run-nccl-test", f"[ $3 = all_gather ] && echo '{good}' || echo '{bad}'")
    with_nodes(aws)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": list(NODES)})
    for _ in range(2):
        with_session(aws)
    several = ("--collective", "all_gather", "--collective", "broadcast")
    found = ended_json(Exit.FAILED, "benchmark", "dev", *several)
    assert [one["passed"] for one in found] == [True, False]
    # A name that is wrong is refused before the first test runs.
    _, err = ended(Exit.BAD_INPUT, "benchmark", "dev", "--collective", "all_reduce", "--collective", "all_gater")
    assert "all_gater" in err
    assert run("benchmark", "dev", *several, "--picture", "x.png")[0] == Exit.BAD_INPUT


@pytest.mark.usefixtures("undrawn")
def test_the_last_good_result_is_compared_with(aws: StubbedAws, tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    for large in (450.0, 20.0, 400.0):
        log.write_text(nccl(large))
        code, out, _ = run("benchmark", "slurm-gpu", "--from", str(log))
    assert code == Exit.GOOD
    assert "the last passing run had a peak of 450.00 GB/s" in out
    assert out.rstrip().endswith("PASS")


def test_trouble_on_the_cluster_is_said_in_its_own_words(aws: StubbedAws, plugin: Path) -> None:
    command(plugin, "run-nccl-test", "echo 'run-nccl-test: 1 of 2 workers answered: ip-10-1-1-1' >&2; exit 2")
    with_nodes(aws)
    with_session(aws)
    _, err = ended(Exit.FAILED, "benchmark", "dev")
    assert "1 of 2 workers answered" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("slurm-trainium", "--collective", "broadcast"), "one of all_reduce"),
        (("eks-gpu", "--collective", "all_gater"), "one of all_reduce"),
        (("eks-trainium", "--collective", "broadcast"), "one of all_reduce"),
        (("dev", "--nodes", "9"), "workers has 2"),
        (("dev", "--from", "/nowhere/at-all"), "No such file"),
    ],
)
def test_what_cannot_be_measured_is_bad_input(words: tuple[str, ...], said: str, aws: StubbedAws) -> None:
    _, err = ended(Exit.BAD_INPUT, "benchmark", *words)
    assert said in err


@pytest.mark.parametrize("ends", ["Succeeded", "Failed"])
def test_kubernetes_runs_the_job_reads_its_launcher_and_deletes_it(
    ends: str, aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    text = nccl() if ends == "Succeeded" else HEAD + "NCCL WARN Connect to 10.1.1.2 failed\n"
    api = kubernetes(log=text)
    api.ends = ends
    said: list[str] = []
    result = benchmark.run(stack(aws, "eks-gpu"), "all_reduce", 2, 5, said.append)
    assert said == text.splitlines()
    assert result.passed is (ends == "Succeeded")
    if ends == "Failed":
        assert "NCCL WARN Connect to 10.1.1.2 failed" in result.reasons
    assert api.did == ["apply ConfigMap", "apply MPIJob", "delete MPIJob", "delete ConfigMap"]


def test_a_job_that_does_not_end_is_deleted_all_the_same(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = kubernetes()
    api.ends = None
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(Failure, match="did not end within"):
        benchmark.run(stack(aws, "eks-gpu"), "all_reduce", 2, timeout=0.05)
    assert api.did[-2:] == ["delete MPIJob", "delete ConfigMap"]


def test_workers_alone_are_counted(aws: StubbedAws) -> None:
    with_nodes(aws, node("workers", 1))
    with pytest.raises(Failure, match="controller is not running"):
        benchmark.run(stack(aws), "all_reduce", 1, timeout=1)


def test_only_a_good_result_of_as_many_nodes_is_compared_with(aws: StubbedAws) -> None:
    target = stack(aws, "slurm-gpu")
    result = benchmark.rate_text(target, nccl(), "all_reduce")
    for nodes, peak in ((2, 450.0), (8, 900.0)):
        records.add(target, benchmark.HISTORY, {**result.__dict__, "rows": [], "nodes": nodes, "peak": peak})
    found = benchmark.before(target, result)
    assert found
    assert (found["nodes"], found["peak"]) == (2, 450.0)


def test_a_session_outlasts_the_test_and_reports_the_nodes_warnings(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []
    record = {**_on_the_nodes(True), "warnings": ["a slow link"]}

    def run_remote(target: object, node: object, line: str, timeout: float) -> Remote:
        asked.append((line, timeout))
        return Remote(code=0, output=json.dumps(record, indent=2))

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    with_nodes(aws)
    result = benchmark.run(stack(aws), "all_gather", 1, timeout=300)
    ((line, seconds),) = asked
    assert line.endswith("run-nccl-test 1 0 all_gather --json --timeout 300")
    # Slurm may have to wait for idle nodes first.
    assert seconds == 420
    assert result.reasons == ("a slow link",)


@pytest.mark.parametrize(
    ("name", "collective", "program"),
    [
        *(("eks-gpu", one, f"/opt/nccl-tests/build/{one}_perf -b 8 ") for one in nccl_test.COLLECTIVES),
        *(("eks-trainium", one, f"nccom-test {name} --nworkers ") for one, name in nccom_test.COLLECTIVES.items()),
    ],
)
def test_kubernetes_runs_the_collective_that_was_asked_for_as_long_as_asked(
    name: str,
    collective: str,
    program: str,
    aws: StubbedAws,
    kubernetes: Callable[..., FakeKubernetes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, applied = kubernetes(log=nccl()), []
    real = api.apply

    def apply(document: Any, **how: Any) -> Any:
        applied.append(document)
        return real(document, **how)

    monkeypatch.setattr(api, "apply", apply)
    result = benchmark.run(stack(aws, name), collective, 1, timeout=77)
    spec = applied[-1]["spec"]
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 1
    assert spec["runPolicy"]["activeDeadlineSeconds"] == 77
    launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert program in launcher["command"][-1]
    assert result.collective == collective


def test_somebody_elses_test_is_neither_joined_nor_taken_away(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    api = kubernetes(log=nccl())
    api.there.append("MPIJob")
    with pytest.raises(Failure, match="nccl-tests already exists"):
        benchmark.run(stack(aws, "eks-gpu"), "all_reduce", 2, timeout=5)
    assert (api.there, api.did) == (["MPIJob"], [])
