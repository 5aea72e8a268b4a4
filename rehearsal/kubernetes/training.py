"""A PyTorchJob whose pods really run: the training operator sets rank and address, this machine runs the processes."""

import re
import subprocess
from pathlib import Path

from operations.jobs.requests import jobs_of

from ..checks import CheckFailed, require
from ..patience import until
from .control_plane import PLAYED_LABEL
from .kubectl import Manifest
from .run import Run
from .workloads import Submitted, submitted

# Small enough for two processes on a few cores, with the gloo backend, since there is no GPU here.
_ARGUMENTS = "--steps 30 --log-every 10 --save-every 30 --threads 1 --layers 2 --embed 64 --batch 4"
_SECONDS = 240.0
# What image/torchrun runs.
PYTHON = "/usr/bin/python3"
_LOSS = re.compile(r"iter (\d+): loss ([\d.]+)")


def lacking() -> str:
    """What this machine lacks for training, or empty."""
    there = Path(PYTHON).exists()
    found = there and subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
    return "" if found else f"{PYTHON} has no PyTorch (on Debian: apt-get install python3-torch)"


def trains_across_nodes(run: Run) -> str:
    """nanoGPT on two nodes, one process each: ranks differ, both know the master's address, and the loss falls."""
    name = "nanogpt"
    if name not in jobs_of(run.config):
        raise CheckFailed(f"{name} is not among this stack's jobs")
    with submitted(run, name, change=_play, nodes=2, devices=1, arguments=_ARGUMENTS) as job:
        if not until(lambda: len(job.pods()) == job.wanted, _SECONDS):
            raise CheckFailed(f"{len(job.pods())} of {job.wanted} pods: {job.reason() or 'no reason'}")
        address = _ranks_and_address(run, job)
        logs: dict[str, str] = {}

        names = [pod["metadata"]["name"] for pod in job.pods()]

        def ended() -> bool:
            for name in names:
                # Read while it grows, since the log is deleted with its pod.
                logs[name] = run.pods.log(name)
                # The operator would restart it, but one failure is enough.
                require(not run.pods.codes.get(name), f"{name} failed: {_end(logs[name])}")
            return _state(run, job) in ("Succeeded", "Failed")

        until(ended, _SECONDS, every=0.5)
        text = "\n".join(logs.values())
        losses = [float(loss) for _, loss in _LOSS.findall(text)]
        last = _end(text)
        require(_state(run, job) == "Succeeded", f"the job is {_state(run, job) or 'without a state'}: {last}")
        require(len(losses) > 1 and losses[-1] < losses[0], f"the loss did not fall: {losses}")
        require("2 ranks, gloo" in text, f"not two ranks on gloo: {last}")
        return f"2 ranks on 2 nodes, address {address}, loss {losses[0]:.2f} to {losses[-1]:.2f}"


def _play(job: Manifest) -> None:
    """Label the pods so that their commands really run here."""
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["metadata"]["labels"][PLAYED_LABEL] = "true"


def _ranks_and_address(run: Run, job: Submitted) -> str:
    """Check what the operator wrote into the pods, and the Service behind the address. Returns the address."""
    ranks, addresses = set(), set()
    for pod in job.pods():
        variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0].get("env", [])}
        # RANK comes from this label, which the operator sets. The processes themselves report whether it arrived.
        ranks.add(pod["metadata"]["labels"].get("training.kubeflow.org/replica-index"))
        require(not pod["spec"].get("initContainers"), f"the operator added {pod['spec'].get('initContainers')}")
        addresses.add(variables.get("MASTER_ADDR"))
        require(variables.get("MASTER_PORT"), f"{pod['metadata']['name']} has no MASTER_PORT")
    require(ranks == {str(rank) for rank in range(job.wanted)}, f"ranks are {sorted(map(str, ranks))}")
    require(len(addresses) == 1, f"the pods know different addresses: {sorted(map(str, addresses))}")
    # In some versions the first replica's address is localhost; all pods can resolve a Service's name.
    address = str(addresses.pop())
    require(run.kubectl.get("service", address, job.namespace), f"no Service is called {address}")
    return address


def _end(text: str) -> str:
    """The last line with an error, or else the last lines."""
    lines = text.strip().splitlines()
    errors = [line for line in lines if "Error: " in line]
    return errors[-1] if errors else " | ".join(lines[-3:])


def _state(run: Run, job: Submitted) -> str:
    found = run.kubectl.get("pytorchjobs.kubeflow.org", job.name, job.namespace) or {}
    conditions = found.get("status", {}).get("conditions", [])
    true = [one["type"] for one in conditions if one["status"] == "True"]
    return next((kind for kind in ("Succeeded", "Failed") if kind in true), "")
