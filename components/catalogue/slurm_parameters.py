"""The parameters of slurm.conf(5), Slurm 25.11, the release of HyperPod's images since May 2026.

``slurm_parameters.csv`` has every name of the section PARAMETERS (SchedMD/slurm, doc/man/man5/slurm.conf.5, tag
slurm-25-11-7-1), and those of the previous release that the manual dropped: 25.11 still reads JobContainerType, the
older name of NamespaceType, and the older names of SlurmctldHost; it calls the others defunct
(src/common/read_config.c). Names do not say which values Slurm accepts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .rows import read

RELEASE = "25.11"


@dataclass(frozen=True)
class Parameter:
    """One parameter. ``instead`` is empty if a stack may set it; otherwise it names the owner, or the way to set it."""

    name: str
    instead: str = ""


# By the name in small letters: Slurm ignores the case.
PARAMETERS: Mapping[str, Parameter] = {
    row.name.lower(): row for row in read(Path(__file__).with_name("slurm_parameters.csv"), Parameter)
}
