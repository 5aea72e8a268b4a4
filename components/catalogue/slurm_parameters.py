"""The parameters of slurm.conf(5), Slurm 24.11, the release of HyperPod's images of 2026.

``slurm_parameters.csv`` has every name of the section PARAMETERS. Names do not say which values Slurm accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .rows import read

RELEASE = "24.11"


@dataclass(frozen=True)
class Parameter:
    """One parameter. ``instead`` is empty where a stack may set it itself; otherwise it says who does, or how."""

    name: str
    instead: str = ""


# By the name in small letters: Slurm ignores the case.
PARAMETERS: Mapping[str, Parameter] = {
    row.name.lower(): row for row in read(Path(__file__).with_name("slurm_parameters.csv"), Parameter)
}
