"""The program's objects, applied to an API server and deleted again in Pulumi's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import yaml

from .charts import ChartMissing, Charts
from .kubectl import Kubectl, Manifest, Refused
from .objects import Release, Step

# A release that waits for pods does so for at most this long here, seconds.
_LONGEST_WAIT = 180
# The schemas of custom resources are tens of thousands of lines.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DeployFailed(Exception):
    """A resource could not be made; the text names it."""


@dataclass
class Deployer:
    """Applies steps as pulumi-kubernetes does: releases through Helm, everything else by server-side apply."""

    kubectl: Kubectl
    charts: Charts
    say: Callable[[str], None] = lambda text: None

    def apply(self, steps: Iterable[Step]) -> None:
        """Make every resource, in order. Raises DeployFailed."""
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
        """Delete every resource, the youngest first; what cannot be deleted is said and does not stop the rest."""
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
        """How many objects the steps have on the server: their own, and those that Helm made."""
        return sum(len(self._members(step.release)) if step.release else 1 for step in steps)

    def kept(self, steps: Iterable[Step]) -> list[Manifest]:
        """What may outlive an uninstall, until the cluster itself goes.

        Helm never deletes what is in a chart's ``crds`` folder; and Kubernetes' controller of aggregated cluster roles
        can write one back while it is being deleted.
        """
        found: list[Manifest] = []
        for release in (step.release for step in steps if step.release):
            for path in sorted(self.charts.find(release).rglob("crds/*.yaml")):
                found += _documents(path.read_text())
            found += [one for one in self._members(release) if one.get("aggregationRule")]
        return found

    def _members(self, release: Release) -> list[Manifest]:
        try:
            text = self.kubectl.helm("get", "manifest", release.name, "-n", release.namespace)
        except Refused as refused:
            if "release: not found" in str(refused):
                return []
            raise
        return _documents(text)

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
        # The provider waits for the end only where it waited for the beginning.
        self.kubectl.helm("uninstall", *where, *(["--wait", f"--timeout={_LONGEST_WAIT}s"] if release.wait else []))


def _documents(text: str) -> list[Manifest]:
    return [document for document in yaml.load_all(text, _LOADER) if document]
