"""The device files that the driver creates for accelerators."""

from __future__ import annotations

from .host import Host

# Slurm sets CUDA_VISIBLE_DEVICES only if it knows file names, not just a count.
DEVICES = {"gpu": "/dev/nvidia", "neuron": "/dev/neuron"}
# The devices of each kind of accelerator, as the catalogue calls it.
KINDS = {"gpu": "gpu", "trainium": "neuron"}


def found(host: Host, kind: str) -> int:
    """Count the accelerators of a kind ("gpu" or "neuron") with a device file; 0 for any other kind."""
    prefix = DEVICES.get(kind, "")
    if not prefix:
        return 0
    folder, _, stem = prefix.rpartition("/")
    return len([p for p in host.path(folder).glob(stem + "[0-9]*") if p.name[len(stem) :].isdigit()])
