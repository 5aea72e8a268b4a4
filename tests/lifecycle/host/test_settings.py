"""Where things are on a node and how long each may take, as the docs and the steps' own reasons have it."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hyperpod_node.boot import steps
from hyperpod_node.facts import parameters
from hyperpod_node.health import checks, gpu, kubernetes, model, own, policy, system, xid
from hyperpod_node.health import run as health_run
from hyperpod_node.host import units
from hyperpod_node.host.settings import Settings
from hyperpod_node.people import apply
from hyperpod_node.slurm import conf_watch, requeue

from tests.lifecycle.rig import LIFECYCLE, World

TIMEOUTS = {
    "imds": 5, "resource-config": 30, "fsx": 1800, "mount": 120, "image": 900, "database": 1800, "database-login": 180,
    "controller": 900, "agent": 300, "agent-names": 60, "slurm": 300, "register": 300, "munge": 20,
    "image-disks": 310, "data-volume": 60, "aws": 60, "key": 300,
}  # fmt: skip
REAL = Settings(
    root=Path("/"),
    source=LIFECYCLE,
    resource_config="/opt/ml/config/resource_config.json",
    imds_url="http://169.254.169.254",
    log_folder="/var/log/hyperpod",
    lock="/run/hyperpod-on-create.lock",
    state_folder="/etc/hyperpod",
    install_folder="/opt/hyperpod",
    slurm_etc="/opt/slurm/etc",
    extra_path="/opt/slurm/bin:/opt/slurm/sbin:/opt/aws/neuron/bin:/opt/amazon/efa/bin:/usr/sbin:/sbin",
    timeouts=TIMEOUTS,
)


def test_a_real_node_has_these_places_and_the_environment_takes_their_place() -> None:
    assert Settings.from_environment({}) == REAL == Settings()
    given = {"RESOURCE_CONFIG": "/r.json", "IMDS_URL": "http://x", "LOG": "/l/on.log", "LOCK": "/k"}
    waits = {f"TIMEOUT_{name.upper().replace('-', '_')}": f"{number}.5" for number, name in enumerate(TIMEOUTS, 1)}
    names = {f"HYPERPOD_{name}": value for name, value in {**given, **waits, "TIMEOUT_OTHER": "1"}.items()}
    assert Settings.from_environment(names) == dataclasses.replace(
        REAL,
        resource_config="/r.json",
        imds_url="http://x",
        log_folder="/l",
        lock="/k",
        timeouts={name: number + 0.5 for number, name in enumerate(TIMEOUTS, 1)},
    )


# Seconds and bytes that no wait or command of a test shows.
LIMITS: list[tuple[Any, dict[str, float]]] = [
    # Slurm ends its HealthCheckProgram after 60 s (slurm.conf(5)); users' own checks have their part of it.
    (checks, {"LIMIT": 45}),
    (own, {"LIMIT": 10, "LONGEST_REASON": 120}),
    (gpu, {"DCGM_EVERY": 3600, "DCGM_SECONDS": 40}),
    (model, {"NVIDIA_SMI_SECONDS": 20}),
    (system, {"LUSTRE_SECONDS": 5, "IMDS_SECONDS": 5, "LEAST_FREE": 0.01}),
    (xid, {"MOST_KEPT": 64}),
    (policy, {"LONGEST_REASON": 300, "SHARE": 0.05, "SECONDS": 10}),
    (kubernetes, {"LONGEST_REASON": 300, "SHARE": 0.05}),
    (health_run, {"LONGEST_LOG": 1 << 20}),
    (units, {"STARTS": 5, "LOG_LINES": 40, "LEAST_FREE": 1 << 20}),
    (apply, {"END_SECONDS": 5}),
    (requeue, {"INTERVAL": 0.5, "SOONER": 0.1, "ON_ITS_WAY": 30, "RESOLVE_AGAIN": 60, "LOST_PROBES": 4}),
    (conf_watch, {"SETTLES": 30}),
]


@pytest.mark.parametrize(("module", "limits"), LIMITS, ids=lambda one: getattr(one, "__name__", ""))
def test_limits_are_what_slurm_nvidia_and_aws_leave_room_for(module: Any, limits: dict[str, float]) -> None:
    assert {name: getattr(module, name) for name in limits} == limits


# Step: seconds, whether a node is lost without it, and what it needs.
ALWAYS = {
    "parameters": (10, True, ()),
    "identity": (60, True, ("parameters",)),
    "clock": (40, True, ("identity",)),
    "scratch": (600, False, ("identity",)),
    "kernel": (30, False, ("identity",)),
    "health": (60, False, ("identity",)),
}
ON_SLURM = {
    **ALWAYS,
    "time-sync": (60, False, ("identity",)),
    "fsx": (2400, True, ("identity", "lnet")),
    "environment": (120, True, ("identity",)),
    "commands": (60, True, ("identity",)),
    "munge": (2400, True, ("fsx", "clock")),
    "ssh": (120, True, ("fsx", "home")),
    "docker-disk": (900, False, ("identity",)),
    "metrics": (60, False, ("commands", "docker-disk")),
    "users-key": (90, False, ("identity", "home")),
    "metadata": (360, True, ("identity",)),
    "credentials": (360, False, ("commands", "environment")),
    "slurm": (2400, True, ("munge", "environment", "commands", "metadata", "people", "accounting", "containers")),
    "people": (2400, True, ("fsx", "home")),
    "database": (900, True, ("identity",)),
    "accounting": (2400, True, ("database", "munge", "commands", "environment")),
    "slurm-accounts": (300, False, ("slurm",)),
    "containers": (600, False, ("identity",)),
    "home": (2400, True, ("fsx",)),
    "ssh-jobs": (60, False, ("ssh", "slurm")),
    "lnet": (900, False, ("identity",)),
}
ON_EKS = {
    **ALWAYS,
    "pod-disk": (900, False, ("identity",)),
    "pod-metadata": (360, True, ("identity",)),
    "lustre-client": (400, False, ("identity",)),
    "lnet": (900, False, ("lustre-client",)),
}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"orchestrator": "slurm", "accounting": SimpleNamespace(database="local")}, ON_SLURM),
        (
            {"orchestrator": "slurm", "accounting": SimpleNamespace(database="rds")},
            {**ON_SLURM, "database": (2400, True, ("commands",))},
        ),
        ({"orchestrator": "eks"}, ON_EKS),
    ],
    ids=["slurm", "rds", "eks"],
)
def test_every_step_has_its_limit_and_what_it_needs_and_says_whether_a_node_can_do_without(
    world: World, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    facts = SimpleNamespace(
        ssh_only_with_job=True, containers=True, home_fsx_id="fs-1", fsx_efa=True, setup="scripts", **given
    )
    monkeypatch.setattr(parameters, "parse", lambda *_: facts)
    monkeypatch.setattr(apply, "shipped", lambda _: True)
    found = steps.for_orchestrator(world.node().node(identified=False))
    assert {one.name: (one.limit, one.required, one.needs) for one in found} == wanted
    assert len(found) == len(wanted)
