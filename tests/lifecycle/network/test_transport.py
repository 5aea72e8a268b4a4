"""How a node's traffic travels: by the catalogue and by what is found, and what its jobs' environment says."""

import ctypes
import dataclasses
import json
import runpy
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hyperpod_node.facts.model import Group, Mlflow, Node, Probe
from hyperpod_node.host.host import Result
from hyperpod_node.network import environment, transport

from components.catalogue.accelerators import CATALOGUE, lookup
from tests.lifecycle.rig import FakeHost, World, group

NEVER = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_TREE_THRESHOLD")


def row(instance_type: str) -> Group:
    return group("workers", instance_type)


def probed(devices: int, read: bool | None) -> Probe:
    return Probe(devices, read, "test")


def ready(tmp_path: Path, worker_type: str) -> tuple[FakeHost, Node]:
    host = World(tmp_path, worker_type).node("worker")
    node = host.node()
    node.enter("environment")
    return host, node


def variables(host: FakeHost) -> dict[str, str]:
    return dict(line.split("=", 1) for line in host.text("/etc/hyperpod/task.env").splitlines())


@pytest.mark.parametrize(
    ("kind", "devices", "read", "wanted", "complaint"),
    [
        ("ml.p5.48xlarge", 32, True, "efa-rdma", ""),
        ("ml.p4d.24xlarge", 4, True, "efa-rdma", ""),
        ("ml.g5.48xlarge", 1, None, "efa-sendrecv", ""),
        ("ml.g5.48xlarge", 1, False, "efa-sendrecv", ""),
        ("ml.g5.16xlarge", 0, None, "tcp", ""),
        ("ml.g5.16xlarge", 1, None, "efa-sendrecv", ""),
        ("ml.trn1.32xlarge", 8, True, "efa-rdma", ""),
        ("ml.trn2.48xlarge", 16, True, "efa-rdma", ""),
        ("ml.m5.2xlarge", 0, None, "tcp", ""),
        (
            "ml.p5.48xlarge",
            0,
            None,
            "tcp",
            "{kind} has 32 EFA interfaces by the catalogue and none was found (test): using tcp, far below the wire",
        ),
        (
            "ml.p5.48xlarge",
            32,
            False,
            "efa-sendrecv",
            "{kind} has RDMA read by the catalogue, and the device says it has none: using efa-sendrecv",
        ),
        (
            "ml.p5.48xlarge",
            32,
            None,
            "efa-sendrecv",
            "{kind} has RDMA read by the catalogue, and the device could not be asked: using efa-sendrecv",
        ),
        ("ml.p5.48xlarge", 31, True, "efa-rdma", "31 of 32 EFA interfaces found (test)"),
        (
            "ml.g5.48xlarge",
            1,
            True,
            "efa-sendrecv",
            "{kind} has no RDMA read by the catalogue, and the device says it has: using efa-sendrecv",
        ),
    ],
)
def test_catalogue_and_probe_must_agree_or_the_safe_transport_is_taken_loudly(
    kind: str, devices: int, read: bool | None, wanted: str, complaint: str
) -> None:
    found, complaints = transport.decide(row(kind), probed(devices, read))
    assert found == wanted
    assert complaints == ([complaint.format(kind=kind)] if complaint else [])


def test_a_device_that_the_catalogue_does_not_know_is_left_alone() -> None:
    without = dataclasses.replace(row("ml.p5.48xlarge"), efa="no", efa_interfaces=0, rdma_read=False)
    found, complaints = transport.decide(without, probed(1, True))
    assert found == "tcp"
    assert complaints == ["ml.p5.48xlarge has no EFA by the catalogue, and test shows 1: using tcp"]


def test_rdma_is_never_used_on_a_device_that_did_not_say_it_has_it() -> None:
    for kind, known in CATALOGUE.items():
        if not known.hyperpod:
            continue
        for devices in (0, 1, known.efa_interfaces):
            for read in (False, None):
                assert transport.decide(row(kind), probed(devices, read))[0] != "efa-rdma"
            if not known.rdma_read or not devices:
                assert transport.decide(row(kind), probed(devices, True))[0] != "efa-rdma"


