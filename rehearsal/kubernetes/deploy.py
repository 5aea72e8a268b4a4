"""Applies the program's objects to an API server and deletes them again, in Pulumi's order."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import yaml

from components.common.documents import load_all

from .charts import ChartMissing, Charts
from .kubectl import Kubectl, Manifest, Refused
from .objects import Release, Step

# The maximum time for which a release waits for pods here, in seconds.
_LONGEST_WAIT = 180


class DeployFailed(Exception):
    """A resource could not be created. The text names it."""


@dataclass
class Deployer:
    """Applies steps like pulumi-kubernetes: releases through Helm, everything else by server-side apply."""

    kubectl: Kubectl
    charts: Charts
    say: Callable[[str], None] = lambda text: None

    def apply(self, steps: Iterable[Step]) -> None:
        """Create every resource in order. Raises DeployFailed."""
        for step in steps:
            self.say(step.name)
            try:
                if step.release:
                    self._install(step.release)
                elif step.manifest:
                    self.kubectl.apply([step.manifest])
            except (Refused, ChartMissing) as refused:
                raise DeployFailed(f"{step.name}: {refused}") from refused

    def remove(self, steps: Iterable[Step]) -> list[str]:
        """Delete every resource, the newest first. Returns the errors; one does not stop the rest."""
        problems = []
        for step in reversed(list(steps)):
            self.say(step.name)
            try:
                if step.release:
                    self._uninstall(step.release)
                elif step.manifest:
                    self.kubectl.delete([step.manifest])
            except Refused as refused:
                problems.append(f"{step.name}: {refused}")
        return problems

    def count(self, steps: Iterable[Step]) -> int:
        """The number of the steps' objects on the server, including those that Helm created."""
        return sum(len(self._members(step.release)) if step.release else 1 for step in steps)

    def kept(self, steps: Iterable[Step]) -> list[Manifest]:
        """Objects that may remain after an uninstall until the cluster is deleted.

        Helm never deletes what is in a chart's ``crds`` folder, and Kubernetes' controller for aggregated cluster roles
        can write a role back while it is being deleted.
        """
        found: list[Manifest] = []
        for release in (step.release for step in steps if step.release):
            for path in sorted(self.charts.find(release).rglob("crds/*.yaml")):
                found += load_all(path.read_text())
            found += [one for one in self._members(release) if one.get("aggregationRule")]
        return found

    def _members(self, release: Release) -> list[Manifest]:
        try:
            text = self.kubectl.helm("get", "manifest", release.name, "-n", release.namespace)
        except Refused as refused:
            if "release: not found" in str(refused):
                return []
            raise
        return load_all(text)

    def _install(self, release: Release) -> None:
        chart = self.charts.find(release)
        flags = {
            "--create-namespace": release.create_namespace,
            "--skip-crds": release.skip_crds,
            "--take-ownership": release.take_ownership,
        }
        options = [flag for flag, given in flags.items() if given]
        seconds = min(release.timeout, _LONGEST_WAIT)
        if release.wait:
            options += ["--wait", f"--timeout={seconds}s"]
        where = [release.name, str(chart), "--namespace", release.namespace, "--values=-"]
        self.kubectl.helm("install", *where, *options, given=yaml.safe_dump(release.values))

    def _uninstall(self, release: Release) -> None:
        where = [release.name, "--namespace", release.namespace]
        # The provider waits for the deletion only if it waited for the creation.
        self.kubectl.helm("uninstall", *where, *(["--wait", f"--timeout={_LONGEST_WAIT}s"] if release.wait else []))
