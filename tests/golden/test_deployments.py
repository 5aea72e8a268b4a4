"""What every golden configuration deploys is what is written down, to the last input."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from components.config import Charts, Fsx, Login, NetworkConfig, Security, Settings, Taint, Team, WorkerGroup, parse
from tests.golden import files
from tests.golden.normal import Normal
from tests.golden.stacks import DEPLOYMENTS, GOLDEN, told
from tests.support import ROOT, project

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
    own, base = files.read(DEPLOYMENTS / name), GOLDEN[name].base
    return files.whole(own, written(base)) if base else own


@pytest.mark.parametrize("name", GOLDEN)
def test_every_resource_is_deployed_as_written_down(name: str) -> None:
    difference = files.told(written(name), told(name))
    assert not difference, f"tests/golden/deployments/{name}:\n{difference}"


def test_no_golden_folder_is_left_over() -> None:
    assert sorted(path.name for path in DEPLOYMENTS.iterdir()) == sorted(GOLDEN)


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
