"""Bus bandwidth: read from what the tests print, and rated against what the wire can carry.

nccl-tests defines bus bandwidth so that for ring collectives it is the traffic on the slowest link, whatever the
number of ranks (nccl-tests, doc/PERFORMANCE.md). Between nodes that link is the node's network. The threshold is

    network_gbps / 8  x  gpus used / gpus of the node  x  EFFICIENCY

GB/s for all_reduce, all_gather, reduce_scatter, broadcast and reduce on two nodes or more. The number of nodes does
not enter: it is in the definition already. In an alltoall of n nodes with g ranks each, a rank shares the wire with
its node's others and sends (n-1)g of its ng-1 parts over it; its threshold is the above / g x (ng-1) / ((n-1)g).
sendrecv, gather and scatter have none, and inside one node no wire is used: only their correctness is rated.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Optional

# Shares of the wire that healthy nodes reach with the largest messages. nccl: 35-45 GB/s of a p4d's 50 and 3.0 of a
# g5.16xlarge's 3.1 are reported. nccom: 37 of a trn1's 100 at its largest message of 128 MB. gloo: one process a
# node that copies by CPU, over any Ethernet.
EFFICIENCY = {"nccl": 0.7, "nccom": 0.35, "gloo": 0.2}
RING = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True)
class Row:
    """One message size. Time in microseconds, bandwidths in GB/s, the better of out of place and in place."""

    size: int
    count: int
    type: str
    time_us: float
    algbw: float
    busbw: float
    wrong: int


@dataclass(frozen=True)
class Rating:
    """How a test ended."""

    passed: bool
    average: float
    peak: float
    threshold: Optional[float]
    wrong: int
    reasons: List[str]

    def record(self) -> Dict[str, Any]:
        """For --json."""
        return asdict(self)


def parse_nccl(text: str) -> List[Row]:
    """The rows that nccl-tests printed, of old releases without a root column and of new ones."""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].isdigit() or not words[1].isdigit():
            continue
        numbers = words[4:]
        if len(numbers) in (5, 9):  # the root
            numbers = numbers[1:]
        if len(numbers) not in (4, 8):
            continue
        halves = [numbers[i : i + 4] for i in range(0, len(numbers), 4)]
        best = max(halves, key=lambda half: float(half[2]))
        wrong = sum(int(half[3]) for half in halves if half[3].isdigit())
        time_us, algbw, busbw = (float(number) for number in best[:3])
        rows.append(Row(int(words[0]), int(words[1]), words[2], time_us, algbw, busbw, wrong))
    return rows


def parse_nccom(text: str) -> List[Row]:
    """The rows that nccom-test printed."""
    found = re.findall(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", text, re.MULTILINE)
    return [Row(int(a), int(b), c, float(d), float(e), float(f), 0) for a, b, c, d, e, f in found]


def threshold(
    collective: str, backend: str, wire_gbps: float, nodes: int, ranks_per_node: int, share: float = 1.0
) -> Optional[float]:
    """GB/s that healthy nodes reach, None where nothing can be said. ``share`` is the part of a node's devices used."""
    if nodes < 2 or not wire_gbps:
        return None
    wire = wire_gbps / 8 * share * EFFICIENCY[backend]
    if collective in RING:
        return wire
    if collective == "alltoall":
        ranks = nodes * ranks_per_node
        return wire / ranks_per_node * (ranks - 1) / ((nodes - 1) * ranks_per_node)
    return None


def average_of(text: str, rows: List[Row]) -> float:
    """The average that the test itself printed, else the rows'."""
    said = re.search(r"Avg bus bandwidth\s*:\s*([\d.]+)", text)
    if said:
        return float(said.group(1))
    return sum(row.busbw for row in rows) / len(rows) if rows else 0.0


def rate(rows: List[Row], average: float, limit: Optional[float]) -> Rating:
    """PASS or FAIL: no wrong value, and a peak that is not below the limit."""
    peak = max((row.busbw for row in rows), default=0.0)
    wrong = sum(row.wrong for row in rows)
    reasons = []
    if not rows:
        reasons.append("the test printed no result")
    if wrong:
        reasons.append(f"{wrong} wrong values: data is corrupted on its way")
    if limit is not None and rows and peak < limit:
        reasons.append(f"peak {peak:.2f} GB/s is below {limit:.2f} GB/s")
    return Rating(not reasons, average, peak, limit, wrong, reasons)


def table(rows: List[Row]) -> List[str]:
    """The rows as nccl-tests shows them."""
    lines = [f"{'size':>12} {'count':>12} {'type':>8} {'time':>11} {'algbw':>8} {'busbw':>8} {'#wrong':>7}"]
    lines.append(f"{'(B)':>12} {'(elements)':>12} {'':>8} {'(us)':>11} {'(GB/s)':>8} {'(GB/s)':>8}")
    body = [
        f"{r.size:>12} {r.count:>12} {r.type:>8} {r.time_us:>11.1f} {r.algbw:>8.2f} {r.busbw:>8.2f} {r.wrong:>7}"
        for r in rows
    ]
    return lines + body


def verdict(rating: Rating, hints: List[str]) -> List[str]:
    """The end of every test's output."""
    limit = f"{rating.threshold:.2f} GB/s" if rating.threshold is not None else "none (only correctness is rated)"
    lines = [
        f"Average bus bandwidth: {rating.average:.2f} GB/s",
        f"Peak bus bandwidth:    {rating.peak:.2f} GB/s",
        f"Threshold:             {limit}",
    ]
    lines += [f"  {reason}" for reason in rating.reasons]
    if not rating.passed:
        lines += ["Look at:"] + [f"  - {hint}" for hint in hints]
    return [*lines, "PASS" if rating.passed else "FAIL"]


def hints(transport: str) -> List[str]:
    """Where a slow or failed test usually comes from, most likely first."""
    common = [
        "sinfo -R and /fsx/.hyperpod/nodes/*.json: nodes that came up degraded",
        "run it again with NCCL_DEBUG=INFO: which network each rank chose",
        "run it on pairs of nodes: a single slow node shows in every pair that has it",
    ]
    if transport == "tcp":
        return ["the transport is tcp: is EFA expected on these nodes? `fi_info -p efa` on a worker", *common]
    return [
        "the security group must allow all traffic from and to itself, or EFA carries nothing",
        "`fi_info -p efa -t FI_EP_RDM` on a worker: as many domains as the type has interfaces?",
        "all nodes in one availability zone? EFA does not leave it",
        *common,
    ]
