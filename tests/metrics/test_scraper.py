"""What a stack gives to Amazon's collector, a real Prometheus does: it keeps the pods of jobs and reads their trainers.

The pods are those of the stack's own jobs, and what answers at their ports is the trainers' own reports. Debian's
Prometheus cannot ask Kubernetes, so it gets in a file what it would find there (``discovered``); the addresses, which
on AWS are the cluster's, and the interval are changed too.
"""

import importlib.util
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from components.kubernetes.metrics_scraper import PORT_NAME, configuration
from operations.jobs.render import render
from tests.metrics.names import namespace
from tests.metrics.test_programs import ask, free_port, running
from tests.support import config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.prometheus,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="needs the Debian package prometheus"),
]
CLUSTER, ROOT = "demo", Path(__file__).parents[2]
STACK = config(
    "eks-gpu",
    clusterName=CLUSTER,
    teams=[{"name": "vision"}],
    observability={"prometheus": "create", "scraper": "training"},
)
NODES = ("hyperpod-i-0123456789abcdef0", "hyperpod-i-0123456789abcdef1")
# As the add-on labels them: which nodes there are, and that a pod on them holds GPUs.
ADDON = (
    'kubelet_node_name{{cluster_name="demo",node="{node}",sagemaker_amazonaws_com_instance_group_name="workers"}} 1\n'
    'kube_node_status_capacity{{cluster_name="demo",node="{node}",resource="nvidia_com_gpu"}} 8\n'
    'kube_pod_container_resource_requests{{cluster_name="demo",node="{node}",namespace="vision",pod="{pod}",'
    'resource="nvidia_com_gpu"}} 8\n'
    'kube_pod_status_phase{{cluster_name="demo",namespace="vision",pod="{pod}",phase="Running"}} 1\n'
)


def reports() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training_report", ROOT / "lifecycle/training/training_report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def answering(text: str, path: str = "") -> Iterator[str]:
    """An HTTP server on loopback that says the same wherever, or at ``path`` alone; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.endswith(path) else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def pod(number: int, port: int, *, phase: str = "Running", node: str = "") -> dict[str, Any]:
    """A pod of the stack's job, as Kubeflow's training operator makes it and as it runs."""
    (job,) = [one for one in render("nanogpt", STACK) if one["kind"] == "PyTorchJob"]
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    labels = {**template["metadata"]["labels"], "training.kubeflow.org/job-name": "nanogpt"}
    (container,) = template["spec"]["containers"]
    (told,) = container["ports"]
    container = {**container, "ports": [{**told, "containerPort": port, "protocol": "TCP"}]}
    name = f"nanogpt-worker-{number}"
    return {
        "metadata": {"name": name, "namespace": "vision", "uid": f"{name}-{phase}", "labels": labels},
        "spec": {**template["spec"], "nodeName": node or NODES[number], "containers": [container]},
        "status": {"phase": phase, "podIP": "127.0.0.1", "hostIP": "127.0.0.1"},
    }


def discovered(pods: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Prometheus documentation, "Configuration", kubernetes_sd_config, role pod: a target for each declared port."""
    targets = []
    for one in pods:
        metadata, spec, status = one["metadata"], one["spec"], one["status"]
        about = {"namespace": metadata["namespace"], "pod_name": metadata["name"], "pod_node_name": spec["nodeName"]}
        about |= {"pod_phase": status["phase"], "pod_ip": status["podIP"]}
        about |= {f"pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}": text for key, text in metadata["labels"].items()}
        for container in spec["containers"]:
            for port in container["ports"]:
                there = {"pod_container_name": container["name"], "pod_container_port_name": port["name"]}
                labels = {f"__meta_kubernetes_{key}": text for key, text in {**about, **there}.items()}
                targets.append({"targets": [f"{status['podIP']}:{port['containerPort']}"], "labels": labels})
    return targets


