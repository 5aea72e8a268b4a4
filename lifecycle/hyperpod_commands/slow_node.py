"""``hyperpod-find-slow-node [nodes]``: tests pairs of idle workers with each other, and names what is slow.

Every pair runs an all-reduce of one large message, with the test that ``hyperpod-benchmark`` uses.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Dict, List, Tuple

from . import bandwidth, nccl_test, nccom_test, pairs
from .benchmark import idle_workers
from .cluster import BIN, Trouble, Workers, allocate, as_person, ask_workers, record, run, say, worker_group

NAME = "hyperpod-find-slow-node"
# Large enough that the wire decides, and not the start of a transfer.
NCCL_SIZES = ("-b", "1G", "-e", "1G", "-n", "20")
GLOO_SIZES = ("-b", "16M", "-e", "16M", "-n", "5")
NCCOM_SIZES = ("--minbytes", "128mb", "--maxbytes", "128mb", "--datatype", "bf16", "--iters", "20")


def main() -> int:
    """Allocate the workers; inside the allocation, test the pairs."""
    options = parser().parse_args()
    own = record()
    if own.group.role == "worker":
        raise Trouble("run this on the controller or a login node; it allocates the workers")
    as_person(NAME)
    group = worker_group(own, options.partition)
    if not os.environ.get("HYPERPOD_INSIDE"):
        nodes = options.nodes or idle_workers(group)
        if nodes < 2:
            raise Trouble(f"a pair needs two idle workers, and there is {nodes}; see sinfo")
        os.environ["HYPERPOD_INSIDE"] = str(nodes)
        per_node = max(1, group.accelerators)
        partition = options.partition or group.partition or None
        allocate(nodes, per_node, group.gres, partition, [f"{BIN}/{NAME}", *sys.argv[1:]])
    workers = ask_workers(int(os.environ["HYPERPOD_INSIDE"]))
    blocks = topology()
    ordered = sorted(workers.facts, key=lambda fact: (blocks.get(str(fact["hostname"]), ""), str(fact["hostname"])))
    tester = Tester(Workers(ordered), group.accelerator == "trainium", options.timeout)
    found = tester.run()
    threshold = tester.threshold if options.threshold is None else options.threshold
    findings = pairs.judge(found, threshold, blocks)
    if options.json:
        document = {
            "test": tester.backend,
            "tested": tester.workers.names,
            "pairs": [asdict(pair) for pair in found],
            **findings.record(),
            "passed": findings.good,
        }
        print(json.dumps(document, indent=2, sort_keys=True))
    else:
        say("\n".join(pairs.verdict(findings)))
    return 0 if findings.good else 1


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    found = argparse.ArgumentParser(prog=NAME, description=(__doc__ or "").split("\n")[0])
    found.add_argument("nodes", nargs="?", type=int, default=0, help="number of workers (default: all idle ones)")
    found.add_argument("-p", "--partition")
    found.add_argument(
        "--threshold", type=float, help="required GB/s of a pair (default: by instance type; 0 for none)"
    )
    found.add_argument("--timeout", type=float, default=180, help="seconds for each pair (default 180)")
    found.add_argument("--json", action="store_true", help="print the result as JSON, everything else to stderr")
    return found


class Tester:
    """Tests pairs of an allocation's workers, those of a round at the same time."""

    def __init__(self, workers: Workers, trainium: bool, timeout: float) -> None:
        self.workers, self._timeout = workers, timeout
        self.backend = "nccom" if trainium else nccl_test.choose(workers)
        group = workers.first["group"]
        devices = int(group["neuron_cores"] if trainium else group["accelerators"])
        self._per_node = 1 if self.backend == "gloo" else max(1, devices)
        arguments = ["2", str(self._per_node), "all_reduce"]
        if trainium:
            self._options = nccom_test.parser().parse_args(arguments)
            wire = float(group["network_gbps"])
            self.threshold = bandwidth.threshold("all_reduce", "nccom", wire, 2, self._per_node)
        else:
            sizes = GLOO_SIZES if self.backend == "gloo" else NCCL_SIZES
            self._options = nccl_test.parser().parse_args([*arguments, *sizes])
            self.threshold = nccl_test.limit(self._options, self.backend, workers, self._per_node)

    def run(self) -> List[pairs.Pair]:
        """Test every round of pairs."""
        schedule = pairs.rounds(self.workers.names)
        facts = {str(fact["hostname"]): fact for fact in self.workers.facts}
        found: List[pairs.Pair] = []
        for number, members in enumerate(schedule, 1):
            with ThreadPoolExecutor(len(members)) as pool:
                tested = list(pool.map(lambda pair: self._test(Workers([facts[name] for name in pair])), members))
            for pair in tested:
                speed = "failed" if pair.busbw is None else f"{pair.busbw:.2f} GB/s"
                why = f": {pair.reason}" if pair.reason else ""
                say(f"round {number} of {len(schedule)}: {' - '.join(pair.nodes)} {speed}{why}")
            found += tested
        return found

    def _test(self, two: Workers) -> pairs.Pair:
        code, text = nccl_test.run_test(self._command(two), self._timeout, lambda line: None)
        test = "nccom" if self.backend == "nccom" else "nccl"
        rating = bandwidth.rate(test, text, None, nccl_test.failure(code, text))
        failed = code != 0 or not rating.rows
        reason = rating.reasons[0] if failed and rating.reasons else ""
        return pairs.Pair((two.names[0], two.names[1]), None if failed else rating.peak, reason)

    def _command(self, two: Workers) -> List[str]:
        if self.backend == "nccom":
            return nccom_test.command(self._options, two, self._per_node, NCCOM_SIZES)
        if self.backend == "gloo":
            return nccl_test.gloo(self._options, two)
        return nccl_test.mpirun(self._options, two, self._per_node)


def topology() -> Dict[str, str]:
    """Return the leaf switch or block of each node, as far as Slurm knows its topology."""
    try:
        shown = run(["scontrol", "show", "topology"], timeout=20)
    except Trouble:
        return {}
    found: Dict[str, str] = {}
    for name, nodes in _leaves(shown):
        for node in run(["scontrol", "show", "hostnames", nodes], timeout=20).split():
            found[node] = name
    return found


def _leaves(shown: str) -> List[Tuple[str, str]]:
    """Return names of leaf switches (Level=0) and blocks, and their nodes."""
    words = [dict(word.partition("=")[::2] for word in line.split() if "=" in word) for line in shown.splitlines()]
    return [
        (fields.get("SwitchName") or fields["BlockName"], fields["Nodes"])
        for fields in words
        if fields.get("Nodes") and ("BlockName" in fields or fields.get("Level") == "0")
    ]


def entry() -> int:
    """Run the command; report a failure in one line."""
    try:
        return main()
    except Trouble as trouble:
        print(f"{NAME}: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(entry())
