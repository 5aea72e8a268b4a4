"""From configuration to complete plan: wall-clock seconds per variant, and how they grow with instance groups.

Repeat with ``venv/bin/python -m benchmarks.plan``. Each row is a fresh interpreter, so that imports count as they do
for a user; best of three. Promises: 3 s or less for every variant on two cores, and growth no worse than linear.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VARIANTS = ("slurm-gpu", "slurm-trainium", "eks-gpu", "eks-trainium")
GROUPS = (1, 10, 25, 50, 98)
LIMIT_SECONDS = 3.0

_PROGRAM = """
import sys, time
begun = time.perf_counter()
from pathlib import Path
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from operations.project.loading import load_project
project = load_project(Path("."), sys.argv[1], sys.argv[2:])
imported = time.perf_counter()
deployment = up(project, Account(project.config["aws:region"]), preview=True)
assert not deployment.failure, deployment.failure
done = time.perf_counter()
print(done - begun, done - imported, len(deployment.state))
"""


def measure(stack: str, *overrides: str) -> tuple[float, float, int]:
    """Best of three: seconds in all, seconds without imports of the rehearsal itself, resources planned."""
    runs = []
    for _ in range(3):
        command = [sys.executable, "-c", _PROGRAM, stack, *overrides]
        out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        runs.append((float(out[0]), float(out[1]), int(out[2])))
    return min(runs)


def main() -> int:
    """Print both tables; 1 where a promise is broken."""
    print(f"{'variant':16} {'seconds':>8} {'plan only':>10} {'resources':>10}")
    slowest = 0.0
    for stack in VARIANTS:
        total, planning, resources = measure(stack)
        slowest = max(slowest, total)
        print(f"{stack:16} {total:8.2f} {planning:10.2f} {resources:10}")
    print(f"\n{'groups':>6} {'plan only':>10} {'over 1 group, per group':>25}")
    base, costs = 0.0, []
    for count in GROUPS:
        groups = [{"name": f"g{n}", "instanceType": "ml.g5.16xlarge", "count": 1} for n in range(count)]
        _, planning, _ = measure("slurm-gpu", f"hyperpod:workers={json.dumps(groups)}")
        base = base or planning
        growth = (planning - base) / (count - 1) if count > 1 else 0.0
        costs.append(growth)
        print(f"{count:6} {planning:10.2f} {growth * 1000:22.2f} ms")
    # Linear: a group costs no more among many than among few, give or take the noise of a small difference.
    linear = costs[-1] <= max(costs[1], 0.002) * 1.5
    print(
        f"\nslowest variant {slowest:.2f} s of {LIMIT_SECONDS} s; growth {'linear' if linear else 'worse than linear'}"
    )
    return 0 if slowest <= LIMIT_SECONDS and linear else 1


if __name__ == "__main__":
    sys.exit(main())
