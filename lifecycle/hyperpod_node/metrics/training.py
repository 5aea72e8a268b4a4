"""Training metrics from jobs: a file of each rank, in a folder of the job's that the prolog made.

Everything in the folder is its user's own, and root reads it: nothing is followed, waited for or believed that is not a
small file of known numbers. A user can say wrong things of his own ranks, and nothing of anything else.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from ..host.host import Host
from .exposition import Family, Number, Sample

FOLDER = "/var/spool/hyperpod/training"
# Field of the file: metric, and its meaning.
FIELDS: Mapping[str, Tuple[str, str]] = {
    "step": ("hyperpod_training_step", "The last finished step"),
    "step_seconds": ("hyperpod_training_step_seconds", "Duration of the last step"),
    "compute_seconds": ("hyperpod_training_compute_seconds", "This rank's own work, without what it waits for others"),
    "tokens_per_second": ("hyperpod_training_tokens_per_second", "Tokens of all ranks together, by the last step"),
    "mfu": ("hyperpod_training_mfu", "Model FLOPs utilization of the last step, 1 at the GPUs' peak"),
    "loss": ("hyperpod_training_loss", "Loss of the last step"),
    "checkpoint_seconds": ("hyperpod_training_checkpoint_seconds", "Duration of the last checkpoint"),
    "checkpoint_time_seconds": ("hyperpod_training_checkpoint_time_seconds", "When it was complete"),
    "updated_time_seconds": ("hyperpod_training_updated_time_seconds", "When the last step ended"),
}
# Limits: a job's ranks on this node, the entries of its folder that are looked at, bytes of a file. No trainer's number
# is as large.
MOST_RANKS, MOST_ENTRIES, MOST_BYTES, LARGEST = 256, 1024, 4096, 1e18
_FILE = re.compile(r"rank-([0-9]{1,6})\.json", re.ASCII)
_JOB = re.compile(r"[0-9]{1,10}", re.ASCII)


def families(host: Host) -> List[Family]:
    """Return the reports of the ranks on this node."""
    found: Dict[str, List[Sample]] = {}
    for job, rank, text in _files(host.path(FOLDER)):
        for field, value in parse(text).items():
            found.setdefault(field, []).append(({"hpc_job": job, "rank": rank}, value))
    return [Family(*FIELDS[field], samples=found[field]) for field in FIELDS if field in found]


def parse(text: str) -> Dict[str, Number]:
    """The known fields of a file that are numbers; nothing where it is not a JSON object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    pairs = ((field, _number(document.get(field))) for field in FIELDS)
    return {field: value for field, value in pairs if value is not None}


def _number(value: object) -> Optional[Number]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A whole number may have more digits than a float.
    return value if -LARGEST < value < LARGEST and math.isfinite(value) else None


def _files(top: Path) -> Iterator[Tuple[str, str, str]]:
    """Job, rank and text of each file, by job."""
    for job in sorted(path.name for path in top.iterdir()) if top.is_dir() else ():
        if not _JOB.fullmatch(job):
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{top}/{job}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                yield from ((job, rank, text) for rank, text in itertools.islice(_ranks(descriptor), MOST_RANKS))
            finally:
                os.close(descriptor)


def _ranks(folder: int) -> Iterator[Tuple[str, str]]:
    owner, seen = os.fstat(folder).st_uid, set()
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, MOST_ENTRIES)]
    for name in sorted(names):
        found = _FILE.fullmatch(name)
        if not found:
            continue
        # 7 and 07 would be the same series.
        rank, text = str(int(found.group(1))), _text(folder, name, owner)
        if text is not None and rank not in seen:
            seen.add(rank)
            yield rank, text


def _text(folder: int, name: str, owner: int) -> Optional[str]:
    """The text of a small file that is the folder's owner's, and that has no other name."""
    try:
        # A pipe would be waited for.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != owner or about.st_nlink != 1:
            return None
        data = os.read(descriptor, MOST_BYTES + 1)
        return data.decode("utf-8", "replace") if len(data) <= MOST_BYTES else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
