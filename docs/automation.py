"""Deploy a stack from Python by Pulumi's Automation API: price, preview, deployment, outputs, a measurement of the
network. Copy and change it.

venv/bin/python docs/automation.py dev --rehearse      # on this machine, without an AWS account
venv/bin/python docs/automation.py dev                 # for real
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from operations import target
from operations.cluster import benchmark
from operations.deployment import deploy, engines
from operations.deployment.engines import Engine
from operations.failures import explain
from operations.spending import costs
from operations.target import Target
from rehearsal.verb_engine import rehearsed

MOST_HOURLY_USD = 50.0


@contextmanager
def engine_for(chosen: Target, *, rehearse: bool, install_cli: bool) -> Iterator[Engine]:
    """The stack on the Pulumi engine, or in the embedded account for a rehearsal."""
    if rehearse:
        with rehearsed(chosen) as (engine, _):
            yield engine
    else:
        yield engines.open_stack(chosen, create=True, install_cli=install_cli)


def deploy_within_budget(stack: str, *, rehearse: bool, install_cli: bool = False) -> int:
    """Deploy a stack unless it is too expensive or would replace something. Returns an exit code."""
    chosen = target.load(stack)  # reports every problem of the configuration at once
    price = costs.bill(chosen.config).cost
    affordable = price.within(MOST_HOURLY_USD)
    if affordable is False:
        print(f"{stack} costs more than ${MOST_HOURLY_USD:.2f} an hour: {price.words}")
        return 1
    if affordable is None:  # a price is unknown, and an estimate keeps no budget
        print(f"whether {stack} costs more than ${MOST_HOURLY_USD:.2f} an hour is unknown: {price.words}")
        return 3
    with engine_for(chosen, rehearse=rehearse, install_cli=install_cli) as engine:
        plan = deploy.run(chosen, engine, "preview")
        replaced = [change for change in plan.changes if "replace" in change]
        if not plan.succeeded or replaced:
            print(f"not deployed: {plan.cause or replaced or 'cancelled'}")
            return int(plan.code) or 1
        report = deploy.run(chosen, engine, "up", total=len(plan.changes))
    if not report.succeeded:
        print(f"failed: {report.cause or 'cancelled'}\nnext: {report.next_step}")
        return int(report.code)
    print(f"{stack} is up for {price.words}: {report.outputs['clusterArn']}")
    return 0 if rehearse else measure(chosen)


def measure(chosen: Target) -> int:
    """Whether the network is at line rate, by a job on all workers of the first group. Returns an exit code."""
    result = benchmark.keep(chosen, benchmark.run(chosen, "all_reduce", None, 1800, print), None)
    print(f"{result.peak:.1f} GB/s of at least {result.threshold or 0:.1f}", *result.reasons, sep="\n")
    return 0 if result.passed else 1


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stack")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--install-cli", action="store_true", help="install the Pulumi CLI if it is missing")
    options = parser.parse_args()
    try:
        return deploy_within_budget(options.stack, rehearse=options.rehearse, install_cli=options.install_cli)
    except KeyboardInterrupt:
        print("cancelled", file=sys.stderr)
        return 130
    except Exception as error:
        failure = explain(error)
        if failure is None:
            raise
        print(failure.message, failure.hint, sep="\n", file=sys.stderr)
        return failure.code


if __name__ == "__main__":
    sys.exit(main())
