"""The verb ``list``."""

from typing import Any

from components.config import ConfigError
from components.estimates.cost import estimate

from .. import target
from ..project import stack_names
from ..project.stack_file import ProjectError
from ..terminal import console


def list_command(as_json: console.Json = False) -> None:
    """List the stacks that have a file, with their price.

    "~" marks an estimate, "<=" the most that it can be.
    Reads the files alone: `hyperpod node list STACK` asks AWS whether a cluster is
    there.

    \b
      hyperpod list
      hyperpod list -o json
    """
    found = [_row(name) for name in stack_names(target.ROOT)]
    if as_json:
        console.emit([{key: value for key, value in one.items() if key != "hourly"} for one in found])
        return
    console.table(
        "",
        ["stack", "runs", "region", "workers", ("$/hour", "right")],
        [
            (one["stack"], one["orchestrator"], one["region"], one["workers"], one["hourly"])
            if "problem" not in one
            else (one["stack"], one["problem"], "", "", "")
            for one in found
        ],
    )


def _row(name: str) -> dict[str, Any]:
    try:
        config = target.load(name).config
    except ConfigError as wrong:
        number = len(wrong.problems)
        return {"stack": name, "problem": f"{number} problem{'s' if number > 1 else ''}: hyperpod cost {name}"}
    except ProjectError as wrong:
        return {"stack": name, "problem": str(wrong).splitlines()[0]}
    price = estimate(config)
    return {
        "stack": name,
        "orchestrator": config.settings.orchestrator,
        "region": config.region.name,
        "workers": ", ".join(f"{group.count} x {group.type_names}" for group in config.worker_groups),
        "hourly_usd": price.hourly_usd,
        "estimated_hourly_usd": price.whole.guess,
        "hourly": price.whole.figure(),
    }
