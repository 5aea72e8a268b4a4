"""HyperPod's own lines of nodes may name the accelerators with their model (awsome-distributed-ai,
hyperpod-mental-model.md), where the stack asks for no types."""

from __future__ import annotations

import pytest

from rehearsal.checks import require
from rehearsal.nodes import agent
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.hosts import Host

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


@pytest.mark.timeout(400)
def test_jobs_are_told_their_gpus_by_their_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = agent._node_line

    def named(host: Host) -> str:
        gpus = host.machine.kind.accelerators
        return plain(host) + (f" Gres=gpu:h100:{gpus}" if gpus else "")

    monkeypatch.setattr(agent, "_node_line", named)
    with deployed("slurm-gpu") as stack, Cluster(stack, Options()) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        for asked in ("gpu:2", "gpu:h100:2"):
            told = output(cluster.controller, f"srun --gres={asked} bash -c 'echo $CUDA_VISIBLE_DEVICES'").strip()
            require(told == "0,1", f"a job with {asked} is told {told!r}")
