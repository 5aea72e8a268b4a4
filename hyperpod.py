"""The command ``hyperpod``. It works on the project whose folder, or a folder below it, is the current one."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

VERSION = "0.9.0"


def project_folder(start: Path) -> Path | None:
    """The nearest folder from here upwards that has this project's stacks and verbs, or None."""
    for folder in (start, *start.parents):
        if (folder / "Pulumi.yaml").is_file() and (folder / "operations" / "cli.py").is_file():
            return folder
    return None


def main() -> int:
    """Run the command line of the project here. Returns the exit code."""
    folder = project_folder(Path.cwd()) or project_folder(Path(__file__).resolve().parent)
    if folder is None:
        sys.stderr.write("there is no HyperPod project here\nNext: cd to the folder that has its Pulumi.yaml\n")
        return 2
    sys.path.insert(0, str(folder))
    # A command lives for seconds, and a rehearsal makes a million objects: looking for garbage would take a quarter.
    gc.set_threshold(1_000_000, 50)
    try:
        if "_HYPERPOD_COMPLETE" in os.environ:
            from operations.completion import main as verbs
        else:
            from operations.cli import main as verbs

        return verbs()
    except ModuleNotFoundError as missing:
        sys.stderr.write(f"{missing.name} is missing in {sys.executable}: `make` in {folder} installs what is needed\n")
        return 3
    except OSError as error:
        # Libraries look for a place for temporary files when they are imported. Verbs handle all other errors.
        sys.stderr.write(f"{error.strerror}\nNext: free space on the disk, or name a folder with some: TMPDIR=FOLDER\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Cancelled.\n")
        return 130
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
