"""The kubelet for pods that really run: their containers are processes on this machine, with their own rights.

The operators' pods run the operators, and pods labelled ``rehearsal.hyperpod/process`` run their own command. Each has
its volumes at their paths, its environment, and its service account's token, so that the chart's RBAC applies to it.
All share the machine's network. kwok plays everything else.
"""

import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from components.kubernetes.teams.directories import LABELS as DIRECTORY

from ..patience import until
from .container import Mount, command_line, identity
from .control_plane import PLAYED_LABEL, ControlPlane
from .kubectl import Manifest, Refused
from .processes import Process, Processes
from .volumes import Volumes

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.5
# A reference to one label of a pod, as in the downward API for environment variables.
_LABEL = re.compile(r"metadata\.labels\['([^']+)'\]")


@dataclass(frozen=True)
class Operator:
    """An operator that runs here: how to recognize its pods, its program, and arguments besides the chart's.

    ``ports`` are the fixed ports that it listens on, which must be free on this machine.
    """

    program: str
    label: tuple[str, str]
    arguments: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


# In pods each operator has its own network. Here they share one, so listeners are moved or turned off if possible.
OPERATORS = (
    Operator(
        "training-operator",
        ("control-plane", "kubeflow-training-operator"),
        ("--metrics-bind-address=0", "--health-probe-bind-address=0"),
    ),
    Operator("mpi-operator", ("app.kubernetes.io/name", "mpi-operator"), (), (8080,)),
    Operator("kueue", ("app.kubernetes.io/name", "kueue"), (), (8081, 8082, 8443, 9443)),
)


def operator_of(pod: Manifest) -> Operator | None:
    """The operator that a pod runs, or None."""
    labels = pod["metadata"].get("labels") or {}
    return next((one for one in OPERATORS if labels.get(one.label[0]) == one.label[1]), None)


def has_process(pod: Manifest) -> bool:
    """Whether the pod's containers really run here."""
    labels = pod["metadata"].get("labels") or {}
    return operator_of(pod) is not None or PLAYED_LABEL in labels or DIRECTORY.items() <= labels.items()


