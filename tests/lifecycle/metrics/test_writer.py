"""What the writer says of a node: every figure that is there under its published name, and nothing else."""

import fcntl
import json
import os
import re
import sys
from pathlib import Path

import pytest
from hyperpod_node.host.host import Result
from hyperpod_node.metrics import efa, facts_file, lustre, node, slurm, training, writer
from hyperpod_node.metrics.exposition import Family, render
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzzing import DEEP, as_text, damaged
from tests.lifecycle.rig import FakeHost, World
from tests.metrics import names
from tests.metrics.names import rows

# What Slurm printed on rehearsed nodes: a running, a waiting, a held and a dependent job.
SINFO = """ip-10-1-0-12|dev|mixed|1/63/0/64|gpu:8|gpu:3|1000|200|17410|
ip-10-1-0-12|gpu|mixed|1/63/0/64|gpu:8|gpu:3|1000|200|17410|
ip-10-1-0-13|dev|idle+drain|0/64/0/64|gpu:8|gpu:0|1000|0|N/A|
ip-10-1-0-13|gpu|idle+drain|0/64/0/64|gpu:8|gpu:0|1000|0|N/A|
"""
SQUEUE = """4|FAILED|dev|1|1790000900|NonZeroExitCode|
2|PENDING|dev,gpu|2|1790000900|Resources|
5|PENDING|dev|1|N/A|Dependency|
3_[1-5]|PENDING|dev|1|N/A|JobHeldUser|
1|RUNNING|dev|1|1790000965|None|
"""
SDIAG = """*******************************************************
sdiag output at Sun Nov 22 17:06:09 2026 (1795367169)
Data since      Sun Nov 22 17:06:02 2026 (1795367162)
*******************************************************
Server thread count:  1
Agent queue size:     0
DBD Agent queue size: 0

Jobs submitted: 9
Jobs canceled:  0

Main schedule statistics (microseconds):
\tLast cycle:   140
\tMean cycle:    151

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 2
\tLast cycle when: Sun Nov 22 17:06:07 2026 (1795367167)
\tLast cycle: 105

Remote Procedure Call statistics by user
\troot            (       0) count:80     ave_time:486    total_time:38954
"""
STATS = """snapshot_time             1795367169.000000000 secs.nsecs
read_bytes                7 samples [bytes] 4096 1048576 7340032
write_bytes               3 samples [bytes] 4096 4096 12288
open                      11 samples [usec] 1 20 90
"""
SERIES = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def series(text: str) -> dict[str, float]:
    """Every series of a file; each line must be one, or a comment."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SERIES.fullmatch(line)
        assert match, line
        key = f"{match[1]}{{{match[2] or ''}}}"
        assert key not in found, f"{key} is there twice"
        found[key] = float(match[3])
    return found


def published(table: str) -> set[str]:
    """The names that an exporter is known to give."""
    return {row["metric"] for row in rows(names.FOLDER / f"published/{table}.csv")}


def promised(host: FakeHost, part: str) -> None:
    """Every metric of a part is in the project's own contract, with the labels that it has there."""
    known = {row["metric"]: set(row["labels"].split()) for row in rows(names.FOLDER / "contract.csv")}
    for key in written(host, part, part):
        metric, _, inside = key.partition("{")
        assert set(re.findall(r'([a-z_]+)="', inside)) == known[metric], key


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    """A worker with an EFA device that has counted, a Lustre mount, and a controller's commands."""
    host = World(tmp_path).node("worker")

    def put(name: str, text: str) -> None:
        path = host.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    for name, text in (("rx_bytes", "18446744073709551615\n"), ("tx_pkts", "7\n"), ("other", "1\n"), ("rx_drops", "")):
        put(f"/sys/class/infiniband/counts/ports/1/hw_counters/{name}", text)
    put("/sys/class/infiniband/counts/device/vendor", "0x1d0f\n")
    put("/sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n")
    put("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/rx_bytes", "1\n")
    for mount in ("abcdefgh-ffff8e4f3b2a1000", "abcdefgh-ffff8e4f3b2a2000"):
        put(f"/sys/fs/lustre/llite/{mount}/kbytesavail", "1024\n")
        put(f"/sys/kernel/debug/lustre/llite/{mount}/stats", STATS)
    units = {"dcgm": "hyperpod-b", "node": "hyperpod-a"}
    facts = node.Facts("mine", "ip-10-1-0-12", "workers", "controller", "i-1", "ml.p5.48xlarge", 8, 32, units)
    put(facts_file(host), facts.text())
    outputs = {"sinfo": SINFO, "squeue": SQUEUE, "sdiag": SDIAG, "systemctl": "active\nfailed\n"}
    for command in outputs:
        host.commands[command] = lambda host, args, stdin: Result(0, outputs[args[0]])
    host.path(writer.FOLDER).mkdir(parents=True)
    return host


