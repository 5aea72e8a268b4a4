"""Creates something once for the whole cluster, on the shared file system, while all nodes start at the same time.

The file system's own atomicity is enough; a killed node leaves no lock behind. A node prepares a whole folder under a
name of its choice and renames it into place. A rename onto a folder with contents fails, so the first one stays and all
others use it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable

from . import safe_open
from .host import Host


def make_once(host: Host, name: str, fill: Callable[[Path], None]) -> bool:
    """Create a folder unless it exists. Return True if this node created it."""
    final = host.path(name)
    if final.is_dir():
        return False
    own = final.with_name(f".{final.name}.{host.hostname()}")
    # A killed run left it half done.
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
    """Write a file unless it exists. Return True on the one node that did: a link to an existing name fails."""
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
