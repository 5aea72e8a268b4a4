"""A stack that is up on a real API server, for checks of jobs: its nodes have their devices from the start."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from components.config import parse
from operations.project.loading import Project

from .binaries import find_all
from .charts import Charts
from .control_plane import ControlPlane
from .declared import Declared, declare
from .deploy import Deployer, DeployFailed
from .nodes import join, nodes_of, with_devices
from .run import Run, played


@contextmanager
def ready(project: Project) -> Iterator[Run]:
    """The stack without its file system's directories. Raises DeployFailed."""
    config = parse(project.config)
    plan = declare(project, config)
    with ControlPlane(find_all(Console(quiet=True))) as plane, played(plane) as pods:
        deployer = Deployer(plane.kubectl, Charts(plane.folder))
        deployer.apply(plan.before_nodes)
        if not join(plane.kubectl, [with_devices(config, node) for node in nodes_of(config)]):
            raise DeployFailed("not every node became ready")
        deployer.apply([step for step in plan.after_nodes if "directories" not in step.name])
        yield Run(plane, config, pods, Declared(plane, config, plan, deployer))