@pytest.mark.parametrize("kind", [k for k, r in CATALOGUE.items() if r.accelerator and r.hyperpod])
def test_a_node_as_the_catalogue_has_it_gets_the_catalogues_transport(tmp_path: Path, kind: str) -> None:
    host, node = ready(tmp_path, kind)
    environment.run(node)
    assert node.transport == lookup(kind).transport
    assert not node.warnings
    found = variables(host)
    assert found["HYPERPOD_TRANSPORT"] == node.transport
    assert not set(NEVER) & set(found)
    alone = node.transport != "tcp" and lookup(kind).accelerator == "gpu"
    assert host.read("/etc/hyperpod/task-nodes.env") == ("NCCL_NET=AWS Libfabric\n" if alone else "")
    if node.transport == "tcp":
        assert "FI_PROVIDER" not in found
        assert "FI_EFA_USE_DEVICE_RDMA" not in found
        assert found["NCCL_SOCKET_IFNAME"] == "ens6"
    else:
        assert found["FI_PROVIDER"] == "efa"
        assert found["FI_EFA_USE_DEVICE_RDMA"] == ("1" if lookup(kind).rdma_read else "0")
        assert found["NCCL_SOCKET_IFNAME"] == "^docker,lo,veth"
    # AWS: "recommend to leave it out" (aws-ofi-nccl, doc/efa-env-var.md); gone with Neuron 2.31, and before that "above
    # 3 may lead to out-of-memory" (Neuron's announcement of 2026-06-28, and its runtime's configuration).
    assert not {"NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS"} & set(found)
    if lookup(kind).accelerator == "gpu":
        assert found["NCCL_DEBUG"] == "WARN"
        assert (found.get("NCCL_NET_PLUGIN") == "none") == (node.transport == "tcp")
    else:
        assert found["NEURON_RT_NUM_CORES"] == str(lookup(kind).neuron_cores)
        assert not [name for name in found if name.startswith("NCCL_") and name != "NCCL_SOCKET_IFNAME"]


