import dataclasses
import gzip
import json
from functools import cache
from importlib import resources
from typing import Any

import pytest

from components.catalogue.accelerators import (
    ACCELERATORS,
    CATALOGUE,
    EFA_RESOURCE,
    InstanceType,
    UnknownInstanceType,
    from_name,
    lookup,
)
from tests.rows import each

KINDS = list(CATALOGUE.values())


@cache
def cluster_instance_types() -> frozenset[str]:
    # botocore's loader would take a second to build the whole SageMaker service.
    path = next(p for p in resources.files("botocore.data.sagemaker").iterdir() if p.name.startswith("20"))
    packed = path / "service-2.json.gz"
    return frozenset(json.loads(gzip.decompress(packed.read_bytes()))["shapes"]["ClusterInstanceType"]["enum"])


@cache
def described() -> dict[str, Any]:
    packed = resources.files("moto.ec2.resources") / "instance_types.json.gz"
    types: dict[str, Any] = json.loads(gzip.decompress(packed.read_bytes()))
    return types


def known_to_ec2() -> list[InstanceType]:
    return [kind for kind in KINDS if kind.name.removeprefix("ml.") in described()]


@each(CATALOGUE)
def test_a_row_is_marked_hyperpod_exactly_where_sagemaker_accepts_it(kind: InstanceType) -> None:
    assert kind.hyperpod == (kind.name in cluster_instance_types())


def test_every_type_that_sagemaker_accepts_has_a_row() -> None:
    missing = sorted(cluster_instance_types() - set(CATALOGUE))
    assert not missing, f"this botocore has types without a row in instance_types.csv: {', '.join(missing)}"


def test_the_only_row_that_hyperpod_refuses_is_the_small_trn1() -> None:
    assert [kind.name for kind in KINDS if not kind.hyperpod] == ["ml.trn1.2xlarge"]


@each(CATALOGUE)
def test_an_accelerated_row_has_devices_with_memory_and_a_model_and_a_cpu_row_has_none(kind: InstanceType) -> None:
    has = (kind.accelerators > 0, kind.accelerator_memory_gib > 0, bool(kind.accelerator_model))
    assert has == (bool(kind.accelerator),) * 3
    assert (kind.neuron_cores > 0) == (kind.accelerator == "trainium")
    assert kind.accelerator in ("", *ACCELERATORS)


@each(CATALOGUE)
def test_every_price_names_its_source_and_basis(kind: InstanceType) -> None:
    assert (kind.hourly_usd is None) == (kind.price_basis is None) == (not kind.price_source)
    assert kind.price_basis in ("hyperpod", "ec2", "capacity-block", None)
    assert kind.specs_source
    assert kind.hourly_usd is None or kind.hourly_usd > 0


def test_counts_memory_and_disks_equal_what_ec2_describes() -> None:
    wrong = []
    for kind in known_to_ec2():
        info = described()[kind.name.removeprefix("ml.")]
        disks = (info.get("InstanceStorageInfo") or {}).get("Disks", [{"Count": 0, "SizeInGB": 0}])[0]
        seen = {
            "vcpus": info["VCpuInfo"]["DefaultVCpus"],
            "threads_per_core": info["VCpuInfo"]["DefaultThreadsPerCore"],
            "architecture": info["ProcessorInfo"]["SupportedArchitectures"][0],
            "memory_gib": info["MemoryInfo"]["SizeInMiB"] // 1024,
            "efa_interfaces": (info["NetworkInfo"].get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0),
            "nvme_disks": disks["Count"],
            "nvme_gb_each": disks["SizeInGB"],
        }
        for devices in (
            (info.get("GpuInfo") or {}).get("Gpus", []),
            (info.get("NeuronInfo") or {}).get("NeuronDevices", []),
        ):
            for device in devices:
                seen |= {"accelerators": device["Count"], "accelerator_model": device["Name"]}
                if device["Name"] != "Trainium2":
                    seen["accelerator_memory_gib"] = device["MemoryInfo"]["SizeInMiB"] // 1024
        wrong += [(kind.name, key) for key, value in seen.items() if getattr(kind, key) != value]
    assert wrong == []


def test_only_the_grace_blackwell_row_is_not_checked_against_ec2() -> None:
    assert {kind.name for kind in KINDS} - {kind.name for kind in known_to_ec2()} == {"ml.p6e-gb200.36xlarge"}


@pytest.mark.parametrize(
    ("name", "cores"),
    [
        ("ml.trn1.32xlarge", 32),
        ("ml.trn1.2xlarge", 2),
        ("ml.trn2.48xlarge", 64),
        ("ml.trn2.3xlarge", 4),
        ("ml.p5.48xlarge", 0),
    ],
)
def test_neuron_cores_are_the_logical_ones_of_a_node(name: str, cores: int) -> None:
    assert lookup(name).neuron_cores == cores


@pytest.mark.parametrize(
    ("name", "transport"),
    [
        ("ml.p5.48xlarge", "efa-rdma"),
        ("ml.p4d.24xlarge", "efa-rdma"),
        ("ml.g5.48xlarge", "efa-sendrecv"),
        ("ml.g5.16xlarge", "tcp"),
        ("ml.trn1.32xlarge", "efa-rdma"),
        ("ml.trn1.2xlarge", "tcp"),
        ("ml.g6e.48xlarge", "efa-rdma"),
        ("ml.m5.2xlarge", "tcp"),
        ("ml.g4dn.12xlarge", "efa-sendrecv"),
        ("ml.p7.48xlarge", "tcp"),
    ],
)
def test_transport_is_the_fastest_that_the_catalogue_is_sure_of(name: str, transport: str) -> None:
    assert lookup(name).transport == transport


