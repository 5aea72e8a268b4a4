"""Write every golden file anew: ``python -m tests.golden.renew``."""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "lifecycle"))

import yaml

from tests.golden import changes, files
from tests.golden.dashboards import DIGESTS, digests
from tests.golden.figures import FIGURES, given
from tests.golden.jobs import JOBS, STACKS, rendered
from tests.golden.nodes import CLUSTERS, NODES, Nodes, booted
from tests.golden.normal import Normal, brief
from tests.golden.options import OPTIONS, options
from tests.golden.stacks import DEPLOYMENTS, GOLDEN, WRITTEN, on_the_day, told
from tests.golden.words import ESTIMATES, REFUSALS, estimates, refusals, unlisted


def deployments() -> None:
    """Deploy each configuration that is written down and write what it made, less what its base has too."""
    made: dict[str, Normal] = {}
    for name in WRITTEN:
        made[name], golden = brief(told(name)), GOLDEN[name]
        changes = files.difference(made[name], golden.compared(made.__getitem__))
        title = f"What differs from {golden.base}" if golden.base else "Every resource"
        files.write(DEPLOYMENTS / name, changes, f"{title}; `make golden` writes this file.")
    for folder in DEPLOYMENTS.iterdir():
        if folder.name not in WRITTEN:
            shutil.rmtree(folder)


def nodes() -> None:
    """Boot every kind of node and write what it left, less what its base has too."""
    made: dict[str, Nodes] = {}
    for cluster, base in CLUSTERS.items():
        made[cluster] = booted(cluster)
        title = f"What differs from {base}" if base else "What a first boot leaves"
        changes = files.difference(made[cluster], made.get(base, {}))
        files.write(NODES / cluster, changes, f"{title}; `make golden` writes this file.")


def figures() -> None:
    """Have a node write its figures, where everything there is has one."""
    files.write(FIGURES, given(), "What nodes give of their figures; `make golden` writes this file.")


def jobs() -> None:
    """Render every job of the EKS stacks and write it, less what the base has too."""
    for name in STACKS:
        base = GOLDEN[name].base
        changes = files.difference(rendered(name), rendered(base) if base in STACKS else {})
        title = f"What differs from {base}" if base in STACKS else "Every job"
        files.write(JOBS / name, changes, f"{title}; `make golden` writes this file.")


def living() -> None:
    """Make every change of the stories and write what it came to."""
    stories = {stack: changes.tell(stack) for stack in changes.STORIES}
    files.write(
        changes.CHANGES, stories, "What each change comes to, on top of those before; `make golden` writes this file."
    )


def words() -> None:
    """Ask every configuration what it implies, and every bad one what is wrong."""
    with on_the_day():
        files.write(ESTIMATES, estimates(), "What a configuration implies; `make golden` writes this file.")
        files.write(REFUSALS, unlisted(refusals()), "What bad configurations are told; `make golden` writes this file.")
    files.write(OPTIONS, options(), "What it can be told; `make golden` writes this file.")


def dashboards() -> None:
    """Build every dashboard and write its digest."""
    text = yaml.safe_dump(digests(), sort_keys=False)
    DIGESTS.write_text(f"# First digits of a SHA-256 of each dashboard's JSON; `make golden` writes this file.\n{text}")


if __name__ == "__main__":
    words()
    dashboards()
    jobs()
    nodes()
    figures()
    living()
    deployments()
