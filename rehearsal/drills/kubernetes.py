"""Drills of jobs on a real Kubernetes API server, with the operators and simulated nodes."""

from components.config import Config
from operations.project.loading import Project

from ..kubernetes.binaries import missing
from ..kubernetes.container import available
from ..kubernetes.control_plane import ControlPlaneError
from ..kubernetes.deploy import DeployFailed
from ..kubernetes.elastic import JOB, loses_and_regains_nodes, with_sixteen_nodes
from .model import Drill, Finding, drills


def lacking(config: Config) -> str:
    """Why none of them can be held here, or empty."""
    if config.settings.orchestrator != "eks":
        return "a Slurm stack has no Kubernetes API"
    if not available():
        return "this machine lets you make no namespaces (`unshare --mount --net`), which the operators need"
    return f"not built yet: {', '.join(programs)}; make kubernetes-tools" if (programs := missing()) else ""


def _elastic(project: Project) -> Finding:
    from ..kubernetes.ready import ready

    try:
        with ready(with_sixteen_nodes(project)) as run:
            seen = loses_and_regains_nodes(run)
    except (ControlPlaneError, DeployFailed) as failed:
        return Finding(str(failed))
    return Finding(seen.while_lost, seconds=seen.seconds)


def _unfit(config: Config) -> str:
    return "" if config.settings.accelerator == "gpu" else f"{JOB} is for GPUs"


DRILLS: tuple[Drill[Project], ...] = drills("kubernetes", {"elastic-job": _elastic}, {"elastic-job": _unfit})
