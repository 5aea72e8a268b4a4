"""What changes to a deployed stack come to: one story for each orchestrator, update after update."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.config import parse
from operations.engine.state import State
from rehearsal.account import Account
from rehearsal.changes import Deployed, Step, apply_step
from rehearsal.engines.deployment import destroy, up
from rehearsal.existing import prepare
from tests.golden.stacks import ROLE, on_the_day
from tests.support import ROOT, few_files, project

CHANGES = Path(__file__).parent / "changes"

Settings = Mapping[str, Any]
# What an update is called in the golden file, and what it came to.
Told = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Story:
    """What a ready stack is deployed with, and by name the keys of every update in turn; no keys: a script is edited.

    An update is on top of those before, but for those that were refused.
    """

    settings: Settings
    updates: Mapping[str, Settings]


P5 = {"name": "workers", "instanceType": "ml.p5.48xlarge"}
P5E = P5 | {"instanceType": "ml.p5e.48xlarge"}
MORE = {"name": "more", "instanceType": "ml.g5.8xlarge", "count": 1}
TOLD = {"alerts": {"email": "ops@example.com"}}
SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge", "count": 3, "threadsPerCore": 2}
FOUR = [P5 | {"count": 4}, SYSTEM]
EITHER = P5 | {"name": "either", "count": 1, "fallbackTypes": ["ml.p5e.48xlarge"]}
SPARE = P5 | {"name": "spare", "count": 4, "scaling": "demand"}
RED, BLUE = {"name": "red", "roleArns": [f"{ROLE}/red"]}, {"name": "blue", "roleArns": [f"{ROLE}/blue"]}

STORIES = {
    "slurm-gpu": Story(
        {},
        {
            "count up": {"workers": [P5 | {"count": 4}]},
            "group added": {"workers": [MORE, P5 | {"count": 4}]},
            "group removed": {"workers": [P5 | {"count": 4}]},
            "instance type": {"workers": [P5E | {"count": 4}]},
            "size": {"size": "medium"},
            "FSx shrinks": {"fsx": {"storageGiB": 1200}},
            "backups": {"fsx": {"backupDays": 7}},
            "observability on": {
                "observability": {"prometheus": "create", "grafana": "create", "mlflow": True},
                **TOLD,
            },
            "observability off": {"observability": {}, "alerts": {}},
            "login node": {"login": {"instanceType": "ml.m5.2xlarge"}},
            "lifecycle file edited": {},
            "zone": {"availabilityZoneId": "usw2-az3"},
            "cluster renamed": {"clusterName": "another"},
            "controller's instance type": {"controllerInstanceType": "ml.m5.4xlarge"},
            "network's addresses": {"network": {"cidr": "10.8.0.0/16"}},
            "protect": {"protect": True},
            "protect no more": {"protect": False},
            # Last: what such a refusal leaves in Pulumi's state wants a refresh.
            "FSx grows twice within 6 hours": {"fsx": {"storageGiB": 7200}},
        },
    ),
    "eks-gpu": Story(
        {"kubernetesVersion": "1.33", "teams": [RED]},
        {
            "team added": {"teams": [RED, BLUE]},
            "first team removed": {"teams": [BLUE]},
            "count up": {"workers": [P5 | {"count": 4}, SYSTEM]},
            "group added": {"workers": [MORE, P5 | {"count": 4}, SYSTEM]},
            "group removed": {"workers": [P5 | {"count": 4}, SYSTEM]},
            "instance type": {"workers": [P5E | {"count": 4}, SYSTEM]},
            "a group of two types": {"workers": [*FOUR, EITHER]},
            "a third type": {"workers": [*FOUR, EITHER | {"fallbackTypes": ["ml.p5en.48xlarge", "ml.p5e.48xlarge"]}]},
            "one type alone": {"workers": [*FOUR, P5 | {"name": "either", "count": 1}]},
            "group of several types removed": {"workers": FOUR},
            "a group follows demand": {"workers": [*FOUR, SPARE], "autoscaling": {"enabled": True}},
            "at most more": {"workers": [*FOUR, SPARE | {"count": 8}], "autoscaling": {"enabled": True}},
            "fixed again": {"workers": [*FOUR, SPARE | {"scaling": "fixed"}], "autoscaling": {"enabled": False}},
            "Karpenter left out": {"workers": FOUR, "autoscaling": {}},
            "Karpenter off": {"workers": FOUR, "autoscaling": {"enabled": False}},
            "Kubernetes version +1": {"kubernetesVersion": "1.34"},
            "Kubernetes version +2": {"kubernetesVersion": "1.36"},
            "Kubernetes version -1": {"kubernetesVersion": "1.33"},
            "FSx grows": {"fsx": {"storageGiB": 4800}},
            "FSx shrinks": {"fsx": {"storageGiB": 2400}},
            "zone": {"availabilityZoneId": "usw2-az3"},
            "cluster renamed": {"clusterName": "another"},
            "metrics on": {"observability": {"prometheus": "create", "mlflow": True}},
            "collector in the add-on's place": {"observability": {"prometheus": "create", "scraper": "everything"}},
            "metrics off": {"observability": {}},
            "protect": {"protect": True},
            "protect no more": {"protect": False},
        },
    ),
}


def tell(stack: str) -> Told:
    """Every update of a stack's story as the rehearsal's JSON has it; in the end the stack is gone without a trace."""
    with TemporaryDirectory() as folder, Account("us-west-2") as account, on_the_day(), few_files():
        return _tell(stack, _copy(Path(folder)), account)


def _tell(stack: str, folder: Path, account: Account) -> Told:
    story, told = STORIES[stack], {}
    known = dict(story.settings)
    first = _step(stack, known, {}, folder)
    prepare(account, first.config, *(_step(stack, known, update, folder).config for update in story.updates.values()))
    deployment = up(first.project, account)
    assert not deployment.failure, deployment.failure
    deployed = Deployed(first.config, deployment.state, deployment.outputs)
    began = max(resource.finish for resource in deployed.state.values())
    for name, update in story.updates.items():
        if not update:
            with (folder / "lifecycle" / "on_create.sh").open("a") as script:
                script.write("# edited\n")
        before = _protected(deployed.state)
        change, deployed = apply_step(_step(stack, known, update, folder), deployed, account, began=began)
        began += change.seconds
        protected = _protected(deployed.state)
        # Without what the page draws, each resource's times and edges, and without what the story sets.
        found = {name: value for name, value in change.as_json().items() if name not in ("resources", "set")}
        found |= {"protected": protected - before, "protected no more": before - protected}
        told[name] = {key: _plain(value) for key, value in found.items() if value}
        if change.refused is None:
            known |= update
    failures = destroy(deployed.state, account)
    assert not failures, failures
    assert account.leftovers() == []
    return told


def _step(stack: str, known: Settings, update: Settings, folder: Path) -> Step:
    loaded = replace(project(stack, **{**known, **update}), folder=folder, main=folder / "__main__.py")
    return Step(update, loaded, parse(loaded.config))


def _copy(folder: Path) -> Path:
    """The project as links, but for the lifecycle scripts, of which one is edited."""
    for entry in ROOT.iterdir():
        if entry.name != "lifecycle" and not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "lifecycle", folder / "lifecycle", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _protected(state: State) -> set[str]:
    return {resource.name for resource in state.values() if resource.protect}


def _plain(value: Any) -> Any:
    """As YAML has it."""
    return sorted(value) if isinstance(value, set) else value