def test_fi_info_is_the_second_source_and_each_device_counts_once(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.p5.48xlarge")
    shutil.rmtree(host.path("/sys/class/infiniband"))
    said = "".join(
        f"provider: efa\n    domain: rdmap{n}s27-{kind}\n    type: FI_EP_RDM\n"
        for n in range(32)
        for kind in ("rdm", "dgrm")
    )
    host.commands["fi_info"] = lambda h, args, stdin: Result(0, said)
    assert transport.probe(node) == Probe(32, None, "fi_info")
    assert host.ran("fi_info", "-p", "efa", "-t", "FI_EP_RDM")


def test_the_devices_own_word_counts_more_than_their_generation(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.p5.48xlarge")
    said = json.dumps({"devices": [{"name": "rdmap0s27", "rdma_read": False}]})
    host.commands["hyperpod-efa-capabilities"] = lambda h, args, stdin: Result(0, said)
    environment.run(node)
    assert node.transport == "efa-sendrecv"
    assert "the device says it has none" in node.warnings["environment"][0]


def test_an_rdma_device_of_another_maker_is_no_efa(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.g5.16xlarge")
    path = host.path("/sys/class/infiniband/mlx5_0/device/vendor")
    path.parent.mkdir(parents=True)
    path.write_text("0x15b3\n")
    assert transport.probe(node).devices == 0


def test_a_head_node_gets_no_variables_of_training(tmp_path: Path) -> None:
    host = World(tmp_path).node("controller")
    environment.run(host.node())
    assert host.text("/etc/hyperpod/task.env") == ""
    assert host.text("/etc/environment") == 'PATH="/usr/bin:/bin"\n'
    assert "NCCL" not in host.text("/etc/profile.d/hyperpod.sh")


def test_etc_environment_keeps_what_others_wrote_and_has_one_block(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.p5.48xlarge")
    environment.run(node)
    first = host.text("/etc/environment")
    environment.run(host.node())
    assert host.text("/etc/environment") == first
    assert first.startswith('PATH="/usr/bin:/bin"\n# hyperpod begin\n')
    assert first.count("# hyperpod begin") == 1


def test_jobs_are_told_of_the_stacks_mlflow(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.p5.48xlarge")
    environment.run(node)
    assert not [name for name in variables(host) if "MLFLOW" in name]
    node.parameters_ = dataclasses.replace(node.parameters, mlflow=Mlflow(app="arn:app", role="arn:role"))
    environment.run(node)
    found = variables(host)
    assert found["MLFLOW_TRACKING_URI"] == "arn:app"
    assert found["HYPERPOD_MLFLOW_AWS_CONFIG"] == "/etc/hyperpod/mlflow-aws.conf"


def test_a_lost_gpu_is_said(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.p5.48xlarge")
    host.path("/dev/nvidia7").unlink()
    environment.run(node)
    assert node.warnings["environment"] == ["7 of 8 GPUs in /dev"]


@pytest.mark.parametrize(("physical", "warned"), [(1, False), (2, False), (3, True)])
def test_trainium2_may_be_counted_in_physical_cores(tmp_path: Path, physical: int, warned: bool) -> None:
    host, node = ready(tmp_path, "ml.trn2.48xlarge")
    said = json.dumps([{"nc_count": 4 * physical} for _ in range(16)])
    host.commands["neuron-ls"] = lambda h, args, stdin: Result(0, said)
    environment.run(node)
    assert variables(host)["NEURON_RT_NUM_CORES"] == "64"
    assert bool(node.warnings) == warned


def test_fewer_neuron_cores_than_the_type_has_are_used_and_said(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.trn1.32xlarge")
    host.commands["neuron-ls"] = lambda h, args, stdin: Result(0, json.dumps([{"nc_count": 2}] * 15))
    environment.run(node)
    assert variables(host)["NEURON_RT_NUM_CORES"] == "30"
    assert "neuron-ls shows 30 NeuronCores, the catalogue has 32" in node.warnings["environment"][0]


def test_without_neuron_ls_the_catalogue_counts_and_it_is_said(tmp_path: Path) -> None:
    host, node = ready(tmp_path, "ml.trn1.32xlarge")
    host.missing.add("neuron-ls")
    environment.run(node)
    assert variables(host)["NEURON_RT_NUM_CORES"] == "32"
    assert "neuron-ls returned no data" in node.warnings["environment"][0]


class Verbs:
    """libibverbs and libefa with three devices: one of another maker, one that does not open, and one of EFA.

    Structures and constants are those of rdma-core's infiniband/verbs.h and infiniband/efadv.h.
    """

    def __init__(self, capabilities: int) -> None:
        self.opened: list[int] = []
        names = {7 << 40: b"mlx5_0", 8 << 40: b"gone", 9 << 40: b"rdmap0s27"}

        def listed(count: Any) -> list[int]:
            count._obj.value = len(names)
            return list(names)

        def opens(device: int) -> int | None:
            self.opened += [] if names[device] == b"gone" else [device]
            return None if names[device] == b"gone" else device + 1

        def closes(context: int) -> int:
            self.opened.remove(context - 1)
            return 0

        def query(context: int, attributes: Any, size: int) -> int:
            told = struct.pack("=QIIHHH2xII", 0, 1, 2, 3, 4, 5, capabilities, 6)
            assert size == len(told)
            ctypes.memmove(attributes, told, size)
            return 95 if names[context - 1] == b"mlx5_0" else 0

        self.libraries = {
            "libibverbs.so.1": SimpleNamespace(
                ibv_get_device_list=listed,
                ibv_get_device_name=lambda device: names[device],
                ibv_open_device=opens,
                ibv_close_device=closes,
            ),
            "libefa.so.1": SimpleNamespace(efadv_query_device=query),
        }

    def pointers(self) -> bool:
        """Whether all addresses are told to be addresses: ctypes makes an int of others, which is half of one."""
        verbs, address = self.libraries["libibverbs.so.1"], ctypes.c_void_p
        returned = (verbs.ibv_get_device_list, verbs.ibv_get_device_name, verbs.ibv_open_device)
        given = (verbs.ibv_get_device_name, verbs.ibv_open_device, verbs.ibv_close_device)
        asks = self.libraries["libefa.so.1"].efadv_query_device.argtypes
        return (
            [one.restype for one in returned] == [ctypes.POINTER(address), ctypes.c_char_p, address]
            and all(one.argtypes == [address] for one in given)
            and (asks[0], asks[1]._type_.__name__, asks[2]) == (address, "DeviceAttributes", ctypes.c_uint32)
        )

    def load(self, name: str, *, use_errno: bool) -> SimpleNamespace:
        assert use_errno
        return self.libraries[name]


@pytest.mark.parametrize(("capabilities", "read"), [(0b1, True), (0b110, False), (0b111, True)])
def test_every_efa_device_is_asked_whether_it_has_rdma_read_and_closed(
    capabilities: int, read: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verbs = Verbs(capabilities)
    monkeypatch.setattr(ctypes, "CDLL", verbs.load)
    runpy.run_module("hyperpod_node.network.efa_capabilities", run_name="__main__")
    assert json.loads(capsys.readouterr().out) == {"devices": [{"name": "rdmap0s27", "rdma_read": read}]}
    assert verbs.opened == []
    assert verbs.pointers()


def test_a_node_without_efas_libraries_says_which_one_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str, **_: bool) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("hyperpod_node.network.efa_capabilities", run_name="__main__")
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "cannot ask: libibverbs.so.1: cannot open shared object file\n")
