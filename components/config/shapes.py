"""Reports values of the wrong type, size or form in the user's terms, and returns the settings without them."""

import difflib
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, TypeAlias

from pydantic import ValidationError

from ..catalogue.accelerators import ACCELERATORS
from ..schema.fields import FORMS, LENIENT, Model, limits, models
from ..schema.problems import NAMESPACE, Problem, mistyped
from .model import Settings

Path: TypeAlias = tuple[str | int, ...]
# These decide which rules apply, so if one of them is unknown, a rule may not apply at all.
_KINDS: Mapping[str, tuple[str, ...]] = {"orchestrator": ("slurm", "eks"), "accelerator": tuple(ACCELERATORS)}
# Keys that have another name now.
_GONE = {
    "hyperpod:network.closed": ("unknown key", "network.egress vpc-only has taken its place"),
    # SageMaker Developer Guide, "Continuous provisioning for enhanced cluster operations with Slurm" and "Migrating to
    # API-driven Slurm configuration".
    "hyperpod:slurm.controllers": (
        "HyperPod has no second controller for clusters that its API configures, and refuses one with continuous "
        "provisioning",
        "leave it out; slurm.sharedQueue keeps the queue for the controller that comes next",
    ),
}
# pydantic's errors, by the expected type of Pulumi.yaml.
_TYPES = {
    "string_type": "string",
    "int_type": "integer",
    "bool_type": "boolean",
    "tuple_type": "array",
    "model_type": "object",
    "dict_type": "object",
}


def settled(raw: Mapping[str, Any]) -> tuple[Settings, list[Problem], set[str]]:
    """Return the settings with defaults in place of wrong values, the problems, and the keys that got a default."""
    try:
        return Settings.model_validate(raw), [], set()
    except ValidationError as refused:
        errors = refused.errors()
    # A list with an item of the wrong type counts as not given.
    wrong = [error["loc"] for error in errors if error["type"] != "extra_forbidden"]
    spoilt = {_key(path[:-1] if isinstance(path[-1], int) else path) for path in wrong}
    return Settings.model_validate(raw, context=LENIENT), [_problem(error) for error in errors], spoilt


def unaffected(settings: Settings, spoilt: set[str], check: Callable[[Settings], list[Problem]]) -> list[Problem]:
    """Return the problems that no replaced value has caused.

    They concern neither such a value nor a key that contains one. If the orchestrator or the accelerator is wrong, only
    problems common to all its values are kept.
    """
    choices = [
        kinds if f"{NAMESPACE}:{field}" in spoilt else (getattr(settings, field),) for field, kinds in _KINDS.items()
    ]
    first, *others = (
        check(settings.model_copy(update=dict(zip(_KINDS, chosen, strict=True)))) for chosen in product(*choices)
    )
    return [
        problem
        for problem in first
        if all(problem in other for other in others)
        and not any(_within(problem.key, key) or _within(key, problem.key) for key in spoilt)
    ]


def _within(key: str, outer: str) -> bool:
    return key == outer or key.startswith((f"{outer}.", f"{outer}["))


def _key(path: Path) -> str:
    below = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:])
    return f"{NAMESPACE}:{path[0]}{below}"


def _problem(error: Any) -> Problem:
    """Translate pydantic's error into the user's terms."""
    key, kind, value, context = _key(error["loc"]), error["type"], error["input"], error.get("ctx", {})
    if kind in _TYPES:
        return mistyped(key, value, _TYPES[kind])
    match kind:
        case "extra_forbidden":
            what, fix = _GONE.get(key) or ("unknown key", _nearest(error["loc"]))
            return Problem(key=key, what=what, fix=fix)
        case "missing":
            return Problem(key=key, what="is required")
        case "literal_error":
            return Problem(key=key, what=f"{value!r} is not allowed", fix=f"one of {context['expected']}")
        case "greater_than_equal" | "less_than_equal":
            return Problem(
                key=key,
                what=f"{value} is out of range",
                fix=limits(_model(error["loc"]).keys()[str(error["loc"][-1])].metadata),
            )
        case "string_too_long":
            fix = f"at most {context['max_length']}"
            return Problem(key=key, what=f'"{value}" has {len(value)} characters', fix=fix)
        case "string_pattern_mismatch":
            form = FORMS[context["pattern"]]
            return Problem(key=key, what=f'"{value}" {form.what}', fix=form.fix)
    return Problem(key=key, what=f"{value!r}: {error['msg'][0].lower()}{error['msg'][1:]}")


def _nearest(path: Path) -> str:
    last, names = str(path[-1]), list(_model(path).keys())
    if last.startswith("capacityReservation"):
        # SageMaker API Reference, ClusterInstanceGroupSpecification: it has no field for EC2's.
        return "HyperPod cannot use EC2 reservations: reserve a SageMaker training plan and set trainingPlanArn"
    whole, _, part = last.partition(".")
    if part and whole in names:
        # Without --path, `pulumi config set` takes the dot for a part of the name.
        return f"pulumi config set --path '{NAMESPACE}:{last}' VALUE; as JSON, {whole}={{\"{part}\": VALUE}}"
    near = difflib.get_close_matches(last, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"


def _model(path: Path) -> type[Model]:
    """Return the model whose key the path ends in."""
    model: type[Model] = Settings
    for part in path[:-1]:
        if isinstance(part, str):
            model = next(models(model.keys()[part].annotation))
    return model
