"""Which dashboards there are, and which of them a stack gets."""

from __future__ import annotations

from dataclasses import dataclass

from components.config import Settings

TAG = "hyperpod"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A dashboard: its name, which is also the end of its fixed uid, its title, and what it is about.

    ``orchestrator`` and ``accelerator`` name the stacks that get it; empty: all.
    """

    name: str
    title: str
    about: str
    orchestrator: str = ""
    accelerator: str = ""

    @property
    def uid(self) -> str:
        """The same in every Grafana, so that links last and another import replaces it. At most 40 characters."""
        return f"{TAG}-{self.name}"

    def fits(self, settings: Settings) -> bool:
        """Whether a stack has what it shows."""
        return self.orchestrator in ("", settings.orchestrator) and self.accelerator in ("", settings.accelerator)


SHIPPED = (
    Shipped(
        name="overview",
        title="HyperPod: overview",
        about="What is there, what works, what is allocated, and what is busy.",
    ),
    Shipped(name="gpu", title="HyperPod: GPUs", about="Use, memory, power, temperature and clocks.", accelerator="gpu"),
    Shipped(
        name="gpu-health",
        title="HyperPod: GPU health",
        about="XIDs, ECC errors, remapped rows, NVLink and PCIe errors, throttling.",
        accelerator="gpu",
    ),
    Shipped(name="efa", title="HyperPod: EFA", about="Traffic between nodes, retransmissions and errors."),
    Shipped(
        name="neuron",
        title="HyperPod: Neuron",
        about="NeuronCores, device memory, executions and their errors.",
        accelerator="trainium",
    ),
    Shipped(name="storage", title="HyperPod: storage", about="The shared file system and the nodes' own disks."),
    Shipped(
        name="slurm",
        title="HyperPod: Slurm queue",
        about="Jobs, partitions, nodes by state, and the scheduler.",
        orchestrator="slurm",
    ),
    Shipped(
        name="kubernetes",
        title="HyperPod: Kubernetes queue",
        about="Pods, accelerators requested and free, and Kueue's queues.",
        orchestrator="eks",
    ),
    Shipped(name="training", title="HyperPod: training jobs", about="Steps, tokens, loss, slow ranks, checkpoints."),
    Shipped(name="cost", title="HyperPod: cost", about="What runs, what is allocated and idle, in US dollars."),
)
BY_NAME = {one.name: one for one in SHIPPED}


def of_stack(settings: Settings) -> tuple[Shipped, ...]:
    """The dashboards of a stack, in the order of a menu."""
    return tuple(one for one in SHIPPED if one.fits(settings))