@each(CATALOGUE)
def test_rdma_read_is_claimed_only_with_an_interface_and_never_on_g5(kind: InstanceType) -> None:
    assert not (kind.rdma_read and (kind.efa == "no" or kind.name.startswith("ml.g5.")))
    assert (kind.efa == "no") == (kind.efa_interfaces == 0)


@pytest.mark.parametrize(
    ("name", "interfaces"),
    [
        ("ml.p6-b300.48xlarge", 16),
        ("ml.p5.48xlarge", 8),
        ("ml.p5en.48xlarge", 8),
        ("ml.trn1.32xlarge", 2),
        ("ml.g6e.24xlarge", 2),
        ("ml.p5.4xlarge", 1),
        ("ml.g6.8xlarge", 1),
        ("ml.m7i.48xlarge", 1),
        ("ml.c8g.48xlarge", 1),
        # Nitro v3, the family that AWS leaves out, and no EFA at all.
        ("ml.c5n.18xlarge", 0),
        ("ml.i3en.24xlarge", 0),
        ("ml.g4dn.16xlarge", 0),
        ("ml.p4d.24xlarge", 0),
        ("ml.g5.48xlarge", 0),
        ("ml.trn2.48xlarge", 0),
        ("ml.m5.2xlarge", 0),
    ],
)
def test_a_lustre_client_gets_as_many_efa_interfaces_as_aws_documents(name: str, interfaces: int) -> None:
    assert lookup(name).lustre_efa_interfaces == interfaces


def test_efa_is_uncertain_only_on_g5_below_the_largest() -> None:
    assert {kind.name for kind in KINDS if kind.efa == "maybe"} == {f"ml.g5.{size}xlarge" for size in (8, 12, 16, 24)}


@pytest.mark.parametrize(
    ("name", "gigabits"),
    [("ml.p4d.24xlarge", 400), ("ml.p5.48xlarge", 3200), ("ml.trn1.32xlarge", 800), ("ml.g5.16xlarge", 25)],
)
def test_the_wire_is_all_cards_together(name: str, gigabits: float) -> None:
    assert lookup(name).network_gbps == gigabits


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("ml.p5.48large", "ml.p5.48xlarge"), ("p4d.24xlarge", "ml.p4d.24xlarge"), ("ml.trn1.32xl", "ml.trn1.32xlarge")],
)
def test_an_unknown_type_is_answered_with_the_nearest_ones(typo: str, meant: str) -> None:
    with pytest.raises(UnknownInstanceType, match=f'"{typo}"; did you mean .*{meant}'):
        lookup(typo)


def test_a_name_near_to_nothing_is_answered_with_the_form_of_names() -> None:
    with pytest.raises(ValueError, match=r"types are written as ml\.p5\.48xlarge"):
        lookup("!")


@pytest.mark.parametrize(
    ("name", "accelerator", "architecture"),
    [
        ("ml.p7.48xlarge", "gpu", "x86_64"),
        ("ml.p6-b400.48xlarge", "gpu", "x86_64"),
        ("ml.g8e.2xlarge", "gpu", "x86_64"),
        ("ml.trn3.48xlarge", "trainium", "x86_64"),
        ("ml.m9gd.metal-48xl", "", "arm64"),
        ("ml.i8ge.large", "", "arm64"),
        ("ml.c9i.medium", "", "x86_64"),
    ],
)
def test_of_a_newer_type_only_what_its_name_tells_is_known(name: str, accelerator: str, architecture: str) -> None:
    """Amazon EC2 Instance Types Guide, "Instance type naming conventions"."""
    row = lookup(name)
    assert (row.accelerator, row.architecture, row.catalogued) == (accelerator, architecture, False)
    assert (row.hourly_usd, row.price_basis, row.efa, row.accelerators, row.nvme_disks) == (None, None, "maybe", 0, 0)


@each(CATALOGUE)
def test_naming_tells_of_a_row_what_the_row_says(kind: InstanceType) -> None:
    guessed = from_name(kind.name)
    assert guessed.accelerator == kind.accelerator
    # Grace processors are Nvidia's, and no letter of a name stands for them.
    assert guessed.architecture == kind.architecture or kind.accelerator_model == "GB200"


@pytest.mark.parametrize("name", ["gpu", "trainium"])
def test_an_accelerators_default_worker_is_of_its_kind_and_has_rdma(name: str) -> None:
    row = ACCELERATORS[name]
    worker = lookup(row.default_worker_type)
    assert (row.name, worker.accelerator, worker.transport, worker.hyperpod) == (name, name, "efa-rdma", True)


def test_resource_names_are_those_of_the_device_plugins() -> None:
    gpu, trainium = ACCELERATORS["gpu"], ACCELERATORS["trainium"]
    assert (gpu.kubernetes_resource, trainium.kubernetes_resource) == ("nvidia.com/gpu", "aws.amazon.com/neuron")
    assert EFA_RESOURCE == "vpc.amazonaws.com/efa"
    assert (gpu.slurm_gres, trainium.slurm_gres) == ("gpu", "neuron")


def test_the_tables_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOGUE["ml.x"] = KINDS[0]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        KINDS[0].vcpus = 1  # type: ignore[misc]
