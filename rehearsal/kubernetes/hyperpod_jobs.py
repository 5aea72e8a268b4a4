"""Jobs for SageMaker's training operator: a real API server admits them, by a definition of this project's own, and the
policies of teams' namespaces. The operator itself is not public, so no such job runs here."""

from dataclasses import replace
from pathlib import Path

from components.common.documents import load_all
from operations.jobs.choices import Choices
from operations.jobs.render import render
from operations.jobs.requests import jobs_of
from operations.jobs.specs import JOBS

from ..patience import until
from .kubectl import Manifest
from .run import Run

_IMAGE = "registry.invalid/with-hyperpod-elastic-agent:1"
_SECONDS = 20.0


def definition() -> list[Manifest]:
    """What this project knows of their kind."""
    return load_all(Path(__file__).with_name("hyperpod_jobs.yaml").read_text())


def hyperpod_jobs(run: Run, known: list[Manifest]) -> str:
    """Every job that the operator can run, and those that can be elastic. Strict validation: raises Refused."""
    charts = run.config.settings.charts.model_copy(update={"hyperpod_training_operator": True})
    settings = run.config.settings.model_copy(update={"charts": charts})
    config = replace(run.config, settings=settings)
    training = [name for name in jobs_of(config) if JOBS[name].operator == "training_operator"]
    asked = [(name, None) for name in training] + [(name, 1) for name in training if JOBS[name].elastic]
    run.kubectl.apply(known)
    until(lambda: "hyperpodpytorchjobs" in run.kubectl.run("api-resources", "-o", "name"), _SECONDS)
    try:
        for name, least in asked:
            choices = Choices(operator="hyperpod", image=_IMAGE, min_nodes=least)
            run.kubectl.apply(render(name, config, choices), dry_run=True)
    finally:
        run.kubectl.delete(known)
    return f"{len(asked)} jobs, by this project's own definition of their kind"
