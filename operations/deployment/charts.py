"""Download the Helm charts that ``pulumi up`` installs on EKS, and check them against the project's pins."""

import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from components.kubernetes.charts import FOLDER, Chart, Dependency, faults

from ..failures import Failure
from .download import fetch

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Brought:
    """A chart in ``charts/``. ``content`` lists the charts in it whose content was verified."""

    chart: str
    version: str
    path: str
    content: tuple[str, ...]


def bring(
    chart: Chart, root: Path | None = None, offline: Path | None = None, progress: Progress | None = None
) -> Brought:
    """Put a chart into ``charts/``, completely or not at all. Raises Failure if it is unavailable or not as pinned.

    ``offline`` is a folder with the archives, to use instead of the network.
    """
    root = root or ROOT
    target = root / chart.path
    if faults(chart, target):
        with tempfile.TemporaryDirectory(prefix="charts-", dir=_made(root / FOLDER)) as scratch:
            made = _assemble(chart, Path(scratch), offline, progress)
            if wrong := faults(chart, made):
                raise Failure(
                    f"{chart.name} is not what this project pins: {'; '.join(wrong)}",
                    "the content at these addresses has changed; do not use a chart that you have not reviewed",
                )
            if target.exists():
                shutil.rmtree(target)
            made.rename(target)
    return Brought(
        chart=chart.name,
        version=chart.version,
        path=str(chart.path),
        content=(chart.name, *(dependency.name for dependency in chart.dependencies)),
    )


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _assemble(chart: Chart, scratch: Path, offline: Path | None, progress: Progress | None) -> Path:
    archive = fetch(chart.archive, f"{chart.name}.tar.gz", scratch, offline, progress)
    unpacked = scratch / "archive"
    unpacked.mkdir()
    try:
        with tarfile.open(archive) as package:
            package.extractall(unpacked, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Failure(
            f"{chart.archive} is not an archive of the chart: {error}", "is it a proxy's page, or incomplete?"
        ) from None
    # A repository's archive has one folder, named after the repository and the commit.
    made = next(unpacked.iterdir(), unpacked) / chart.folder
    if not made.is_dir():
        raise Failure(
            f"{chart.archive} has no folder {chart.folder}", "the pin in components/kubernetes/charts.py is wrong"
        )
    for name in chart.left_out:
        (made / name).unlink(missing_ok=True)
    (made / "charts").mkdir(exist_ok=True)
    for dependency in chart.dependencies:
        package_file = fetch(dependency.url, _file_of(dependency), scratch, offline, progress)
        shutil.move(package_file, made / dependency.file)
    return made


def _file_of(dependency: Dependency) -> str:
    return dependency.url.rsplit("/", 1)[1]
