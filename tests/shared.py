"""What one process of a test run makes and all of them look at."""

import fcntl
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# Names the folder that the processes of a run share.
SHARED = "HYPERPOD_TESTS_SHARED"


def made_once(name: str, make: Callable[[], T]) -> T:
    """What ``make`` makes, by the first process of the run that asks; the others wait for it and read it."""
    folder = os.environ.get(SHARED)
    if not folder:
        return make()
    file = Path(folder, hashlib.sha256(name.encode()).hexdigest())
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            made = make()
            file.write_bytes(pickle.dumps(made))
            return made
    return pickle.loads(file.read_bytes())  # type: ignore[no-any-return]
