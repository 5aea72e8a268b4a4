"""Values of the wrong shape: what is wrong with them in the user's terms, and the settings without them.

Only the malformed value is left out, so that everything beside it is still checked.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from ..catalogue.accelerators import ACCELERATORS
from .model import Charts, Fsx, Login, NetworkConfig, Settings, Taint, Team, WorkerGroup
from .problems import NAMESPACE, Problem

Path: TypeAlias = tuple[str | int, ...]


def settled(raw: Mapping[str, Any]) -> tuple[Settings, list[Problem], set[str]]:
    """The settings with malformed values left out; what was wrong; the keys that are not what was given."""
    values = deepcopy(dict(raw))
    problems: list[Problem] = []
    spoilt: set[Path] = set()
    filled: set[Path] = set()
    while True:
        try:
            return Settings.model_validate(values), problems, {_key(path) for path in spoilt}
        except ValidationError as refused:
            errors = refused.errors()
        # What later rounds find follows from what earlier ones left out.
        problems = problems or [_problem(error) for error in errors]
        for error in errors:
            left_out = _leave_out(values, error["loc"], filled, missing=error["type"] == "missing")
            if error["type"] != "extra_forbidden":
                spoilt.add(left_out)


def unaffected(settings: Settings, spoilt: set[str], check: Callable[[Settings], list[Problem]]) -> list[Problem]:
    """The problems that do not come from what was left out.

    Those are no problems of a value that was left out or of what holds one, and are there for every orchestrator or
    accelerator where that is what was left out.
    """
    variants = [settings]
    for field, choices in (("orchestrator", ("slurm", "eks")), ("accelerator", tuple(ACCELERATORS))):
        if f"{NAMESPACE}:{field}" in spoilt:
            variants = [variant.model_copy(update={field: choice}) for variant in variants for choice in choices]
    first, *others = (check(variant) for variant in variants)
    return [
        problem
        for problem in first
        if all(problem in other for other in others)
        and not any(_within(problem.key, key) or _within(key, problem.key) for key in spoilt)
    ]


def _within(key: str, outer: str) -> bool:
    return key == outer or key.startswith((f"{outer}.", f"{outer}["))


def _leave_out(values: dict[str, Any], path: Path, filled: set[Path], *, missing: bool) -> Path:
    """Take a malformed value out, or put an empty text where one is missing; returns its path.

    Where that cannot be, as with one item of a list, what holds it goes.
    """
    holder: Any = values
    try:
        for part in path[:-1]:
            holder = holder[part]
    except (KeyError, IndexError):
        return path  # gone with what held it
    if not isinstance(holder, dict) or path in filled:
        return _leave_out(values, path[:-1], filled, missing=False)
    if missing:
        holder[path[-1]] = ""
        filled.add(path)
    else:
        holder.pop(path[-1], None)
    return path


def _key(path: Path) -> str:
    below = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:])
    return f"{NAMESPACE}:{path[0]}{below}"


def _problem(error: Any) -> Problem:
    """pydantic's error in the user's terms."""
    key = _key(error["loc"])
    match error["type"]:
        case "extra_forbidden":
            return Problem(key=key, what="unknown key", fix=_nearest(error["loc"]))
        case "missing":
            return Problem(key=key, what="is required")
        case "model_type" | "dict_type":
            return Problem(
                key=key, what=f"{error['input']!r} is not an object", fix="keys with values, as {key: value}"
            )
        case "literal_error":
            return Problem(key=key, what=f"{error['input']!r} is not allowed", fix=f"one of {error['ctx']['expected']}")
    return Problem(key=key, what=f"{error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}")


def _nearest(loc: Path) -> str:
    models: dict[str, type[BaseModel]] = {
        "workers": WorkerGroup,
        "login": Login,
        "fsx": Fsx,
        "network": NetworkConfig,
        "taints": Taint,
        "teams": Team,
        "charts": Charts,
    }
    model: type[BaseModel] = Settings
    for part in loc[:-1]:
        model = models.get(str(part), model)
    names = [field.alias or name for name, field in model.model_fields.items()]
    if str(loc[-1]).startswith("capacityReservation"):
        # SageMaker API Reference, ClusterInstanceGroupSpecification: it has no field for EC2's.
        return "HyperPod takes none of EC2's: reserve with a SageMaker training plan, and give trainingPlanArn"
    near = difflib.get_close_matches(str(loc[-1]), names, n=1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