@dataclass
class Pods:
    """Watches the API server's pods from ``start`` to ``stop``, and runs those that should run here.

    ``problems`` says what kept pods from running, ``codes`` has the exit codes of those that ran, by pod name.
    """

    plane: ControlPlane
    workspace: Path
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.volumes = Volumes(self.plane.kubectl, self.workspace)
        self.codes: dict[str, int] = {}
        self._processes = Processes(self.plane.folder)
        self._running: dict[str, Process | None] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._watch: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._spawn(self._follow)

    def stop(self) -> None:
        """End every process."""
        self._stopping = True
        if self._watch:
            self._watch.kill()
        self._processes.stop_all()
        for thread in self._threads:
            thread.join(10)

    def log(self, name: str) -> str:
        """The output of a pod's process."""
        path = self.plane.folder / f"pod-{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def waiting(self) -> list[str]:
        """Operators whose processes run but are not ready, with the end of their output."""
        found = [(process, pod) for pod in self.plane.kubectl.list("pods") if (process := self._of(pod))]
        return [f"{process.name}: {process.last_words(1)}" for process, pod in found if not is_ready(pod)]

    def _of(self, pod: Manifest) -> Process | None:
        return self._running.get(pod["metadata"]["uid"]) if operator_of(pod) else None

    def _spawn(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _follow(self) -> None:
        while not self._stopping:
            watch = self.plane.kubectl.watch("pods")
            self._watch = watch
            assert watch.stdout
            for event in _events(watch.stdout):
                self._see(event["type"], event["object"])
            watch.wait()

    def _see(self, kind: str, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        gone = kind == "DELETED" or "deletionTimestamp" in pod["metadata"]
        if gone:
            if (process := self._running.pop(uid, None)) is not None:
                self._processes.stop(process)
        elif uid not in self._running and _waits(pod) and has_process(pod):
            self._running[uid] = None
            self._spawn(self._run, pod)

    def _run(self, pod: Manifest) -> None:
        """Run one pod, from its volumes to its exit code."""
        try:
            process = self._start(pod)
            self._report(pod, "Running", ready=False)
            if not self._become_ready(pod, process):
                return
            self._report(pod, "Running", ready=True)
            while process.code is None:
                time.sleep(_LOOK_SECONDS)
                self.volumes.refresh(pod)
            if pod["metadata"]["uid"] in self._running:
                self.codes[pod["metadata"]["name"]] = process.code
                self._report(pod, "Failed" if process.code else "Succeeded", code=process.code)
        except (Refused, OSError, KeyError) as error:
            # Errors because the pod is deleted or the run ends do not matter.
            if not self._stopping and pod["metadata"]["uid"] in self._running:
                self.problems.append(f"pod {pod['metadata']['name']}: {error}")

    def _start(self, pod: Manifest) -> Process:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        mounts = self.volumes.mounts(pod, container)
        environment = self._environment(pod, container)
        if operator := operator_of(pod):
            program = self.plane.binaries[operator.program]
            mounts.append(Mount(program, "/manager"))
            command = ["/manager", *container.get("command", [])[1:], *container.get("args", []), *operator.arguments]
        else:
            command = [*container["command"], *container.get("args", [])]
        root = self.workspace / f"root-{pod['metadata']['uid']}"
        groups = self.volumes.groups(pod)
        line = command_line(root, mounts, [*identity(pod["spec"], groups), *command])
        process = self._processes.start(f"pod-{name}", line, environment=environment)
        self._running[pod["metadata"]["uid"]] = process
        return process

    def _environment(self, pod: Manifest, container: Manifest) -> dict[str, str]:
        environment = {
            "PATH": "/image:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/tmp",
            "HOSTNAME": pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.plane.port),
        }
        for source in container.get("envFrom", []):
            environment |= self.volumes.data("configmap", source["configMapRef"]["name"], pod)
        for one in container.get("env", []):
            environment[one["name"]] = self._value(one, pod)
        # A pod's only interface is eth0. Here all pods share loopback.
        return {name: "lo" if name.endswith("_SOCKET_IFNAME") else value for name, value in environment.items()}

    def _value(self, variable: Manifest, pod: Manifest) -> str:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            if label := _LABEL.fullmatch(path):
                return str(pod["metadata"]["labels"].get(label[1], ""))
            found: Any = pod
            for part in path.split("."):
                found = found.get(part, {})
            return str(found or self.plane.address)
        for kind, key in (("configmap", "configMapKeyRef"), ("secret", "secretKeyRef")):
            if key in source:
                return self.volumes.data(kind, source[key]["name"], pod).get(source[key]["key"], "")
        return self._resolve(str(variable.get("value", "")), pod)

    def _resolve(self, value: str, pod: Manifest) -> str:
        """Stand in for the cluster's DNS: replace a Service's name, with or without port, by its endpoint's address."""
        name, colon, port = value.partition(":")
        namespace = pod["metadata"]["namespace"]
        if not _is_name(name) or (service := self.plane.kubectl.get("service", name, namespace)) is None:
            return value
        labels, selector = pod["metadata"].get("labels") or {}, service["spec"].get("selector") or {}
        if selector.items() <= labels.items():
            return f"{self.plane.address}{colon}{port}"
        addresses: list[str] = []

        def known() -> bool:
            found = self.plane.kubectl.get("endpoints", name, namespace) or {}
            addresses[:] = [one["ip"] for part in found.get("subsets", []) for one in part.get("addresses", [])]
            return bool(addresses)

        if not until(known, _START_SECONDS):
            raise Refused(f"service {name} has no endpoint")
        return f"{addresses[0]}{colon}{port}"

    def _become_ready(self, pod: Manifest, process: Process) -> bool:
        """Wait for an operator's readiness probe if its port is unchanged. Other pods are ready at once."""
        operator, probe = operator_of(pod), pod["spec"]["containers"][0].get("readinessProbe", {}).get("httpGet")
        while operator and operator.ports and probe and not self._stopping and process.code is None:
            self.volumes.refresh(pod)
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{probe['port']}{probe['path']}", timeout=2).close()
                return True
            except (urllib.error.URLError, OSError):
                time.sleep(_LOOK_SECONDS)
        if self._stopping:
            return False
        if operator and process.code is not None and pod["metadata"]["uid"] in self._running:
            self.problems.append(f"{operator.program} ended with {process.code}: {process.last_words()}")
            self._report(pod, "Failed", code=process.code)
            return False
        return True

    def _report(self, pod: Manifest, phase: str, *, ready: bool = False, code: int | None = None) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        said = str(ready).capitalize()
        conditions = {"PodScheduled": "True", "Initialized": "True", "Ready": said, "ContainersReady": said}
        ended = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now}}
        containers = [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": ready,
                "state": {"running": {"startedAt": now}} if code is None else ended,
            }
            for one in pod["spec"]["containers"]
        ]
        status: Mapping[str, Any] = {
            "phase": phase,
            "hostIP": self.plane.address,
            "podIP": self.plane.address,
            "podIPs": [{"ip": self.plane.address}],
            "startTime": now,
            "conditions": [{"type": kind, "status": value} for kind, value in conditions.items()],
            "containerStatuses": containers,
        }
        self.plane.kubectl.patch_status("pod", pod["metadata"]["name"], dict(status), pod["metadata"]["namespace"])


def is_ready(pod: Manifest) -> bool:
    """Whether a pod's containers are ready."""
    conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _waits(pod: Manifest) -> bool:
    """Whether a pod is on a node and has not started yet."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") == "Pending"


def _is_name(text: str) -> bool:
    return bool(text) and text.replace("-", "").isalnum() and not text.isdigit()


def _events(stream: IO[str]) -> Iterator[Manifest]:
    """A watch's events of pods. Where the client was too slow, it ends with a status, and begins again."""
    return (event for event in _documents(stream) if event["object"].get("kind") == "Pod")


def _documents(stream: IO[str]) -> Iterator[Manifest]:
    """The JSON documents of a stream, each as soon as it is complete."""
    text = ""
    for line in stream:
        text += line
        # A document ends with a brace: in the first column, or at the end of a one-line document.
        if line.startswith(("{", "}")) and line.rstrip().endswith("}"):
            yield json.loads(text)
            text = ""