def written(host: FakeHost, part: str, name: str) -> dict[str, float]:
    assert writer.write(host, part) == {}
    return series(host.text(f"{writer.FOLDER}/{name}.prom"))


def test_efa_counters_have_the_names_of_awss_exporter_and_other_devices_have_none(host: FakeHost) -> None:
    found = written(host, "node", "efa")
    counted = {key: value for key, value in found.items() if "_info" not in key}
    labels = '{device="counts",port="1"}'
    assert counted == {f"node_amazonefa_rx_bytes{labels}": 2.0**64, f"node_amazonefa_tx_pkts{labels}": 7}
    assert len(found) - len(counted) == 33
    assert {f"node_amazonefa_{name}" for name in efa.COUNTERS} | {"node_amazonefa_info"} == published("efa")
    assert "# TYPE node_amazonefa_tx_pkts untyped" in host.text(f"{writer.FOLDER}/efa.prom")


def test_efas_own_counters_are_found_where_newer_kernels_have_them(host: FakeHost) -> None:
    """Linux 5.14 and later: efa_verbs.c, EFA_DEFINE_DEVICE_STATS, beside EFA_DEFINE_PORT_STATS."""
    host.path("/sys/class/infiniband/counts/hw_counters").mkdir()
    host.path("/sys/class/infiniband/counts/hw_counters/create_qp_err").write_text("3\n")
    found = written(host, "node", "efa")
    labels = '{device="counts",port="1"}'
    assert found[f"node_amazonefa_create_qp_err{labels}"] == 3
    assert found[f"node_amazonefa_tx_pkts{labels}"] == 7


def test_a_kernel_without_such_devices_has_no_figures_of_them(world: World) -> None:
    host = world.node("controller")
    assert [found for part in (efa, lustre, training) for found in part.families(host) if found.samples] == []


def test_a_counter_is_exact_to_its_last_digit(host: FakeHost) -> None:
    writer.write(host, "node")
    assert f'port="1"}} {2**64 - 1}\n' in host.text(f"{writer.FOLDER}/efa.prom")


def test_a_lustre_file_system_that_is_mounted_twice_is_counted_once(host: FakeHost) -> None:
    target = 'component="client",target="abcdefgh"'
    found = written(host, "lustre", "lustre")
    assert found == {
        f"lustre_available_kibibytes{{{target}}}": 1024,
        f"lustre_read_samples_total{{{target}}}": 7,
        f"lustre_read_bytes_total{{{target}}}": 7340032,
        f"lustre_write_samples_total{{{target}}}": 3,
        f"lustre_write_bytes_total{{{target}}}": 12288,
        f'lustre_stats_total{{{target},operation="open"}}': 11,
    }
    shown = {name for name, _ in lustre.GAUGES.values()} | {key.partition("{")[0] for key in found}
    assert shown <= published("lustre")


def test_slurms_figures_have_the_names_that_slurmctld_gives_itself(host: FakeHost) -> None:
    host.skew = 0.12345
    found = written(host, "node", "slurm")
    ours = "hyperpod_queue_oldest_wait_seconds"
    assert {key.partition("{")[0] for key in found} - {ours} <= published("slurm")
    assert 'slurm_node_memory_free_bytes{node="ip-10-1-0-13",group="workers"}' not in found, "Slurm has no figure"
    # Eligible at ...900, and the clock says ...1000.12345. Jobs that wait for their user count for nothing.
    assert found[f'{ours}{{partition="dev"}}'] == found[f'{ours}{{partition="gpu"}}'] == 100.123


