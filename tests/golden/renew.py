"""Write every golden file anew: ``python -m tests.golden.renew``."""

from __future__ import annotations

import shutil

from tests.golden import files
from tests.golden.normal import Normal
from tests.golden.stacks import DEPLOYMENTS, GOLDEN, told


def deployments() -> None:
    """Deploy every golden configuration and write what it made, less what its base has too."""
    made: dict[str, Normal] = {}
    for name, chosen in GOLDEN.items():
        made[name] = told(name)
        base = made.get(chosen.base, {})
        title = f"What differs from {chosen.base}" if chosen.base else "Every resource"
        files.write(DEPLOYMENTS / name, files.difference(made[name], base), f"{title}; `make golden` writes this file.")
    for folder in DEPLOYMENTS.iterdir():
        if folder.name not in GOLDEN:
            shutil.rmtree(folder)


if __name__ == "__main__":
    deployments()
