"""The objects of every job that the ready EKS stacks can run, as ``hyperpod job`` renders them."""

from pathlib import Path
from typing import Any

from operations.jobs.choices import Choices
from operations.jobs.render import render
from operations.jobs.requests import JobError, jobs_of
from operations.jobs.specs import JOBS as SPECS
from tests.golden.normal import sorted_keys
from tests.golden.stacks import GOLDEN
from tests.support import READY_STACKS, config

JOBS = Path(__file__).parent / "jobs"
STACKS = [name for name in READY_STACKS if name.startswith("eks")]
# A closed network reaches private registries of its own region alone.
_IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror/training:1"

# Kind of object, its name, what there is to say of it.
Jobs = dict[str, dict[str, Any]]


def rendered(name: str) -> Jobs:
    """The objects of every job of a stack on its first group, or why it is refused; scripts as their paths."""
    settings = config(GOLDEN[name].stack, **GOLDEN[name].settings)
    image = _IMAGE if settings.settings.network.closed else None
    found: Jobs = {}
    for job in jobs_of(settings):
        try:
            documents = render(job, settings, Choices(image=image))
        except JobError as error:
            found.setdefault("refused", {})[job] = str(error)
            continue
        for document in documents:
            found.setdefault(document["kind"], {})[document["metadata"]["name"]] = _told(document, job)
    return found


def _others(document: dict[str, Any], job: str) -> set[str]:
    """The files that are no scripts of the job."""
    return set(document["data"]) - {Path(path).name for path in SPECS[job].scripts}


def _told(document: dict[str, Any], job: str) -> Any:
    if document["kind"] == "ConfigMap":
        document = {**document, "data": sorted({*SPECS[job].scripts, *_others(document, job)})}
    return sorted_keys(document)
