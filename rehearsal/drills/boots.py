"""Drills of a boot: a worker's replacement boots while something is broken, and another one when it is mended."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..account.faults import SCRIPTS_FAILED
from ..checks import require
from ..nodes.agent import Lifecycle
from ..nodes.cluster import Cluster, Metadata
from ..nodes.faults import HASTY, VIRTUAL, file_system, fill
from ..nodes.hosts import Host
from .model import Drill, Finding, drills

_BOOT_SECONDS = 90.0


@dataclass(frozen=True)
class _Broken:
    """What is broken while a node boots. ``cluster``: called with True to break it and with False to mend it.

    ``host``: what is wrong with the one host. ``survives``: whether the boot has to succeed nevertheless.
    """

    cluster: Callable[[Cluster, bool], None] = lambda cluster, broken: None
    host: Callable[[Host], None] = lambda host: None
    environment: Mapping[str, str] = field(default_factory=lambda: HASTY)
    files: Callable[[dict[str, bytes]], Mapping[str, bytes]] = lambda files: files
    survives: bool = False


def _boot(cluster: Cluster, broken: _Broken) -> Lifecycle:
    gone = cluster.workers[-1]
    fresh = cluster.fresh_host(gone)
    cluster.take_place(gone, fresh)
    broken.host(fresh)
    run = cluster.script(fresh, broken.environment, broken.files(cluster.files))
    require(run.wait(_BOOT_SECONDS) is not None, f"{fresh.name}'s script does not end")
    return run


def _drill(cluster: Cluster, broken: _Broken) -> Finding:
    began = time.monotonic()
    broken.cluster(cluster, True)
    try:
        run = _boot(cluster, broken)
    finally:
        broken.cluster(cluster, False)
    if broken.survives:
        require(run.code == 0, f"{run.host.name} did not wait: {run.last_line}")
        said = next((line for line in run.lines if line.startswith("step fsx ")), "")
        return Finding(said, seconds=time.monotonic() - began)
    require(run.code != 0, f"{run.host.name} did not notice")
    said = run.last_line
    again = _boot(cluster, _Broken(environment={}))
    require(again.code == 0, f"{again.host.name}, when all is well again: {again.last_line}")
    return Finding(f"{SCRIPTS_FAILED} {said}", seconds=time.monotonic() - began)


def _skew(cluster: Cluster, broken: bool) -> None:
    cluster.options.metadata = Metadata(skew=600.0, only=cluster.workers[-1].name) if broken else Metadata()


def _late(cluster: Cluster, broken: bool) -> None:
    """The endpoint's clock runs since the cluster began; the file system comes a minute from now."""
    file_system(cluster).ready_after = cluster.endpoint.now(60.0) if broken else 0.0


def _never(cluster: Cluster, broken: bool) -> None:
    file_system(cluster).ready_after = None if broken else 0.0


def _throttle(cluster: Cluster, broken: bool) -> None:
    cluster.endpoint.throttle = 3 if broken else 0
    if not broken:
        require(max(cluster.endpoint.throttled.values(), default=0) == 3, "the node did not ask three times")


def _failing(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, "hyperpod_node/storage/fsx.py": b"raise OSError('the disk is broken')\n"}


def _of(broken: _Broken) -> Callable[[Cluster], Finding]:
    return lambda cluster: _drill(cluster, broken)


_WAITING = {**VIRTUAL, "HYPERPOD_TIMEOUT_FSX": "600"}
BOOTS: tuple[Drill[Cluster], ...] = drills(
    "nodes",
    {
        "script-on-one": _of(_Broken(files=_failing)),
        "bucket-unreachable": _of(_Broken(files=lambda files: {})),
        "clock-skew": _of(_Broken(_skew)),
        "boot-disk-full": _of(_Broken(host=lambda host: fill(host, "/var/spool/slurmd"))),
        "fsx-late": _of(_Broken(_late, environment=_WAITING, survives=True)),
        "fsx-never": _of(_Broken(_never, environment=_WAITING)),
        "boot-throttling": _of(_Broken(_throttle, environment={}, survives=True)),
    },
)
