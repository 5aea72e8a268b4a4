"""The files Pulumi.yaml and Pulumi.STACK.yaml."""

from pathlib import Path


def stack_names(folder: Path) -> list[str]:
    """The stacks of a project that have a file."""
    return sorted(path.name.split(".")[1] for path in folder.glob("Pulumi.*.yaml"))
