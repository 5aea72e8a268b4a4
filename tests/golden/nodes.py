"""What a first boot leaves on each kind of node, in the form that is written down."""

import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hyperpod_node.__main__ import boot
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import ConfFile, ExtraConf
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import extra_conf
from hyperpod_node.slurm.containers import ENROOT, PYXIS

from tests.golden.normal import structure
from tests.lifecycle import words
from tests.lifecycle.accounting.rig import SLURM, Database, with_accounting
from tests.lifecycle.rig import CLUSTER_ID, LIFECYCLE, PUBLIC_KEY, FakeHost, World
from tests.lifecycle.slurm.test_containers import compiles
from tests.lifecycle.slurm.test_extra_conf import remove
from tests.lifecycle.storage.pods_rig import eks_node

NODES = Path(__file__).parent / "nodes"
# What is written down as what differs from another.
CLUSTERS = {
    "slurm-gpu": "",
    "slurm-trainium": "slurm-gpu",
    "slurm-gpu-teams": "slurm-gpu",
    "eks-gpu": "",
    "eks-trainium": "eks-gpu",
}
ROLES = ("controller", "login", "worker")
_COPY = "a copy"
# Seconds that a node waits for what is not there.
_PATIENCE = 5.0
_TYPES = {"gpu": "ml.p5.48xlarge", "trainium": "ml.trn1.32xlarge"}
# What a cluster of several teams has besides.
_TEAMS: dict[str, Any] = {
    "slurm": {**SLURM, "containers": True, "extraConf": "docs/slurm.conf.d", "typedGres": True, "sharedQueue": True},
    "observability": {"prometheus": "create"},
    "security": {"sessionLogs": True, "sessionRunAs": True, "workerSecrets": True},
    "benchmarks": True,
    "healthPolicy": "replace",
}
_PEOPLE = [{"name": "ada", "uid": 2001, "gid": 3000, "sshKeys": [PUBLIC_KEY], "account": "vision", "sudo": True}]
# Commands that only ask.
_QUESTIONS = re.compile(
    r"(systemctl (is-active|show)|aws |munge|unmunge|scontrol (ping|show)|sinfo|blkid|fi_info|neuron-ls|\S*python\S* )"
)

# Kind of node, path or `commands`, what there is.
Nodes = dict[str, dict[str, Any]]


def booted(cluster: str) -> Nodes:
    """By kind of node, what a boot left that is not on every node alike; what is, and the shared file system."""
    orchestrator, accelerator, *teams = cluster.split("-")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        if orchestrator == "eks":
            world = World(Path(folder), _TYPES[accelerator], settings={"orchestrator": "eks"})
            return {"worker": _boot(eks_node(world, real_time=True, patience=_PATIENCE))}
        key = {"/hyperpod/mine/ssh-public-key": PUBLIC_KEY}
        world = World(Path(folder), _TYPES[accelerator], parameters=key, settings=_TEAMS if teams else {})
        make = _of_teams if teams else World.node
        found = {role: _boot(make(world, role, real_time=True, patience=_PATIENCE)) for role in ROLES}
    common = {name: told for name, told in found["worker"].items() if all(v.get(name) == told for v in found.values())}
    shared = {name: told for name, told in found["worker"].items() if name.startswith("/fsx/")}
    own = {
        role: {name: told for name, told in left.items() if name not in common and not name.startswith("/fsx/")}
        for role, left in found.items()
    }
    return {**own, "every-node": {k: v for k, v in common.items() if k not in shared}, "shared": shared}


def _of_teams(world: World, role: str, **options: Any) -> FakeHost:
    """A node whose image has Enroot and Pyxis; the controller's has MariaDB."""
    world.ship(_PEOPLE, workers=[{"name": "workers", "instanceType": world.worker_type, "count": 2}])
    own = ExtraConf(CLUSTER_ID, (ConfFile("priority.conf", "PriorityWeightAge=1000\n"),))
    (world.source / extra_conf.FILE_NAME).write_text(parameters.render(own))
    host = with_accounting(world, Database(), **options) if role == "controller" else world.node(role, **options)
    for name in (ENROOT, f"/opt/slurm/lib/slurm/{PYXIS}", "/opt/slurm/include/slurm/spank.h"):
        host.path(name).parent.mkdir(parents=True, exist_ok=True)
        host.path(name).write_text("ENROOT_CACHE_PATH /opt/enroot\n")
    host.commands |= {"enroot": _nothing, "unshare": _nothing, "cc": compiles, "rm": remove}
    return host


def _nothing(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    return Result(0)


def _boot(host: FakeHost) -> dict[str, Any]:
    before = _files(host)
    assert boot(host) == 0, host.text("/var/log/hyperpod/summary.json")
    assert not words.STRANGE, words.STRANGE
    steps = json.loads(host.text("/var/log/hyperpod/summary.json"))["steps"]
    left = {name: told for name, told in _files(host).items() if told != before.get(name) or name.startswith("/fsx/")}
    copies = [name for name, told in left.items() if told.get("text") == _COPY]
    places = rf"{host.settings.root}|{host.world.folder}|{LIFECYCLE.parent}"
    commands = {re.sub(places, "", " ".join(call)) for call in host.calls}
    return {
        "active units": sorted(host.active),
        "commands": sorted(command for command in commands if not _QUESTIONS.match(command)),
        "steps": {step["name"]: f"{step['result']}: {step['detail']}" for step in steps},
        "copies of lifecycle files": _by_folder({name: left[name]["mode"] for name in copies}),
        **{name: told for name, told in sorted(left.items()) if name not in copies},
    }


def _by_folder(modes: Mapping[str, str]) -> dict[str, str]:
    """The names of files by their folder and mode."""
    found: dict[str, str] = {}
    for name, mode in sorted(modes.items()):
        folder, _, file = name.rpartition("/")
        found[f"{folder} {mode}"] = f"{found.get(f'{folder} {mode}', '')} {file}".strip()
    return found


def _files(host: FakeHost) -> dict[str, dict[str, Any]]:
    """Every file of a node and of its shared file system: its mode, owner and text, or where it points."""
    originals = {
        path.read_text() for path in LIFECYCLE.rglob("*") if path.suffix in (".py", ".sh", ".csv", ".c", ".pem")
    }
    found: dict[str, dict[str, Any]] = {}
    for name, (mode, text) in host.tree().items():
        path = name.replace("/fsx", "/fsx/", 1) if name.startswith("/fsx") else f"/{name}"
        if not mode:
            found[path] = {"link to": text}
            continue
        if path.endswith("/authorized_keys"):
            # Two steps add a line each, in either order, and the order means nothing.
            text = "".join(sorted(text.splitlines(keepends=True)))
        if path == "/etc/shadow":
            # Days since 1970 at which a password was set.
            text = re.sub(r"(?m)^(ada:\*):\d+", r"\1:TODAY", text)
        told: dict[str, Any] = {"mode": f"{mode:04o}", "owner": host.owner(path), "text": _text(text, originals)}
        found[path] = {key: value for key, value in told.items() if value != "root"}
    return found


def _text(text: str, originals: set[str]) -> Any:
    if text and text in originals:
        return _COPY
    found = structure(text)
    return text.replace(sys.executable, "PYTHON") if found is None else found
