"""Which node or link is slow, by tests between pairs of nodes.

A collective over all nodes is as slow as its slowest node, and does not say which one that is. Pairs do: a slow node
slows every pair that it is in, a slow link only one, and a slow switch those on both sides of it. A few rounds of
disjoint pairs, which run at the same time, are enough.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

# A pair is slow below this share of the fastest. Our own figure: one of four network cards lost costs 25 %.
SHARE = 0.8


@dataclass(frozen=True)
class Pair:
    """The test between two nodes: bus bandwidth in GB/s, None if the test failed, and why it did."""

    nodes: Tuple[str, str]
    busbw: Optional[float]
    reason: str = ""


@dataclass(frozen=True)
class Findings:
    """The result of the pairs. ``limit`` is in GB/s. ``switches`` are pairs of topology blocks, ``common`` is true if
    no pair is fast, which says nothing about single nodes.
    """

    limit: float
    fastest: float
    nodes: Tuple[str, ...]
    links: Tuple[Tuple[str, str], ...]
    switches: Tuple[Tuple[str, str], ...]
    common: bool

    @property
    def good(self) -> bool:
        """Whether nothing is slow."""
        return not (self.nodes or self.links or self.switches or self.common)

    def record(self) -> Dict[str, Any]:
        """Return the findings for --json."""
        return asdict(self)


def rounds(nodes: Sequence[str]) -> List[List[Tuple[str, str]]]:
    """Return rounds of disjoint pairs, in each of which a node has a partner that it did not have before.

    Their number is the logarithm of the number of nodes to the base 2, plus one, so that most partners of a node are
    good even if one is not. An odd number leaves one node out of each round. This is the circle method of tournaments.
    """
    ring: List[Optional[str]] = [*nodes, *([None] if len(nodes) % 2 else [])]
    many = min(len(ring) - 1, max(1, (len(nodes) - 1).bit_length()) + 1)
    found = []
    for _ in range(many):
        facing = [(ring[place], ring[-1 - place]) for place in range(len(ring) // 2)]
        found.append([(one, other) for one, other in facing if one is not None and other is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def judge(pairs: Sequence[Pair], threshold: Optional[float], blocks: Mapping[str, str]) -> Findings:
    """Find what is slow: below SHARE of the fastest pair, or below the threshold in GB/s that every pair should reach.

    ``blocks`` names the topology block (leaf switch) of each node, as far as it is known. Raises ValueError without
    pairs.
    """
    fastest = max(pair.busbw or 0.0 for pair in pairs)
    limit = max(threshold or 0.0, SHARE * fastest)
    slow = [pair.nodes for pair in pairs if pair.busbw is None or pair.busbw < limit]
    if len(slow) == len(pairs):
        return Findings(limit, fastest, (), (), (), common=True)
    switches, rest = _switches([pair.nodes for pair in pairs], slow, blocks)
    nodes, links = _nodes([pair.nodes for pair in pairs], rest)
    return Findings(limit, fastest, tuple(sorted(nodes)), tuple(links), tuple(switches), common=False)


def _switches(
    pairs: Sequence[Tuple[str, str]], slow: Sequence[Tuple[str, str]], blocks: Mapping[str, str]
) -> Tuple[List[Tuple[str, str]], List[Tuple[str, str]]]:
    """Return blocks between which every pair is slow while both have a fast pair inside; and the slow pairs that
    remain.
    """

    def between(pair: Tuple[str, str]) -> Tuple[str, str]:
        one, other = sorted(blocks.get(node, "") for node in pair)
        return one, other

    every, bad = Counter(map(between, pairs)), Counter(map(between, slow))
    sound = {one for one, other in every if one == other and bad[one, one] < every[one, one]}
    found = [
        ends for ends, many in sorted(every.items())
        if ends[0] and ends[0] != ends[1] and many > 1 and bad[ends] == many and sound.issuperset(ends)
    ]  # fmt: skip
    return found, [pair for pair in slow if between(pair) not in found]


def _nodes(
    pairs: Sequence[Tuple[str, str]], slow: Sequence[Tuple[str, str]]
) -> Tuple[List[str], List[Tuple[str, str]]]:
    """Return nodes that explain several slow pairs, each most of its pairs, the worst first; and the slow pairs that
    remain.
    """
    tested = Counter(node for pair in pairs for node in pair)
    found: List[str] = []
    rest = list(slow)
    while rest:
        worst, many = Counter(node for pair in rest for node in pair).most_common(1)[0]
        if many < 2 or 2 * many <= tested[worst]:
            break
        found.append(worst)
        rest = [pair for pair in rest if worst not in pair]
    return found, rest


def verdict(findings: Findings) -> List[str]:
    """Return the findings, in lines for people."""
    limit = f"{findings.limit:.2f} GB/s"
    lines = [f"Fastest pair: {findings.fastest:.2f} GB/s; slow is below {limit}"]
    lines += [f"slow node: {node}, in most of its pairs" for node in findings.nodes]
    lines += [f"slow link: {one} - {other}; both are fast with others" for one, other in findings.links]
    lines += [f"slow switch: every pair between {one} and {other}" for one, other in findings.switches]
    if findings.common:
        lines.append(f"every pair is below {limit}: the cause is common to all, not one node")
    return [*lines, "PASS" if findings.good else "FAIL"]
