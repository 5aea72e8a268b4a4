"""What every golden configuration deploys is what is written down, to the last input."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from components.config import Charts, Fsx, Login, NetworkConfig, Security, Settings, Taint, Team, WorkerGroup, parse
from tests.golden import files
from tests.golden.normal import Normal, brief
from tests.golden.stacks import DEPLOYMENTS, GOLDEN, WRITTEN, told
from tests.support import ROOT, project

EFFECTS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "effects.yaml").read_text())
NESTED: dict[str, type[BaseModel]] = {
    "workers": WorkerGroup,
    "workers.taints": Taint,
    "login": Login,
    "charts": Charts,
    "teams": Team,
    "fsx": Fsx,
    "network": NetworkConfig,
    "security": Security,
}


def written(name: str) -> Normal:
    """The golden files of a configuration, with what it shares with its base."""
    return files.whole(files.read(DEPLOYMENTS / name), GOLDEN[name].compared(written))


def holds(wanted: Any, found: Any) -> bool:
    """Whether it is as wanted; of a mapping the keys that are named, each a path with numbers for items of a list."""
    return (
        all(holds(one, at(found, path)) for path, one in wanted.items())
        if isinstance(wanted, dict) and wanted
        else wanted == found
    )


def at(value: Any, path: str) -> Any:
    """What is under a path, or None. A key may have dots itself."""
    if isinstance(value, dict) and path in value:
        return value[path]
    first, _, rest = path.partition(".")
    below = value[int(first)] if isinstance(value, list) else (value or {}).get(first)
    return at(below, rest) if rest else below


@pytest.mark.parametrize("name", WRITTEN)
def test_every_resource_is_deployed_as_written_down(name: str) -> None:
    difference = files.told(written(name), brief(told(name)))
    assert not difference, f"tests/golden/deployments/{name}:\n{difference}"


def test_no_golden_folder_is_left_over() -> None:
    assert sorted(path.name for path in DEPLOYMENTS.iterdir()) == sorted(WRITTEN)


@pytest.mark.parametrize("name", EFFECTS)
def test_a_configuration_that_is_not_written_down_whole_has_the_effects_of_its_keys(name: str) -> None:
    found = {key: entry for entries in told(name).values() for key, entry in entries.items()}
    wrong = [
        f"{key} {path}: {at(found.get(key), path)}, not {wanted}"
        for key, said in EFFECTS[name].items()
        for path, wanted in (said.items() if isinstance(said, dict) else [("", said)])
        if not holds(wanted, at(found.get(key), path) if path else found.get(key))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_configuration_is_written_down_or_has_its_effects_here() -> None:
    assert sorted([*WRITTEN, *EFFECTS]) == sorted(GOLDEN)


def test_a_stack_in_govcloud_names_its_own_partition_and_region_alone() -> None:
    text = json.dumps({name: entries for name, entries in told("slurm-govcloud").items() if name != "stack"})
    assert text.count("arn:aws-us-gov:") > 50
    assert set(re.findall(r"arn:aws[\w-]*:|us-(?:gov-)?(?:east|west)-\d", text)) == {"arn:aws-us-gov:", "us-gov-west-1"}


def paths(prefix: str, value: Any) -> set[str]:
    """The paths of keys in a setting, whatever the numbers in lists."""
    if isinstance(value, list):
        return {path for item in value for path in paths(prefix, item)}
    model = NESTED.get(prefix)
    if model is None or not isinstance(value, dict):
        return {prefix}
    return {prefix} | {path for key, item in value.items() for path in paths(f"{prefix}.{key}", item)}


def test_the_golden_configurations_set_every_key_away_from_its_default() -> None:
    names = {name: field.alias or name for name, field in Settings.model_fields.items()}
    assert set(names.values()) == set(yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"])
    known = set(names.values()) | {
        f"{prefix}.{field.alias or name}"
        for prefix, model in NESTED.items()
        for name, field in model.model_fields.items()
    }
    away = set()
    for chosen in GOLDEN.values():
        settings = parse(project(chosen.stack, **chosen.settings).config).settings
        given = settings.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        away |= {path for key, value in given.items() for path in paths(key, value)}
    assert sorted(known - away) == []
