"""Calls kubectl and helm like a user would, with objects as dictionaries and refusals as exceptions."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
FIELD_MANAGER = "pulumi-kubernetes"
_SECONDS = 120.0


class Refused(Exception):
    """A command failed. The text is its own message."""


@dataclass(frozen=True)
class Kubectl:
    """Access to one API server as the user of a kubeconfig."""

    binaries: Mapping[str, Path]
    kubeconfig: Path

    def run(
        self, *arguments: str, given: str | None = None, program: str = "kubectl", seconds: float = _SECONDS
    ) -> str:
        """A command's output. Raises Refused."""
        try:
            done = subprocess.run(
                [str(self.binaries[program]), *arguments],
                input=given,
                env=self._environment(),
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise Refused(f"`{program} {' '.join(arguments[:4])}` did not end in {seconds:.0f} s") from None
        if done.returncode:
            raise Refused(done.stderr.strip() or f"{program} {arguments[0]} ended with {done.returncode}")
        return done.stdout

    def server_version(self) -> str:
        """The API server's version, such as v1.34.4."""
        return str(json.loads(self.run("version", "-o", "json"))["serverVersion"]["gitVersion"])

    def watch(self, kind: str) -> subprocess.Popen[str]:
        """Follow every object of a kind: events as JSON documents on stdout, until it is killed."""
        command = [str(self.binaries["kubectl"]), "get", kind, "-A", "--watch", "--output-watch-events", "-o", "json"]
        return subprocess.Popen(
            command, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _environment(self) -> dict[str, str]:
        """The environment, with caches per run: kubectl and helm key caches by server address, and ports are reused."""
        home = str(self.kubeconfig.parent)
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": home, "KUBECACHEDIR": f"{home}/cache"}

    def helm(self, *arguments: str, given: str | None = None, seconds: float = _SECONDS) -> str:
        """A helm command's output. Raises Refused."""
        return self.run(*arguments, given=given, program="helm", seconds=seconds)

    def apply(self, objects: Sequence[Manifest], *, dry_run: bool = False, user: str = "") -> None:
        """Server-side apply with strict validation: unknown or duplicate fields are errors. Raises Refused."""
        dry = [*(["--dry-run=server"] if dry_run else []), *([f"--as={user}"] if user else [])]
        options = ["--server-side", "--validate=strict", "--force-conflicts", f"--field-manager={FIELD_MANAGER}"]
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.run("apply", *options, *dry, "-f", "-", given=given)

    def delete(self, objects: Sequence[Manifest]) -> None:
        """Delete objects and wait until they are gone. Missing ones are ignored. Raises Refused."""
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.run("delete", "--ignore-not-found", "-f", "-", given=given)

    def list(self, kind: str, *, namespace: str = "", selector: str = "") -> list[Manifest]:
        """Every object of a kind, in all namespaces unless one is named."""
        where = ["-n", namespace] if namespace else ["-A"]
        chosen = ["-l", selector] if selector else []
        return list(json.loads(self.run("get", kind, *where, *chosen, "-o", "json"))["items"])

    def get(self, kind: str, name: str, namespace: str = "default") -> Manifest | None:
        """One object, or None if it does not exist."""
        text = self.run("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text else None

    def patch_status(self, kind: str, name: str, status: Manifest, namespace: str = "default") -> None:
        """Merge into an object's status, like its kubelet."""
        patch = json.dumps({"status": status})
        self.run("patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)

    def may(self, verb: str, resource: str, namespace: str, *, user: str, groups: Sequence[str] = ()) -> bool:
        """``kubectl auth can-i`` as another user."""
        who = [f"--as={user}", *(f"--as-group={group}" for group in groups)]
        try:
            return self.run("auth", "can-i", verb, resource, "-n", namespace, *who).strip() == "yes"
        except Refused as refused:
            # "no" comes with exit code 1, and stderr has at most a warning.
            if "rror" in str(refused) and "ended with 1" not in str(refused):
                raise
            return False