def prometheus(folder: Path, pods: Sequence[Mapping[str, Any]], addon: str) -> list[str]:
    """The collector and the ruler of a stack's workspace in one."""
    given = yaml.safe_load(configuration(CLUSTER, everything=False))
    assert given["global"].pop("scrape_interval") == "30s"
    (training,) = given["scrape_configs"]
    assert training.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    (folder / "pods.json").write_text(json.dumps(discovered(pods)))
    training["file_sd_configs"] = [{"files": ["pods.json"]}]
    told_by_addon = {"job_name": "addon", "honor_labels": True, "static_configs": [{"targets": [addon]}]}
    return started(folder, [training, told_by_addon])


def started(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    (folder / "rules.yaml").write_text(namespace(STACK, CLUSTER))
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    whole = {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": list(jobs)}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(whole))
    return ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]


def found(address: str, expression: str) -> list[dict[str, Any]]:
    answer = ask(f"{address}/api/v1/query?query={quote(expression)}")["data"]["result"]
    return [one["metric"] | {"value": one["value"][1]} for one in answer]


def until(true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.2)


def test_a_pods_figures_arrive_with_the_contracts_labels_and_rules_answer(tmp_path: Path) -> None:
    ports, module = [free_port(), free_port()], reports()
    for rank in range(4):
        place, local = divmod(rank, 2)
        folder = str(tmp_path / f"pod-{place}")
        given = {"HYPERPOD_TRAINING_REPORTS": folder, "HYPERPOD_TRAINING_PORT": str(ports[place])}
        report = module.Report(rank, {**given, "LOCAL_RANK": str(local)})
        report.begin()
        time.sleep(0.4 if rank == 3 else 0.1)
        report.computed()
        report.step(7, 1000, 2.5)
    without = pod(0, ports[0])
    without["metadata"] |= {"name": "notebook", "uid": "notebook"}
    without["spec"]["containers"][0]["ports"][0]["name"] = "http"
    ended = pod(1, ports[1], phase="Succeeded", node=NODES[0])
    ended["metadata"]["name"] = "nanogpt-worker-old"
    pods = [pod(0, ports[0]), pod(1, ports[1]), without, ended]
    assert pods[0]["spec"]["containers"][0]["ports"][0]["name"] == PORT_NAME
    addon = "".join(ADDON.format(node=node, pod=f"nanogpt-worker-{at}") for at, node in enumerate(NODES))
    with answering(addon) as told, running(prometheus(tmp_path, pods, told), free_port()) as address:
        until(lambda: len(found(address, "hyperpod_training_loss")) == 4)
        (step,) = found(address, 'hyperpod_training_step{rank="3"}')
        assert {key: step[key] for key in step.keys() - {"__name__", "job", "instance"}} == {
            "cluster": CLUSTER, "node": NODES[1], "group": "workers", "namespace": "vision",
            "pod": "nanogpt-worker-1", "hpc_job": "nanogpt", "rank": "3", "value": "7",
        }  # fmt: skip
        # No other pod, and of these no other figures.
        assert len(found(address, 'up{job="training"}')) == 2
        # A rule that answers early adds ALERTS with the same labels.
        scraped = found(address, '{job="training", rank!="", __name__!~"ALERTS.*"}')
        assert {one["__name__"] for one in scraped} == {
            f"hyperpod_training_{what}"
            for what in ("step", "step_seconds", "compute_seconds", "tokens_per_second", "loss", "updated_time_seconds")
        }
        until(lambda: found(address, "hyperpod:training_updated_time_seconds"))
        (job,) = found(address, "hyperpod:training_updated_time_seconds")
        assert {key: job[key] for key in ("cluster", "namespace", "hpc_job")} == {
            "cluster": CLUSTER, "namespace": "vision", "hpc_job": "nanogpt",
        }  # fmt: skip
        until(lambda: found(address, 'ALERTS{alertname="TrainingSlowRank"}'))
        slow = found(address, 'ALERTS{alertname="TrainingSlowRank"}')
        assert [(one["rank"], one["node"], one["pod"]) for one in slow] == [("3", NODES[1], "nanogpt-worker-1")]


# Of kube-state-metrics, node exporter and DCGM exporter (tests/metrics/published), and what nobody reads.
OF_EXPORTERS = {
    "kube-state-metrics": (
        'kube_node_info{{node="{node}",internal_ip="127.0.0.1"}} 1\n'
        'kube_node_status_capacity{{node="{node}",resource="nvidia_com_gpu"}} 8\n'
        'kube_configmap_info{{namespace="vision"}} 1\n'
    ),
    "prometheus-node-exporter": "node_load1 3\nnode_forks_total 9\n",
    "dcgm-exporter": 'DCGM_FI_DEV_GPU_UTIL{{gpu="5",Hostname="{node}",namespace="vision",pod="mine"}} 71\n',
}


def test_in_the_add_ons_place_nodes_and_exporters_are_known_as_by_it(tmp_path: Path) -> None:
    node = NODES[0]
    given = yaml.safe_load(configuration(CLUSTER, everything=True, teams=["speech", "vision"]))
    _, kubelet, exporters = given["scrape_configs"]
    assert (kubelet.pop("scheme"), kubelet.pop("authorization")["type"]) == ("https", "Bearer")
    assert [kubelet.pop("kubernetes_sd_configs"), exporters.pop("kubernetes_sd_configs")] == [
        [{"role": "node"}],
        [{"role": "pod"}],
    ]
    path = f"/api/v1/nodes/{node}/proxy/metrics"
    with ExitStack() as stack:
        api = stack.enter_context(answering(f'kubelet_node_name{{node="{node}"}} 1\ngo_threads 9\n', path))
        (place,) = (rule for rule in kubelet["relabel_configs"] if rule.get("target_label") == "__address__")
        assert place["replacement"] == "kubernetes.default.svc:443"
        place["replacement"] = api
        labels = {"node_name": node, "node_label_sagemaker_amazonaws_com_instance_group_name": "workers"}
        labels |= {
            "node_label_node_kubernetes_io_instance_type": "ml.p5.48xlarge",
            "node_label_topology_kubernetes_io_zone": "a",
        }
        about = {f"__meta_kubernetes_{key}": value for key, value in labels.items()}
        kubelet["static_configs"] = [{"targets": ["10.0.0.1:10250"], "labels": about}]
        exporters["static_configs"] = []
        # The last two: not an exporter that is known, and a pod of a team's that would speak for the node.
        forged = OF_EXPORTERS["dcgm-exporter"].replace("71", "0")
        pods = [*((name, "kube-system", text) for name, text in OF_EXPORTERS.items())]
        pods += [("somebodys", "kube-system", "node_load1 4\n"), ("dcgm-exporter", "vision", forged)]
        for name, namespace, text in pods:
            address = stack.enter_context(answering(text.format(node=node)))
            seen = {"pod_label_app_kubernetes_io_name": name, "pod_phase": "Running", "namespace": namespace}
            about = {f"__meta_kubernetes_{key}": value for key, value in seen.items()}
            exporters["static_configs"].append({"targets": [address], "labels": about})
        address = stack.enter_context(running(started(tmp_path, [kubelet, exporters]), free_port()))
        until(lambda: found(address, 'node_load1{cluster="demo"}') and found(address, "hyperpod:accelerators"))
        here = {"cluster": CLUSTER, "node": node, "group": "workers"}
        for expression, value in (
            ('node_load1{cluster="demo"}', "3"),
            ('DCGM_FI_DEV_GPU_UTIL{cluster="demo", gpu="5", pod="mine"}', "71"),
            ("hyperpod:accelerators", "8"),
            ('hyperpod_node_info{instance_type="ml.p5.48xlarge", instance_id="i-0123456789abcdef0"}', "1"),
            ("hyperpod_accelerators_expected", "8"),
        ):
            until(lambda expression=expression: found(address, expression))  # type: ignore[misc]
            (series,) = found(address, expression)
            assert {**here, "value": value}.items() <= series.items()
        assert found(address, '{__name__=~"go_threads|node_forks_total|kube_configmap_info"}') == []
