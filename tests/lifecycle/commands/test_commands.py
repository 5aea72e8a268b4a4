"""What people run: commands built from what the workers say."""

import os
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import benchmark, cluster, nccl_test, nccom_test, node_facts
from hyperpod_commands.cluster import Trouble, Workers
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import NodeRole

from tests.lifecycle.rig import group, record

# As nccl-tests print it: a release with a root column and both halves.
NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 100 agg iters: 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    65.20    0.00    0.00      0    64.90    0.00    0.00      0
   134217728      33554432     float     sum      -1   5230.1   25.66   48.12      0   5210.4   25.76   48.30      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 24.1050
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


def answering(said: Mapping[str, str], seconds: float = 120) -> Callable[..., str]:
    """Stands for ``run`` of the commands' modules: knows these commands, by every word, and how long they may take."""

    def run(command: list[str], timeout: float = 120, stdin: str = "") -> str:
        assert (timeout, stdin) == (seconds, "")
        return said[" ".join(command)]

    return run


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
    for name in ("NCCL_DEBUG", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    workers = Workers([fact("n1"), fact("n2")])
    hosts = "--map-by ppr:8:node --bind-to none --host n1:8,n2:8"
    sockets = "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_exclude lo,docker0"
    program = "/usr/local/cuda/efa/test-cuda-12/all_reduce_perf"
    # Where AWS's image has NCCL, its plugin for EFA, libfabric and Open MPI (awsome-distributed-ai,
    # nccl-tests-ami.sbatch). A session's environment has none of it.
    amazon = (
        "/opt/amazon/ofi-nccl/lib:/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu:/opt/amazon/efa/lib:/opt/amazon/openmpi/lib"
    )
    libraries = f"/usr/local/cuda/lib:/usr/local/cuda/lib64:{amazon}"
    assert " ".join(nccl_test.mpirun(options(nodes=2), workers, 8)) == (
        f"/opt/amazon/openmpi/bin/mpirun -np 16 {hosts} {sockets} -x FI_PROVIDER=efa -x LD_LIBRARY_PATH={libraries} "
        f"-x NCCL_DEBUG=WARN {program} -b 8 -e 16G -f 2 -g 1 -c 1 -n 100"
    )
    # The person's own variables come before the workers', and none but these two are handed on.
    for name, value in (("NCCL_DEBUG", "INFO"), ("LD_LIBRARY_PATH", "/my/lib"), ("NCCL_ALGO", "Tree")):
        monkeypatch.setenv(name, value)
    wanted = options(nodes=1, min="1M", max="2M", iterations=5)
    assert " ".join(nccl_test.mpirun(wanted, Workers([fact("n1", mpirun="/usr/bin/mpirun")]), 8)) == (
        f"/usr/bin/mpirun -np 8 --map-by ppr:8:node --bind-to none --host n1:8 {sockets} "
        f"-x FI_PROVIDER=efa -x LD_LIBRARY_PATH=/my/lib:{libraries} -x NCCL_DEBUG=INFO {program} "
        "-b 1M -e 2M -f 2 -g 1 -c 1 -n 5"
    )
    without = nccl_test.mpirun(options(nodes=1), Workers([fact("n1", mpirun="")]), 8)
    assert without[0] == "/opt/amazon/openmpi/bin/mpirun"
    # Of several releases of CUDA the one that the tests are of; for tests of one's own the image's default.
    assert nccl_test.libraries("/usr/local/cuda-13.2/efa/test-cuda-13.2/x").startswith(
        "/my/lib:/usr/local/cuda-13.2/lib:"
    )
    assert nccl_test.libraries("/opt/nccl-tests/build/x").startswith("/my/lib:/usr/local/cuda/lib:")


def test_one_node_without_efa_makes_all_use_tcp_and_is_named_and_so_is_a_lost_gpu() -> None:
    slow = fact("n2", transport="tcp", environment={"NCCL_NET_PLUGIN": "none"}, devices=7)
    workers = Workers([fact("n1"), slow, fact("n3", transport="efa-sendrecv")])
    assert workers.transport == "tcp"
    assert workers.environment == {"NCCL_NET_PLUGIN": "none"}
    assert workers.complaints() == [
        "the nodes' transports differ (n1 efa-rdma, n2 tcp, n3 efa-sendrecv): all use tcp",
        "n2 has 7 of 8 devices",
    ]
    assert Workers([fact("n1"), fact("n3", transport="efa-sendrecv")]).transport == "efa-sendrecv"
    assert Workers([fact("n1"), fact("n2")]).complaints() == []


def test_gloo_is_used_only_where_the_workers_have_nothing_better() -> None:
    assert nccl_test.choose(Workers([fact("n1")])) == "nccl"
    assert nccl_test.choose(Workers([fact("n1", transport="tcp", nccl_tests="")])) == "gloo"
    with pytest.raises(Trouble) as refused:
        nccl_test.choose(Workers([fact("n1", nccl_tests=""), fact("n2")]))
    assert str(refused.value) == (
        "the workers (n1, n2) have no nccl-tests: all_reduce_perf is not in "
        "/usr/local/cuda*/efa/test-*, /opt/nccl-tests/build or /usr/local/bin; --backend gloo tests their Ethernet"
    )


@pytest.mark.parametrize(
    ("pythons", "named"),
    [
        (("", "/usr/bin/python3", ""), "n1, n3"),
        (("/usr/bin/python3", "/opt/conda/bin/python3", "/usr/bin/python3"), "the same path of all nodes"),
    ],
)
def test_gloo_without_pytorch_names_the_nodes(pythons: tuple[str, ...], named: str) -> None:
    workers = Workers([fact(f"n{number}", python=python) for number, python in enumerate(pythons, 1)])
    with pytest.raises(Trouble, match=rf"^no Python with PyTorch on {named}; set HYPERPOD_PYTHON$"):
        nccl_test.gloo(options(nodes=3), workers)


def test_gloo_sweeps_seven_of_the_nine_collectives() -> None:
    """It has no reduce_scatter and no alltoall (PyTorch's documentation, "Distributed communication": backends)."""
    missing = {"reduce_scatter", "alltoall"}
    assert (len(nccl_test.COLLECTIVES), missing - {*nccl_test.COLLECTIVES}) == (9, set())
    for name in nccl_test.COLLECTIVES:
        if name not in missing:
            assert f"/gloo_sweep.py {name} " in " ".join(
                nccl_test.gloo(options(collective=name), Workers([fact("n1")]))
            )
            continue
        has = "all_reduce, all_gather, broadcast, reduce, scatter, gather, sendrecv"
        with pytest.raises(Trouble, match=f"^gloo has no {name}; it has {has}$"):
            nccl_test.gloo(options(collective=name), Workers([fact("n1")]))


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
    missing = r"^n1 has no /opt/aws/neuron/bin/nccom-test: the Neuron tools are not installed$"
    with pytest.raises(Trouble, match=missing):
        nccom_test.command(Namespace(collective="all_reduce", nodes=1), Workers([fact("n1", nccom_test="")]), 32, ())


def test_a_record_is_read_and_a_missing_one_points_to_the_summary(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    own = record(group("workers", "ml.p5.48xlarge"))
    path.write_text(parameters.render(own))
    assert cluster.record(str(path)) == own
    path.write_text("{")
    where = r"node\.json: .*; did on_create\.sh succeed here\? See /var/log/hyperpod/summary\.json$"
    for wrong in (path, tmp_path / "none/node.json"):
        with pytest.raises(Trouble, match=where):
            cluster.record(str(wrong))


def test_a_nodes_facts_come_from_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "task.env").write_text("FI_PROVIDER=efa\n\nNEURON_CC_FLAGS=--a=b\nGREETING=grüß\n")
    row = group("workers", "ml.m5.large")
    (tmp_path / "node.json").write_text(parameters.render(record(row)))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mpirun", "nccom-test"):
        (programs / name).touch(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(socket, "gethostname", lambda: "n1.cluster.internal")
    monkeypatch.setattr(node_facts, "nccl_tests", lambda: "/opt/nccl-tests/build")
    monkeypatch.setattr(node_facts, "python", lambda: "/usr/bin/python3")
    assert node_facts.facts(str(tmp_path)) == {
        "address": "10.1.0.12", "group": asdict(row), "transport": "tcp",
        "hostname": "n1", "devices": 0,
        "nccl_tests": "/opt/nccl-tests/build", "python": "/usr/bin/python3",
        "environment": {"FI_PROVIDER": "efa", "NEURON_CC_FLAGS": "--a=b", "GREETING": "grüß"},
        "mpirun": f"{programs}/mpirun", "nccom_test": f"{programs}/nccom-test",
    }  # fmt: skip
    # The images' own come before any other.
    images = {"/opt/amazon/openmpi/bin/mpirun", "/opt/aws/neuron/bin/nccom-test"}
    monkeypatch.setattr(os, "access", lambda path, mode: path in images and mode == os.X_OK)
    (tmp_path / "task.env").unlink()
    found = node_facts.facts(str(tmp_path))
    assert {found["mpirun"], found["nccom_test"]} == images
    assert found["environment"] == {}
    none = node_facts.facts(str(tmp_path / "none"))
    assert (none["hostname"], none["error"].partition(": ")[0]) == ("n1", f"{tmp_path}/none/node.json")


def test_devices_are_counted_by_their_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidia0-cap", "nvidiactl", "nvidia-uvm", "neuron0"):
        (tmp_path / name).touch()
    monkeypatch.setattr(node_facts, "Path", lambda folder: {"/dev": tmp_path}[folder])
    assert [node_facts.devices(gres) for gres in ("gpu", "gpu:h100", "neuron", "")] == [3, 3, 1, 0]


@pytest.mark.parametrize("own", [True, False])
def test_the_first_python_that_has_pytorch_is_found_and_a_jobs_own_before_all(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def call(command: list[str], stderr: int) -> int:
        assert command[1:] == ["-c", node_facts.HAS_TORCH]
        assert stderr == subprocess.DEVNULL
        asked.append(command[0])
        return 1

    if own:
        monkeypatch.setenv("HYPERPOD_PYTHON", "/home/me/python")
    else:
        monkeypatch.delenv("HYPERPOD_PYTHON", raising=False)
    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert node_facts.python() == ""
    found = ["python3", "/opt/pytorch/bin/python3", "/opt/conda/bin/python3", "/usr/bin/python3"]
    assert asked == ["/home/me/python"] * own + found
    monkeypatch.setattr(subprocess, "call", lambda command, **_: int(command[0] != "/opt/conda/bin/python3"))
    assert node_facts.python() == "/opt/conda/bin/python3"


@pytest.fixture
def cluster_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """A cluster of such workers for hyperpod-benchmark, in such states. What the command becomes."""

    def make(
        kind: str, partition: str | None, given: list[str], states: str, role: NodeRole = "controller"
    ) -> list[Any]:
        row = replace(group("workers", kind), role="worker", partition=partition or "")
        first = replace(row, name="first", role=role)
        monkeypatch.setattr(benchmark, "record", lambda: record(*((first, row) if role == "controller" else (row,))))
        question = f"sinfo -h -o %D %t -p {partition}" if partition else "sinfo -h -o %D %t"
        monkeypatch.setattr(benchmark, "run", answering({question: states}))
        monkeypatch.setattr(sys, "argv", ["hyperpod-benchmark", *given])
        became: list[Any] = []
        monkeypatch.setattr(os, "execv", lambda path, words: became.append((path, words)))
        return became

    return make


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--json"], ["3", "--json"]),
        (["--timeout", "600"], ["3", "--timeout", "600"]),
        (["2", "--timeout", "600"], ["2", "--timeout", "600"]),
    ],
)
def test_a_benchmark_runs_the_accelerators_test_on_the_idle_workers(
    given: list[str], wanted: list[str], cluster_of: Callable[..., list[Any]]
) -> None:
    for kind, partition, command in (
        ("ml.trn1.32xlarge", None, "run-nccom-test"),
        ("ml.p5.48xlarge", "gpu", "run-nccl-test"),
    ):
        became = cluster_of(kind, partition, given, "1 drain\n2 alloc\n2 idle\n1 idle\n4 idle*\n")
        benchmark.main()
        assert became == [(f"/opt/hyperpod/bin/{command}", [command, *wanted])]


@pytest.mark.parametrize(
    ("states", "role", "said"),
    [
        ("2 alloc\n", "controller", "no worker is idle; see sinfo"),
        ("2 idle\n", "worker", "run this on the controller or a login node; it allocates the workers"),
    ],
)
def test_a_benchmark_without_workers_to_allocate_says_so(
    states: str,
    role: str,
    said: str,
    cluster_of: Callable[..., list[Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    became = cluster_of("ml.p5.48xlarge", None, [], states, role)
    assert benchmark.main() == 2
    assert (became, capsys.readouterr().err) == ([], f"hyperpod-benchmark: {said}\n")


@pytest.mark.parametrize(
    ("name", "kind", "devices", "gres"),
    [
        ("run-nccl-test", "ml.p4d.24xlarge", 8, "gpu"),
        ("run-nccl-test", "ml.m5.2xlarge", 1, ""),
        ("run-nccom-test", "ml.trn1.32xlarge", 16, "neuron"),
    ],
)
def test_a_network_test_allocates_its_partition_or_that_of_the_first_workers(
    name: str, kind: str, devices: int, gres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = {"run-nccl-test": nccl_test, "run-nccom-test": nccom_test}[name]
    own, other, alone = (
        replace(group("workers", one), partition=partition, role="worker")
        for one, partition in ((kind, "own"), ("ml.g5.8xlarge", "other"), (kind, ""))
    )
    monkeypatch.setattr(module, "as_person", {name: None}.__getitem__)
    for groups, more, partition in (
        ([other, own], ["--partition", "own"], "own"),
        # Of several groups the first with accelerators.
        ([own, other] if devices > 1 else [own], [], "own"),
        ([alone], [], None),
    ):
        monkeypatch.setattr(module, "record", lambda groups=groups: record(*groups))
        monkeypatch.setattr(sys, "argv", ["run", "3", *more])
        monkeypatch.setenv("HYPERPOD_INSIDE", "")
        asked: list[tuple[Any, ...]] = []

        def allocate(*words: Any, asked: list[tuple[Any, ...]] = asked) -> None:
            assert os.environ["HYPERPOD_INSIDE"], "salloc hands it on, and inside nothing is allocated again"
            asked.append(words)
            raise SystemExit

        monkeypatch.setattr(module, "allocate", allocate)
        with pytest.raises(SystemExit):
            module.main()
        assert asked == [(3, devices, gres, partition, [f"/opt/hyperpod/bin/{name}", "3", *more])]
