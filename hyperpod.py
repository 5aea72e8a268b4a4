"""The command ``hyperpod``: the verbs of operations, and those of the rehearsal on top of them.

It works on the project whose folder, or a folder below it, is the current one, and runs the code that is there.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any


def project_folder(start: Path) -> Path | None:
    """The nearest folder from here upwards that has this project's stacks and verbs, or None."""
    for folder in (start, *start.parents):
        if (folder / "Pulumi.yaml").is_file() and (folder / "operations" / "cli.py").is_file():
            return folder
    return None


def main() -> int:
    """Become ``python hyperpod.py`` of the project here: Python then looks for modules in that folder first."""
    folder = project_folder(Path.cwd()) or project_folder(Path(__file__).resolve().parent)
    if folder is not None:
        os.execv(sys.executable, [sys.executable, str(folder / "hyperpod.py"), *sys.argv[1:]])
    sys.stderr.write("there is no HyperPod project here\nNext: cd to the folder that has its Pulumi.yaml\n")
    return 2


def run() -> int:
    """Run the command line of the project that this file belongs to. Returns the exit code."""
    # A command lives for seconds, and a rehearsal makes a million objects: looking for garbage would take a quarter.
    gc.set_threshold(1_000_000, 50)
    try:
        if "_HYPERPOD_COMPLETE" in os.environ:
            from operations import completion

            return completion.main(described)
        join()
        from operations.cli import main as verbs

        return verbs()
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f"{missing.name} is missing in {sys.executable}: `. venv/bin/activate` (`make rehearse` creates it)\n"
        )
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


def join() -> None:
    """Let the rehearsal add its verbs, where the project has it."""
    if (Path(__file__).parent / "rehearsal").is_dir():
        from rehearsal.verbs import join as add_verbs

        add_verbs()


def described() -> dict[str, Any]:
    """Describe the verbs for ``completion``."""
    join()
    from operations import cli, command_tree

    return command_tree.described(cli.app)


if __name__ == "__main__":
    sys.exit(run())
