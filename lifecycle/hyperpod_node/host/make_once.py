"""Creating something once for the whole cluster, on the shared file system, while all nodes start at the same time.

The file system's own atomicity is enough, no lock to be left behind by a killed node: a whole folder is prepared
under a name of the node's own and renamed into place. A rename onto a folder with something in it fails, so the
first one stays and everybody else takes it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable

from . import safe_open
from .host import Host


def make_once(host: Host, name: str, fill: Callable[[Path], None]) -> bool:
    """Make a folder unless it is there. True when this node made it."""
    final = host.path(name)
    if final.is_dir():
        return False
    own = final.with_name(f".{final.name}.{host.hostname()}")
    # What a killed run left is half done.
    shutil.rmtree(str(own), ignore_errors=True)
    own.mkdir(mode=0o700)
    fill(own)
    try:
        own.rename(final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(str(own), ignore_errors=True)
        return False
    return True


def write_once(host: Host, name: str, text: str) -> bool:
    """Write a file unless it is there. True for the one node that did: a link to a name that exists fails."""
    aside = f"{name}.{host.hostname()}"
    host.write(aside, text)
    with safe_open.place(host.settings.root, name) as path:
        own = path.with_name(Path(aside).name)
        try:
            os.link(str(own), str(path))
        except FileExistsError:
            return False
        finally:
            own.unlink()
    return True
