"""The stack's own lines of slurm.conf (``slurm.extraConf``): files next to it, which our hyperpod.conf includes.

HyperPod's agent may rewrite slurm.conf; ``configure`` then restores the line that includes hyperpod.conf, and with it
these files. Slurm uses the last value of a parameter, so these come before the agent's and ours.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Dict, Sequence, Set, Tuple

from ..facts import parameters
from ..facts.model import ConfFile, ExtraConf
from ..host.errors import StepError
from ..host.host import Host
from . import conf as slurm_conf

FILE_NAME = "hyperpod_slurm_conf.json"
# A name that Slurm sends to slurmd with the rest has no folder.
PREFIX = "hyperpod-own-"


def parse(text: str, name: str) -> ExtraConf:
    """Parse the text that the stack's program rendered. Raises StepError."""
    try:
        found: ExtraConf = parameters.part(ExtraConf, json.loads(text), "the file")
        return found
    except (ValueError, RecursionError) as error:
        raise StepError(f"{name} cannot be read: {error}") from None


def shipped(host: Host) -> Tuple[ConfFile, ...]:
    """Return the files that came with the scripts; none if the stack has none."""
    path = host.settings.source / FILE_NAME
    return parse(path.read_text(encoding="utf-8"), str(path)).files if path.is_file() else ()


def in_use(host: Host) -> Tuple[ConfFile, ...]:
    """Return the files that this controller uses."""
    text = host.read(_state(host))
    return parse(text, _state(host)).files if text else ()


def use(host: Host, files: Sequence[ConfFile], cluster_id: str) -> None:
    """Use these files from the next configuration on."""
    if files or host.read(_state(host)) is not None:
        host.write(_state(host), parameters.render(ExtraConf(cluster_id, tuple(files))))


def texts(files: Sequence[ConfFile]) -> Dict[str, str]:
    """Return the files next to slurm.conf, by name."""
    return {f"{PREFIX}{one.name}": one.text if one.text.endswith("\n") else f"{one.text}\n" for one in files}


def written_names(host: Host) -> Tuple[str, ...]:
    """Return the names of those that are next to slurm.conf."""
    return tuple(path.name for path in sorted(host.path(host.settings.slurm_etc).glob(f"{PREFIX}*")))


def includes(files: Sequence[ConfFile]) -> str:
    """Return the lines that include them."""
    return "".join(f"include {PREFIX}{one.name}\n" for one in files)


def override(conf: slurm_conf.SlurmConf, files: Sequence[ConfFile]) -> slurm_conf.SlurmConf:
    """Return slurm.conf with the files' parameters replacing other values."""
    keys: Dict[str, str] = dict(conf.keys)
    for one in files:
        keys.update(slurm_conf.parse(one.text).keys)
    return dataclasses.replace(conf, keys=keys)


def partitions(files: Sequence[ConfFile]) -> Set[str]:
    """Return the partitions that the files define."""
    return {name for one in files for name in slurm_conf.parse(one.text).partitions}


def digest(files: Sequence[ConfFile]) -> str:
    """Fingerprint of the files."""
    return hashlib.sha256(repr([(one.name, one.text) for one in files]).encode()).hexdigest()[:12]


def _state(host: Host) -> str:
    return f"{host.settings.state_folder}/{FILE_NAME}"
