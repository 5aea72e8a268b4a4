"""A real node exporter, on a made-up node's /proc and /sys, gives what rules and panels read of it, by these labels."""

import re
import shutil
from collections.abc import Iterator, Mapping

import promql_parser as promql
import pytest

from operations.dashboards.panels import rendered
from operations.dashboards.shipped import SHIPPED
from tests.metrics.names import FOLDER, named, published, rows, selectors
from tests.metrics.test_programs import ask, free_port, running
from tests.metrics.test_rule_files import VARIANTS
from tests.metrics.test_rule_files import rules as rules_of
from tests.operations.dashboards.prometheus import targets

PROGRAM = "prometheus-node-exporter"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.prometheus,
    pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"needs the Debian package {PROGRAM} (`make node-packages`)"),
]
# What a node's kernel shows: proc(5), and Documentation/admin-guide/iostats.rst of Linux for the disk's columns.
PROC = {
    "stat": "cpu  100 0 50 900 5 0 1 0 0 0\ncpu0 100 0 50 900 5 0 1 0 0 0\nintr 1\nctxt 5\nbtime 1700000000\n"
    "processes 9\nprocs_running 1\nprocs_blocked 0\n",
    "meminfo": "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\nBuffers: 1 kB\nCached: 2 kB\n",
    "vmstat": "pgfault 5\noom_kill 3\n",
    "loadavg": "0.50 0.25 0.10 1/100 1234\n",
    "diskstats": " 259 1 nvme1n1 10 0 2048 7 20 0 4096 9 0 1500 16 0 0 0 0 0 0\n",
    "1/mounts": "10.1.0.5@tcp:/abc /fsx lustre rw 0 0\n/dev/nvme0n1p1 / ext4 ro,relatime 0 0\n",
    "net/dev": "Inter-|   Receive  |  Transmit\n face |bytes\n  ens6: 1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0\n",
}
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.M)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of one answer: name and labels, value."""
    top = tmp_path_factory.mktemp("node")
    for folder in ("proc/1", "proc/net", "sys/class/net/ens6", "root/fsx", "text"):
        (top / folder).mkdir(parents=True)
    for name, text in PROC.items():
        (top / "proc" / name).write_text(text)
    (top / "text/own.prom").write_text("hyperpod_own 7\n")
    options = [f"--path.{name}fs={top}/{name}" for name in ("proc", "sys", "root")]
    with running([PROGRAM, *options, f"--collector.textfile.directory={top}/text"], free_port(), ready="") as address:
        text = str(ask(f"{address}/metrics"))
    return {
        (name, frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))): float(value)
        for name, labels, value in _SAMPLE.findall(text)
    }


def read() -> Iterator[str]:
    """The exporter's metrics that rules and panels name."""
    table = {row["metric"] for row in rows(FOLDER / "published" / "node_exporter.csv")}
    queries = [rule["expr"] for variant in VARIANTS for rule in rules_of(variant)]
    queries += [one.expr for page in SHIPPED for one in targets(rendered(page))]
    for query in queries:
        for selector in selectors(promql.parse(query)):
            yield from (name for name in named(selector, published()) if name in table)


def test_what_rules_and_panels_read_of_it_is_there_with_the_published_labels(
    given: Mapping[tuple[str, frozenset[tuple[str, str]]], float],
) -> None:
    table = {row["metric"]: row for row in rows(FOLDER / "published" / "node_exporter.csv")}
    wanted = set(read())
    assert len(wanted) > 10
    there: dict[str, set[str]] = {}
    for name, labels in given:
        there.setdefault(name, set()).update(label for label, _ in labels)
    # Debian's release is older than the image's; the label device_error came after it.
    lacking = {name for name in wanted if table[name]["in_1.5.0"] == "yes" and name not in there}
    assert not lacking
    wrong = {name: there[name] for name in wanted & set(there) if there[name] - set(table[name]["labels"].split())}
    assert not wrong


def test_its_figures_are_the_nodes(given: Mapping[tuple[str, frozenset[tuple[str, str]]], float]) -> None:
    def value(name: str, **labels: str) -> float:
        return given[name, frozenset(labels.items())]

    disk, root = {"device": "nvme1n1"}, {"device": "/dev/nvme0n1p1", "fstype": "ext4", "mountpoint": "/"}
    lustre = {"device": "10.1.0.5@tcp:/abc", "fstype": "lustre", "mountpoint": "/fsx"}
    assert value("node_vmstat_oom_kill") == 3
    # Columns of diskstats count sectors of 512 bytes, and milliseconds.
    assert value("node_disk_read_bytes_total", **disk) == 2048 * 512
    assert value("node_disk_written_bytes_total", **disk) == 4096 * 512
    assert value("node_disk_io_time_seconds_total", **disk) == 1.5
    assert value("node_memory_MemAvailable_bytes") == 2048 * 1024
    # Ticks of a hundredth of a second.
    assert value("node_cpu_seconds_total", cpu="0", mode="idle") == 9
    assert (value("node_filesystem_readonly", **root), value("node_filesystem_readonly", **lustre)) == (1, 0)
    assert value("node_filesystem_size_bytes", **lustre) > 0
    assert value("hyperpod_own") == 7
