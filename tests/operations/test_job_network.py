"""Jobs between nodes use EFA, or fail."""

from typing import Any

from operations.jobs.choices import Choices
from operations.jobs.render import render
from tests.operations.test_jobs import pods
from tests.support import config


def test_jobs_between_nodes_with_efa_never_go_over_tcp_in_silence() -> None:
    """NCCL falls back on sockets where an image lacks EFA's plugin, unless its network has a name (NCCL's "NCCL_NET").

    So do the ranks that mpirun starts on other nodes, which have nothing of their containers' environment.
    """
    p5 = {"name": "hopper", "instanceType": "ml.p5.48xlarge", "count": 2}
    g5 = {"name": "ampere", "instanceType": "ml.g5.8xlarge", "count": 3}

    def network(name: str, **options: Any) -> set[str | None]:
        rendered = render(name, config("eks-gpu", workers=[p5, g5]), Choices(**options))
        containers = [container for pod in pods(rendered) for container in pod["containers"]]
        return {
            next((one["value"] for one in container["env"] if one["name"] == "NCCL_NET"), None)
            for container in containers
        }

    for name in ("nccl-tests", "find-slow-node", "nanogpt", "fsdp-llama", "nemo"):
        assert network(name) == {"AWS Libfabric"}, name
        assert network(name, efa=0) == {None}, name
        assert network(name, group="ampere") == {None}, name
    assert network("nanogpt", nodes=1) == {None}
    for name in ("nccl-tests", "find-slow-node"):
        assert " -x NCCL_NET " in str(render(name, config("eks-gpu"), Choices(image="mine:1")))
    text = str(render("nemo", config("eks-gpu")))
    assert (
        'LD_LIBRARY_PATH="/opt/amazon/ofi-nccl/lib:/opt/amazon/aws-ofi-nccl/lib:/opt/amazon/efa/lib${LD_LIBRARY_PATH:+'
        in text
    )
