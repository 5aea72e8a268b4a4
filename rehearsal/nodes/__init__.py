"""The node rehearsal: a Slurm stack's nodes as isolated hosts of this machine, with HyperPod's and AWS's parts played.

``sandbox`` and ``network`` make the place, ``image``, ``machine`` and ``hosts`` the hosts in it; ``imds``,
``aws_endpoint`` and ``agent`` are what AWS and HyperPod do to them; ``cluster`` puts them together; ``checks``,
``recovery`` and ``faults`` use and break them. ``stubs`` is what runs on the hosts in place of systemd and hardware.
"""

from .cli import main

__all__ = ["main"]
