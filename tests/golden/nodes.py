"""What a first boot leaves on each kind of node, in the form that is written down."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from hyperpod_node.__main__ import boot

from tests.golden.normal import structure
from tests.lifecycle.pods_rig import eks_node
from tests.lifecycle.rig import LIFECYCLE, PUBLIC_KEY, FakeHost, World

NODES = Path(__file__).parent / "nodes"
# What is written down as what differs from another.
CLUSTERS = {"slurm-gpu": "", "slurm-trainium": "slurm-gpu", "eks-gpu": "", "eks-trainium": "eks-gpu"}
ROLES = ("controller", "login", "worker")
_COPY = "a copy"
# Seconds that a node waits for what is not there.
_PATIENCE = 5.0
_TYPES = {"gpu": "ml.p5.48xlarge", "trainium": "ml.trn1.32xlarge"}
# Commands that only ask.
_QUESTIONS = re.compile(
    r"(systemctl (is-active|show)|aws |munge|unmunge|scontrol (ping|show)|sinfo|blkid|fi_info|neuron-ls|\S*python\S* )"
)

# Kind of node, path or `commands`, what there is.
Nodes = dict[str, dict[str, Any]]


def booted(cluster: str) -> Nodes:
    """By kind of node, what a boot left that is not on every node alike; what is, and the shared file system."""
    orchestrator, accelerator = cluster.split("-")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        if orchestrator == "eks":
            world = World(Path(folder), _TYPES[accelerator], settings={"orchestrator": "eks"})
            return {"worker": _boot(eks_node(world, real_time=True, patience=_PATIENCE))}
        key = {"/hyperpod/mine/ssh-public-key": PUBLIC_KEY}
        world = World(Path(folder), _TYPES[accelerator], parameters=key)
        found = {role: _boot(world.node(role, real_time=True, patience=_PATIENCE)) for role in ROLES}
    common = {name: told for name, told in found["worker"].items() if all(v.get(name) == told for v in found.values())}
    shared = {name: told for name, told in found["worker"].items() if name.startswith("/fsx/")}
    own = {
        role: {name: told for name, told in left.items() if name not in common and not name.startswith("/fsx/")}
        for role, left in found.items()
    }
    return {**own, "every-node": {k: v for k, v in common.items() if k not in shared}, "shared": shared}


def _boot(host: FakeHost) -> dict[str, Any]:
    before = _files(host)
    assert boot(host) == 0, host.text("/var/log/hyperpod/summary.json")
    steps = json.loads(host.text("/var/log/hyperpod/summary.json"))["steps"]
    left = {name: told for name, told in _files(host).items() if told != before.get(name) or name.startswith("/fsx/")}
    copies = [name for name, told in left.items() if told.get("text") == _COPY]
    commands = {re.sub(rf"{host.settings.root}|{LIFECYCLE.parent}", "", " ".join(call)) for call in host.calls}
    return {
        "active units": sorted(host.active),
        "commands": sorted(command for command in commands if not _QUESTIONS.match(command)),
        "steps": {step["name"]: f"{step['result']}: {step['detail']}" for step in steps},
        "copies of lifecycle files": sorted(f"{name} {left[name]['mode']}" for name in copies),
        **{name: told for name, told in sorted(left.items()) if name not in copies},
    }


def _files(host: FakeHost) -> dict[str, dict[str, Any]]:
    """Every file of a node and of its shared file system: its mode, owner and text, or where it points."""
    originals = {path.read_text() for path in LIFECYCLE.rglob("*") if path.suffix in (".py", ".sh", ".csv")}
    found: dict[str, dict[str, Any]] = {}
    for name, (mode, text) in host.tree().items():
        path = name.replace("/fsx", "/fsx/", 1) if name.startswith("/fsx") else f"/{name}"
        if not mode:
            found[path] = {"link to": text}
            continue
        if path.endswith("/authorized_keys"):
            # Two steps add a line each, in either order, and the order means nothing.
            text = "".join(sorted(text.splitlines(keepends=True)))
        told: dict[str, Any] = {"mode": f"{mode:04o}", "owner": host.owner(path), "text": _text(text, originals)}
        found[path] = {key: value for key, value in told.items() if value != "root"}
    return found


def _text(text: str, originals: set[str]) -> Any:
    if text and text in originals:
        return _COPY
    found = structure(text)
    return text.replace(sys.executable, "PYTHON") if found is None else found
