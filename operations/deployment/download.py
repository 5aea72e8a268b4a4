"""Download a pinned file from its publisher, or take it from a folder where there is no network."""

import http.client
import shutil
import urllib.request
from pathlib import Path

from rich.progress import Progress

from ..failures import Failure, cannot_know

_TIMEOUT_SECONDS = 60
_CHUNK = 1 << 16


def fetch(url: str, name: str, folder: Path, offline: Path | None, progress: Progress | None) -> Path:
    """Download an address into a folder under this name. Returns the path.

    ``offline`` is a folder that has it under that name, to use instead of the network. Raises Failure.
    """
    target = folder / name
    if offline:
        if not (offline / name).is_file():
            raise Failure(f"{offline} has no {name}", f"download {url} to that name")
        return Path(shutil.copy(offline / name, target))
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer, target.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0) or None
            task = progress.add_task(name, total=size) if progress else None
            while block := answer.read(_CHUNK):
                file.write(block)
                if progress and task is not None:
                    progress.update(task, advance=len(block))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise cannot_know(
            f"{url} cannot be downloaded: {error}",
            f"check the network and proxy, or download it elsewhere as {name} and give that folder with --from",
        ) from None
    return target
