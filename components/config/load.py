"""Reads the stack's configuration once and reports all problems together."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from ..accounting.checks import strangers
from ..catalogue.regions import REGIONS
from ..health import own_checks
from ..people.keys import KEY as PEOPLE
from ..people.keys import with_file
from ..schema.problems import NAMESPACE, ConfigError, Problem, kept_secret
from ..slurm import conf_folder, container_packages
from .checks import check
from .model import Settings
from .resolved import Config
from .shapes import settled, unaffected

REGION_KEY = "aws:region"
# The namespaces that the program and its providers read, and Pulumi's own.
_NAMESPACES = (NAMESPACE, "aws", "aws-native", "kubernetes", "pulumi")


def load() -> Config:
    """Read and check the running stack's configuration. Raises ConfigError with every problem found."""
    values = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    secret = {*runtime_config.get_config_secret_keys_env(), *filter(runtime_config.is_config_secret, values)}
    secrets = [kept_secret(key) for key in sorted(secret) if key.startswith(f"{NAMESPACE}:")]
    slurm = _decoded("slurm", values.get(f"{NAMESPACE}:slurm"))
    in_folders = [
        *own_checks.problems(values.get(own_checks.KEY)),
        *container_packages.problems(slurm),
        *conf_folder.problems(slurm),
    ]
    config = parse(values, [*secrets, *in_folders])
    if not config.region.hyperpod:
        pulumi.log.warn(f"{REGION_KEY}: no page of AWS lists {config.region.name} among the regions with HyperPod")
    for note in config.notes:
        pulumi.log.warn(note)
    if unknown := strangers(config.settings.users, config.settings.slurm.accounts):
        pulumi.log.warn(
            f"{NAMESPACE}:slurm.accounts: {', '.join(unknown)}: not in {PEOPLE}; unless a directory of your own "
            "knows them, Slurm refuses their jobs"
        )
    return config


def parse(values: Mapping[str, Any], found: Sequence[Problem] = ()) -> Config:
    """Check raw ``namespace:key`` values, as the engine passes them. Raises ConfigError with every problem.

    ``found`` are problems that are known already; no other problem of their keys is reported.
    """
    region_name = str(values.get(REGION_KEY, ""))
    region = REGIONS.get(region_name)
    prefix = f"{NAMESPACE}:"
    values, in_file = with_file(values)
    found = [*found, *in_file]
    known = {problem.key for problem in found}
    raw = {
        key.removeprefix(prefix): _decoded(key.removeprefix(prefix), value)
        for key, value in values.items()
        if key.startswith(prefix) and key not in known
    }
    settings, shape_problems, spoilt = settled(raw)
    problems = [] if region else [_region_problem(region_name)]
    problems += [*found, *shape_problems, *_misplaced_keys(values)]
    problems += unaffected(settings, spoilt | known, lambda variant: check(variant, region))
    if problems or region is None:
        raise ConfigError(problems)
    return Config(settings, region)


def _misplaced_keys(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Report keys that Pulumi does not refuse, but no program reads: in almost a known namespace, or in another's."""
    own = Settings.keys()
    for key in values:
        namespace, _, name = key.partition(":")
        if namespace in _NAMESPACES:
            continue
        near = difflib.get_close_matches(namespace, _NAMESPACES, n=1)
        if near or name in own:
            meant = f"{NAMESPACE if name in own else near[0]}:{name}"
            yield Problem(key=key, what="no program reads this key", fix=f"did you mean {meant}?")


def _region_problem(name: str) -> Problem:
    known = sorted(region.name for region in REGIONS.values() if region.hyperpod)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? Otherwise " if near else ""
    what = f'"{name}" is not a region with SageMaker HyperPod' if name else "no region is set"
    return Problem(key=REGION_KEY, what=what, fix=f"{hint}one of {', '.join(known)}")


def _decoded(key: str, value: Any) -> Any:
    """Decode the engine's values: everything is text, lists and objects are JSON."""
    field = Settings.keys().get(key)
    if isinstance(value, str) and (value[:1] in ("{", "[") or (field and field.annotation in (bool, int))):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
