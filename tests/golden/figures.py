"""What nodes give of their figures, in the form that is written down, where everything there is has one."""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hyperpod_node.host.host import Result
from hyperpod_node.metrics import facts_file, node, training, writer

from tests.lifecycle.rig import World
from tests.metrics.names import FOLDER, rows

FIGURES = Path(__file__).parent / "figures"
# Slurm's words for states of nodes and jobs, and for why a job waits (sinfo(1), squeue(1)).
OF_NODES = """ALLOCATED BLOCKED CLOUD COMPLETING DOWN* DRAIN DRAINED DRAINING DYNAMIC_NORM FAIL FUTURE IDLE IDLE+DRAIN
INVALID_REG MAINTENANCE MIXED+DRAIN MIXED+PLANNED NOT_RESPONDING POWERED_DOWN~ POWERING_UP# REBOOT_ISSUED^
REBOOT_REQUESTED@ RESERVED UNKNOWN COMPLETING+DRAIN ALLOCATED+DRAIN"""
OF_JOBS = """BOOT_FAIL CANCELLED COMPLETED COMPLETING CONFIGURING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING
PREEMPTED RUNNING SUSPENDED TIMEOUT"""
WHY = "Resources Priority JobHeldUser JobHeldAdmin Dependency DependencyNeverSatisfied BeginTime"
# sdiag(1): section and its lines.
DIAG = {
    "": "Server thread count/Agent queue size/Agent count/Agent thread count/DBD Agent queue size/Jobs submitted/"
    "Jobs started/Jobs completed/Jobs canceled/Jobs failed/Jobs pending/Jobs running",
    "Main schedule statistics (microseconds):": "Last cycle/Max cycle/Mean cycle/Total cycles/Last queue length",
    "Backfilling stats (WARNING: data obtained in the middle of backfilling execution.)": (
        "Total backfilled jobs (since last slurm start)/Last cycle/Max cycle/Mean cycle/Total cycles/Last depth cycle/"
        "Last queue length/Last table size"
    ),
    "Remote Procedure Call statistics by message type": "Last cycle",
}

STARS = f"{'*' * 55}\n"
HEAD = f"{STARS}sdiag output at Sun Nov 22 17:06:09 2026 (1795367169)\n{STARS}"

# Part of the writer, metric, its type, what it says and its values.
Figures = dict[str, dict[str, str]]


def _nodes() -> Iterator[str]:
    for number, state in enumerate(OF_NODES.split(), 1):
        partition = "b" if number % 5 == 0 else "a"
        name = {1: "ip-10-1-0-12", 2: "workers-2"}.get(number, f"n{number}")
        yield f"{name}|{partition}|{state.lower()}|{number}/20/2/64|gpu:8|gpu:{number % 8}|100|{number}|9|\n"
    yield "ip-10-1-0-12|b|allocated|1/20/2/64|gpu:8|gpu:1|100|1|9|\nn99|a|idle|0/1/0/1|(null)|(null)|7|N/A|N/A|\n"
    # Nothing that looks like a node.
    yield "|a|idle|0/1/0/1|||||\nshort|a|idle|0/1/0/1||||\nodd|a|idle|0/1/0|||||\nodd|a|idle|0/1/0/x|||||\n"


def _jobs() -> Iterator[str]:
    for number, state in enumerate(OF_JOBS.split(), 1):
        yield f"{number}|{state}|a|{number}|N/A|None|\n"
    for number, why in enumerate(WHY.split(), 1):
        # It starts to count when it may start: 1790001000 is now.
        yield f"7{number}_[0-{number}]|pending|b|1|{1790000000 + number * 100 if number < 3 else 1789000000}|{why} |\n"
    yield "8|PENDING|,c,|1|1790001001|Resources|\n9|PENDING|a|x|1|Resources|\n9|PENDING|a|1|1\n"


def _diag() -> Iterator[str]:
    value = 100
    for section, lines in DIAG.items():
        yield f"{section}\n" if section else HEAD
        for line in lines.split("/"):
            value += 1
            yield f"{'	' if section else ''}{line}:  {value} \n"


def given() -> Figures:
    """By file of the writer's, every metric on a controller that has all that a worker has, too."""
    with tempfile.TemporaryDirectory() as folder:
        host = World(Path(folder), "ml.g5.8xlarge").node("worker")

        def put(name: str, text: str) -> None:
            host.path(name).parent.mkdir(parents=True, exist_ok=True)
            host.path(name).write_text(text)

        put("/sys/class/infiniband/rdmap0s27/device/vendor", "0x1d0f\n")
        counters = [row["metric"].replace("node_amazonefa_", "") for row in rows(FOLDER / "published/efa.csv")]
        for number, counter in enumerate(counters):
            put(f"/sys/class/infiniband/rdmap0s27/ports/1/hw_counters/{counter}", f"{number}\n")
        for number, row in enumerate(rows(FOLDER / "published/lustre.csv")):
            if row["proc_file"].isidentifier() and row["proc_file"] != "stats":
                put(f"/sys/fs/lustre/llite/abcdefgh-ffff8e4f3b2a1000/{row['proc_file']}", f"{number}\n")
        stats = (
            "read_bytes 7 samples [bytes] 1 2 30\nwrite_bytes 3 samples [bytes] 4 5 60\nopen 2 samples [usec] 1 1 1\n"
        )
        put("/sys/kernel/debug/lustre/llite/abcdefgh-ffff8e4f3b2a1000/stats", stats)
        ranks = {field: number + 0.5 for number, field in enumerate(training.FIELDS)}
        put(f"{training.FOLDER}/7/rank-3.json", json.dumps(ranks))
        facts = node.Facts("mine", "n", "workers", "controller", "i-1", "ml.p5", 8, 32, {"dcgm": "hyperpod-a"})
        put(facts_file(host), facts.text())
        host.path(writer.FOLDER).mkdir(parents=True)
        said = {"sinfo": _nodes, "squeue": _jobs, "sdiag": _diag}
        host.commands |= {name: lambda host, args, stdin: Result(0, "".join(said[args[0]]())) for name in said}
        host.commands["systemctl"] = lambda host, args, stdin: Result(0, "active\n")
        assert [writer.write(host, part) for part in writer.PARTS] == [{}, {}]
        return {path.stem: dict(_read(path.read_text())) for path in sorted(host.path(writer.FOLDER).iterdir())}


def _read(text: str) -> Iterator[tuple[str, str]]:
    for family in text.split("# HELP ")[1:]:
        (name, said), (kind, *values) = family.splitlines()[0].split(" ", 1), family.splitlines()[1:]
        shown = "; ".join(_brief([value[len(name) :].strip() for value in values]))
        yield name, f"{said}, {kind.rpartition(' ')[2]}: {shown}"


def _brief(values: list[str]) -> list[str]:
    """Of many alike the first and the last in full, and of those between a digest."""
    if len(values) < 10:
        return values
    between = values[4:-2]
    digest = hashlib.sha256("\n".join(between).encode()).hexdigest()[:8]
    return [*values[:4], f"{len(between)} more ({digest})", *values[-2:]]
