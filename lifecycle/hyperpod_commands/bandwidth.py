"""Bus bandwidth, parsed from the tests' output and compared with what the network can carry.

nccl-tests defines bus bandwidth so that for ring collectives it is the traffic on the slowest link, whatever the
number of ranks (nccl-tests, doc/PERFORMANCE.md). Between nodes that link is the node's network. The threshold is

    network_gbps / 8  x  gpus used / gpus of the node  x  EFFICIENCY

GB/s for all_reduce, all_gather, reduce_scatter, broadcast and reduce on two or more nodes. It does not depend on the
number of nodes, because the definition already includes it. In an alltoall of n nodes with g ranks each, a rank shares
the wire with the other ranks of its node and sends (n-1)g of its ng-1 parts over it, so the threshold is the above
/ g x (ng-1) / ((n-1)g). sendrecv, gather and scatter have no threshold, nor has a test inside one node: only their
correctness is rated. A test that did not check its values either fails.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

# Share of the wire that healthy nodes reach with the largest messages. nccl: 35-45 of 50 GB/s on p4d and 3.0 of 3.1
# GB/s on g5.16xlarge have been reported. nccom: 37 of 100 GB/s on trn1 at 128 MB. gloo: one process per node that
# copies by CPU, over any Ethernet.
EFFICIENCY = {"nccl": 0.7, "nccom": 0.35, "gloo": 0.2}
RING = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")

# mpirun, srun --label and kubectl may put the rank before each line.
_LABEL = re.compile(r"^[ \t]*(?:\[\d+,\d+\]<\w+>:|\d+:)[ \t]?", re.MULTILINE)
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device", re.MULTILINE)
# Size, count, type and what comes after them.
_ROW = re.compile(r"^[ \t]*(\d+)[ \t]+(\d+)[ \t]+([a-z]\w*)\b(.*)$", re.MULTILINE)
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+)")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\S+)[ \t]*(\w*)")
# nccom-test's output does not say whether values were checked; its command line does.
_CHECKED = re.compile(r"nccom-test\b.*\s(?:--check|-c)(?:\s|$)", re.MULTILINE)
# No successful test prints the first of these. The second also explains why a test did not finish.
_FAILED = re.compile(
    r"NCCL WARN .*\berror\b|NCCL failure|Test \w* ?failure|exited on signal|exited with non-zero status|core dumped"
    r"|segmentation fault|errors found|test failed|Failure running",
    re.IGNORECASE,
)
_COMPLAINT = re.compile(rf"{_FAILED.pattern}|NCCL WARN|\berror\b|aborted|Killed|not found", re.IGNORECASE)
_MOST = 3


@dataclass(frozen=True)
class Row:
    """One message size: time in microseconds, bandwidths in GB/s, the better of out of place and in place.

    ``wrong`` is None if the values were not checked.
    """

    size: int
    count: int
    type: str
    time_us: float
    algbw: float
    busbw: float
    wrong: Optional[int]


@dataclass(frozen=True)
class Rating:
    """The result of a test. ``wrong`` is None if no value was checked."""

    passed: bool
    rows: List[Row]
    average: float
    peak: float
    threshold: Optional[float]
    wrong: Optional[int]
    reasons: List[str]

    def record(self) -> Dict[str, Any]:
        """Return the rating for --json."""
        return asdict(self)


def parse(test: str, text: str) -> Tuple[List[Row], List[str]]:
    """Parse the rows that nccl-tests, gloo's sweep (same columns) or nccom-test printed, and the malformed rows.

    A row is malformed if another rank's output is between its columns, or a number is invalid. nccom-test's rows count
    as checked after a command line with --check.
    """
    rows, broken = [], []
    check = _CHECKED.search(text)
    for found in _ROW.finditer(text):
        size, count, kind, rest = found.groups()
        try:
            columns = (
                _nccom(rest.split(), bool(check and check.end() <= found.start()))
                if test == "nccom"
                else _nccl(rest.split())
            )
            # Python refuses to parse a number with too many digits.
            rows.append(Row(int(size), int(count), kind, *columns))
        except ValueError:
            broken.append(found.group(0).strip())
    return rows, broken


def _nccl(columns: List[str]) -> Tuple[float, float, float, Optional[int]]:
    """Return the better of out of place and in place. Old releases print no root column. Raises ValueError."""
    if columns and columns[0].isalpha():  # the reduction
        columns = columns[1:]
    if len(columns) in (5, 9):  # the root
        columns = columns[1:]
    if len(columns) not in (4, 8):
        raise ValueError
    halves = [_numbers(columns[start : start + 3]) for start in range(0, len(columns), 4)]
    wrong = [_wrong(column) for column in columns[3::4] if column != "N/A"]
    return (*max(halves, key=lambda half: half[2]), sum(wrong) if wrong else None)


def _nccom(columns: List[str], checked: bool) -> Tuple[float, float, float, Optional[int]]:
    """Return the three numbers. With --check, the test itself fails if a value is wrong. Raises ValueError."""
    if len(columns) != 3:
        raise ValueError
    return (*_numbers(columns), 0 if checked else None)


def _numbers(columns: Sequence[str]) -> Tuple[float, float, float]:
    time_us, algbw, busbw = (_finite(column) for column in columns)
    return time_us, algbw, busbw


def _finite(column: str) -> float:
    number = float(column)
    if not math.isfinite(number):
        raise ValueError
    return number


def _wrong(column: str) -> int:
    """Parse the number of wrong values: %g, like 2.68435e+08. Old releases print the largest error, like 1e-07."""
    number = float(column)
    return int(number) if math.isfinite(number) else 1


def placement(text: str) -> Optional[Tuple[int, int]]:
    """Return the number of nodes, and of ranks on each, from nccl-tests' list; None without such a list."""
    ranks = dict(_RANK.findall(_LABEL.sub("", text)))
    nodes = len(set(ranks.values()))
    return (nodes, max(1, len(ranks) // nodes)) if nodes else None


def threshold(
    collective: str, backend: str, wire_gbps: float, nodes: int, ranks_per_node: int, share: float = 1.0
) -> Optional[float]:
    """Return the GB/s that healthy nodes reach; None if unknown. ``share``: the fraction of a node's devices in use."""
    if nodes < 2 or not wire_gbps:
        return None
    wire = wire_gbps / 8 * share * EFFICIENCY[backend]
    if collective in RING:
        return wire
    if collective == "alltoall":
        ranks = nodes * ranks_per_node
        return wire / ranks_per_node * (ranks - 1) / ((nodes - 1) * ranks_per_node)
    return None


def rate(test: str, text: str, limit: Optional[float], failure: str = "") -> Rating:
    """Return PASS or FAIL from a test's output: it finished, no value is wrong, and the peak is not below the limit.

    ``failure`` is anything else that went wrong, for example the exit status.
    """
    text = _LABEL.sub("", text)
    rows, broken = parse(test, text)
    peak = max((row.busbw for row in rows), default=0.0)
    checked = [row.wrong for row in rows if row.wrong is not None]
    wrong = sum(checked) if checked else None
    reasons = []
    if not rows:
        reasons.append("the test printed no result")
    if wrong:
        reasons.append(f"{wrong} wrong values: data was corrupted in transit")
    check = _CHECKED.search(text)
    if check and (not checked or not _AVERAGE.search(text, check.end())):
        reasons.append("the check of values did not finish")
    reasons += [f"a row cannot be read: {row}" for row in broken[:_MOST]]
    if limit is not None and rows and peak < limit:
        reasons.append(f"peak {peak:.2f} GB/s is below {limit:.2f} GB/s")
    if limit is None and rows and wrong is None:
        reasons.append("nothing to rate: no threshold is known, and the test did not check its values")
    average, said = _end(text)
    reasons += said + ([failure] if failure else [])
    if average is None:
        average = sum(row.busbw / len(rows) for row in rows)
    return Rating(not reasons, rows, average, peak, limit, wrong, reasons)


def _end(text: str) -> Tuple[Optional[float], List[str]]:
    """Return the average that the test printed last, and the errors that it, MPI or the network reported."""
    reasons = []
    bounds = _OUT_OF_BOUNDS.search(text)
    if bounds and (bounds.group(1) != "0" or bounds.group(2) == "FAILED"):
        reasons.append(f"out of bounds values: {bounds.group(1)}")
    average, said = None, _AVERAGE.search(text)
    if said is None:
        reasons.append("the output is incomplete: it has no average bus bandwidth")
    else:
        try:
            average = _finite(said.group(1).replace("GB/s", ""))
        except ValueError:
            reasons.append(f"the average bus bandwidth is {said.group(1)}")
    complaint = _COMPLAINT if average is None else _FAILED
    lines = [line.strip() for line in text.splitlines() if complaint.search(line) and not line.startswith("#")]
    return average, reasons + lines[:_MOST]


def verdict(rating: Rating, hints: List[str]) -> List[str]:
    """Return the summary at the end of every test's output."""
    limit = f"{rating.threshold:.2f} GB/s" if rating.threshold is not None else "none (only correctness is rated)"
    wrong = "not checked" if rating.wrong is None else rating.wrong
    lines = [
        f"Average bus bandwidth: {rating.average:.2f} GB/s",
        f"Peak bus bandwidth:    {rating.peak:.2f} GB/s",
        f"Threshold:             {limit}",
        f"Wrong values:          {wrong}",
    ]
    lines += [f"  {reason}" for reason in rating.reasons]
    if not rating.passed:
        lines += ["Look at:"] + [f"  - {hint}" for hint in hints]
    return [*lines, "PASS" if rating.passed else "FAIL"]


def hints(transport: str) -> List[str]:
    """Return the usual causes of a slow or failed test, most likely first."""
    common = [
        "sinfo -R and /fsx/.hyperpod/nodes/*.json: nodes that came up degraded",
        "run it again with NCCL_DEBUG=INFO, which shows the network that each rank chose",
        "run it on pairs of nodes: a slow node slows every pair that it is in",
    ]
    if transport == "tcp":
        return ["the transport is tcp: is EFA expected on these nodes? `fi_info -p efa` on a worker", *common]
    return [
        "the security group must allow all traffic from and to itself, or EFA does not work",
        "`fi_info -p efa -t FI_EP_RDM` on a worker should list one domain per EFA interface",
        "all nodes must be in one Availability Zone: EFA traffic cannot leave it",
        *common,
    ]