def test_only_the_controller_asks_slurm(host: FakeHost) -> None:
    host.write(facts_file(host), host.text(facts_file(host)).replace('"controller"', '"worker"'))
    assert written(host, "node", "slurm") == {}
    assert not host.ran("sinfo")


def test_slurm_that_does_not_answer_leaves_no_old_figures(host: FakeHost) -> None:
    written(host, "node", "slurm")
    host.fail["squeue"] = Result(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    assert "Unable to contact" in writer.write(host, "node")["slurm"]
    assert host.read(f"{writer.FOLDER}/slurm.prom") is None


def test_a_run_says_which_file_it_could_not_write_and_leaves_one_that_still_runs_alone(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, as the timer starts it."""
    monkeypatch.setattr(writer, "Host", lambda settings: host)
    run = host.path("/run")
    run.mkdir(exist_ok=True)

    def command(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["hyperpod-metrics", *words])
        code, said = writer.main(), capsys.readouterr()
        assert said.out == ""
        return code, said.err

    assert command("node") == (0, "")
    host.fail["squeue"] = Result(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    code, said = command("node")
    assert (code, said.partition(": `")[0]) == (1, "hyperpod-metrics: no slurm.prom")
    assert said.endswith("Unable to contact slurm controller\n")
    assert (run / "hyperpod-metrics-node.lock").stat().st_mode & 0o777 == 0o600
    with (run / "hyperpod-metrics-node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert command("node") == (1, "hyperpod-metrics: node is still being read\n")
        assert command("lustre") == (0, "")
    for words in ((), ("other",), ("node", "lustre")):
        assert command(*words) == (2, "usage: hyperpod-metrics node|lustre\n")


def test_an_exporter_that_has_failed_is_not_up(host: FakeHost) -> None:
    promised(host, "node")
    found = written(host, "node", "node")
    ups = {key: value for key, value in found.items() if key.startswith("hyperpod_exporter_up")}
    assert ups == {'hyperpod_exporter_up{exporter="dcgm"}': 1, 'hyperpod_exporter_up{exporter="node"}': 0}


def test_a_node_whose_lustre_lost_its_efa_interfaces_says_how_many_are_left(host: FakeHost) -> None:
    promised(host, "node")
    name = facts_file(host)
    host.write(name, json.dumps({**json.loads(host.text(name)), "lustre_efa_interfaces": 8}))
    kinds = ("@lo up", "@tcp up", "@efa down", "@efa up", "@efa up")
    lines = "".join(f"10.1.0.{number}{kind} -1 1 8 0 256 256 256\n" for number, kind in enumerate(kinds))
    host.write(node.LNET, f"nid status alive refs peer rtr max tx min\n{lines}")
    found = written(host, "node", "node")
    assert found.pop("hyperpod_lustre_efa_interfaces_expected{}") == 8
    assert found.pop("hyperpod_lustre_efa_interfaces{}") == 2
    host.remove(node.LNET)
    assert written(host, "node", "node")["hyperpod_lustre_efa_interfaces{}"] == 0


def test_array_tasks_and_accelerators_are_counted_as_slurm_writes_them() -> None:
    assert [slurm.tasks(name) for name in ("7", "7_3", "7_[1-5]", "7_[1,3,5-9:2%4]", "7_[", "7_[9-1]")] == [
        1, 1, 5, 5, 1, 1,
    ]  # fmt: skip
    shown = ("gpu:h100:8(IDX:0-7)", "gpu:8(S:0-1),other:4", "(null)", "neuron:16", "gpu")
    assert [slurm.gres(text) for text in shown] == [8, 8, 0, 16, 0]


def test_labels_are_escaped_and_values_that_are_no_numbers_left_out() -> None:
    text = render([Family("a", "x\ny", [({"b": 'c"\\\nd'}, 1), ({"b": "e"}, float("nan"))]), Family("none", "", [])])
    assert text == '# HELP a x\\ny\n# TYPE a gauge\na{b="c\\"\\\\\\nd"} 1\n'


# What jobs tell of their training


@pytest.fixture
def job(host: FakeHost) -> Path:
    folder = host.path(f"{training.FOLDER}/7")
    folder.mkdir(parents=True)
    return folder


def test_a_rank_is_known_by_its_job_and_number(host: FakeHost, job: Path) -> None:
    (job / "rank-3.json").write_text(json.dumps({"step": 5, "loss": 2.5, "unknown": 1, "node": "x"}))
    labels = '{hpc_job="7",rank="3"}'
    assert written(host, "node", "training") == {
        f"hyperpod_training_step{labels}": 5,
        f"hyperpod_training_loss{labels}": 2.5,
    }


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", '{"step": -1000000000000000000}', '{"step": 1000000000000000000}',
     '{"step": "1"}', '{"step": true}', '{"step": NaN}', '{"step": 1e999}', '{"step": [1]}',
     '{"step": ' + "9" * 400 + "}", DEEP[:4000], '{"loss": 1, ' + " " * 5000 + "}", "\x00"],
)  # fmt: skip
def test_a_file_that_is_no_small_object_of_numbers_says_nothing(host: FakeHost, job: Path, text: str) -> None:
    (job / "rank-0.json").write_text(text)
    assert written(host, "node", "training") == {}


def test_nothing_in_a_jobs_folder_is_followed_waited_for_or_read_twice(host: FakeHost, job: Path) -> None:
    secret = job.parent.parent / "secret.json"
    secret.write_text('{"step": 1}')
    (job / "rank-0.json").symlink_to(secret)
    os.mkfifo(job / "rank-1.json")
    (job / "rank-2.json").mkdir()
    os.link(secret, job / "rank-3.json")
    (job / "rank-4.json.prom").write_text("forged 1\n")
    (job.parent / "8").symlink_to(job)
    for name in ("rank-5.json", "rank-05.json"):
        (job / name).write_text('{"step": 2}')
    assert written(host, "node", "training") == {'hyperpod_training_step{hpc_job="7",rank="5"}': 2}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
def test_a_file_of_another_user_says_nothing_of_a_job(host: FakeHost, job: Path) -> None:
    (job / "rank-0.json").write_text('{"step": 1}')
    os.chown(job / "rank-0.json", 4242, 4242)
    assert written(host, "node", "training") == {}


def test_a_job_with_more_files_than_ranks_hides_no_other(host: FakeHost, job: Path) -> None:
    for rank in range(training.MOST_RANKS + 50):
        (job / f"rank-{rank}.json").write_text('{"step": 1}')
    (job.parent / "8").mkdir()
    (job.parent / "8/rank-0.json").write_text('{"step": 1}')
    found = written(host, "node", "training")
    assert len(found) == training.MOST_RANKS + 1
    assert 'hyperpod_training_step{hpc_job="8",rank="0"}' in found


# Whatever is in what others write


@pytest.mark.fuzz
@given(text=as_text(dict.fromkeys(training.FIELDS, 1)))
@example(text=DEEP)
def test_whatever_a_rank_writes_is_a_few_numbers(text: str) -> None:
    numbers = training.parse(text)
    assert set(numbers) <= set(training.FIELDS)
    rendered = render([Family("a", "", [({}, value)]) for value in numbers.values()])
    assert rendered.count("\n") == 3 * len(numbers)


@pytest.mark.fuzz
@given(nodes=damaged(SINFO, bits=("|", "/", "+", "gpu:")), jobs=damaged(SQUEUE, bits=("|", "_[", "-", ",")))
def test_whatever_slurm_prints_is_series_or_nothing(nodes: str, jobs: str) -> None:
    parsed = slurm.parse_nodes(nodes)
    families = [*slurm.node_families(parsed, {}), *slurm.job_families(slurm.parse_jobs(jobs), parsed, 1.79e9)]
    for line in render(families).splitlines():
        assert line.startswith("#") or SERIES.fullmatch(line), line


@pytest.mark.fuzz
@given(text=damaged(SDIAG, STATS, "7\n") | st.text(max_size=30))
def test_whatever_the_kernel_or_sdiag_says_is_numbers_or_nothing(text: str) -> None:
    series(render(slurm.parse_diag(text)))
    assert all(stat.samples >= 0 for stat in lustre.parse_stats(text))
    assert (lustre.number(text) or 0) >= 0
    assert (efa.count(text) or 0) >= 0
