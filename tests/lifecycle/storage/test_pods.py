"""Nodes of EKS: containerd's and kubelet's data on the big disk, memory that can be pinned, a Lustre client."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node.host import units
from hyperpod_node.host.errors import Skip, StepError
from hyperpod_node.host.host import Result
from hyperpod_node.storage import lustre_client, pod_disk

from tests.lifecycle.rig import FakeHost, World
from tests.lifecycle.storage.pods_rig import copy, eks_node, mount, mount_systemctl


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return eks_node(World(tmp_path))


def verbs(host: FakeHost) -> list[tuple[str, ...]]:
    """What was asked of systemd, without questions."""
    return [call[1:] for call in host.calls if call[0] == "systemctl" and call[1] != "is-active"]


def test_both_folders_are_bound_to_the_data_volume_with_what_was_in_them(host: FakeHost) -> None:
    assert pod_disk.run(host.node()) == "containerd and kubelet on /opt/sagemaker"
    for unit, folder in pod_disk.SERVICES:
        assert (host.path(f"/opt/sagemaker/{unit}") / "data").read_text() == folder
        text = host.text(f"/etc/systemd/system/{units.mount(folder)}")
        assert f"What=/opt/sagemaker/{unit}\nWhere={folder}\n" in text
        assert f"\nRequiredBy={unit}.service\n" in text
        assert not host.path(f"/opt/dlami/nvme/{unit}").exists()


def test_nothing_goes_to_instance_store_which_a_reboot_may_empty(host: FakeHost) -> None:
    """SageMaker Developer Guide, "Using the Amazon EBS CSI driver on SageMaker HyperPod EKS clusters", considerations:
    the image mounts a volume group of the NVMe disks at /opt/sagemaker."""
    # As lsblk shows it: the logical volume, which has no model, and its disks.
    host.commands["lsblk"] = lambda h, args, stdin: Result(0, "\nAmazon EC2 NVMe Instance Storage\n" * 2)
    host.active |= {"containerd", "kubelet"}
    with pytest.raises(StepError, match="/opt/sagemaker is instance store"):
        pod_disk.run(host.node())
    assert not host.path("/opt/sagemaker/kubelet").exists()
    assert "LimitMEMLOCK=infinity" in host.text("/etc/systemd/system/containerd.service.d/90-hyperpod.conf")
    assert ("restart", "containerd") in verbs(host)


def test_after_a_reboot_nothing_is_bound_before_the_volume_is_mounted(host: FakeHost) -> None:
    pod_disk.run(host.node())
    wait = host.text("/etc/systemd/system/hyperpod-data-volume.service")
    assert "until mountpoint -q /opt/sagemaker; do" in wait
    assert "\nAfter=opt-sagemaker.mount dlami-nvme.service\n" in wait
    for unit, folder in pod_disk.SERVICES:
        text = host.text(f"/etc/systemd/system/{units.mount(folder)}")
        # Else systemd puts a mount before local-fs.target, and that before the service that it waits for.
        assert "\nDefaultDependencies=no\n" in text
        assert "\nRequires=hyperpod-data-volume.service\nAfter=hyperpod-data-volume.service\n" in text
        assert f"\nBefore={unit}.service umount.target\n" in text


def test_what_an_older_image_left_on_the_volume_is_not_for_this_one(host: FakeHost) -> None:
    left = host.path("/opt/sagemaker/kubelet/kubeconfig")
    left.parent.mkdir(parents=True)
    left.write_text("of the image before an update of the cluster's software")
    pod_disk.run(host.node())
    assert not left.exists()
    assert (left.parent / "data").exists()


def test_no_configuration_of_containerd_or_kubelet_is_touched(host: FakeHost) -> None:
    pod_disk.run(host.node())
    assert not [path for path in host.changes if path.startswith(("/etc/containerd", "/etc/eks", "/etc/kubernetes"))]


def test_what_runs_is_stopped_for_the_move_and_started_again_in_order(host: FakeHost) -> None:
    host.active |= {"containerd", "kubelet"}
    pod_disk.run(host.node())
    asked = [call for call in verbs(host) if call[0] in ("stop", "restart")]
    assert asked == [("stop", "kubelet"), ("stop", "containerd"), ("restart", "containerd"), ("restart", "kubelet")]


def test_what_does_not_run_yet_is_not_started(host: FakeHost) -> None:
    pod_disk.run(host.node())
    assert not [call for call in verbs(host) if call[0] in ("stop", "restart")]


def test_a_second_run_changes_nothing_and_stops_nothing(host: FakeHost) -> None:
    pod_disk.run(host.node())
    host.active |= {"containerd", "kubelet"}
    before = host.tree()
    host.calls.clear()
    assert pod_disk.run(host.node()) == "containerd and kubelet are on /opt/sagemaker"
    assert verbs(host) == []
    assert host.tree() == before


def test_a_copy_that_failed_starts_what_ran_and_is_made_again(host: FakeHost) -> None:
    host.active |= {"containerd", "kubelet"}
    host.fail["cp"] = Result(1, "", "No space left on device")
    with pytest.raises(StepError, match="No space left"):
        pod_disk.run(host.node())
    assert host.active >= {"containerd", "kubelet"}
    del host.fail["cp"]
    assert pod_disk.run(host.node()) == "containerd and kubelet on /opt/sagemaker"


def test_without_a_data_volume_both_stay_on_the_root_volume_and_never_go_to_instance_store(tmp_path: Path) -> None:
    node = World(tmp_path).node("worker")
    mount(node, "/opt/dlami/nvme")
    node.commands |= {"systemctl": mount_systemctl}
    with pytest.raises(
        StepError, match=r"/opt/sagemaker was not mounted within 60 s: containerd and kubelet stay on the root"
    ):
        pod_disk.run(node.node())
    assert not node.path("/opt/dlami/nvme/kubelet").exists()


def test_a_data_volume_that_attaches_late_is_waited_for(host: FakeHost) -> None:
    table = host.path("/proc/self/mounts")
    whole, began = table.read_text(), host.clock
    table.write_text(whole.replace("/opt/sagemaker", "/elsewhere"))

    def later() -> None:
        if host.clock > began + 20:
            table.write_text(whole)
            host.on_sleep = lambda: None

    host.on_sleep = later
    assert pod_disk.run(host.node()) == "containerd and kubelet on /opt/sagemaker"


def test_running_pods_are_not_pulled_from_under_their_feet(host: FakeHost) -> None:
    mount(host, "/var/lib/kubelet/pods/1/volumes/token")
    host.active |= {"containerd", "kubelet"}
    with pytest.raises(StepError, match="containers run already"):
        pod_disk.run(host.node())
    assert host.active >= {"containerd", "kubelet"}


def test_containers_may_pin_memory(host: FakeHost) -> None:
    pod_disk.run(host.node())
    assert "LimitMEMLOCK=infinity" in host.text(pod_disk.LIMITS_FILE)
    assert ("daemon-reload",) in verbs(host)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeHost:
    """A node of Slurm with its data volume, and Docker, which runs."""
    found = World(tmp_path).node("worker")
    mount(found, "/opt/sagemaker")
    for unit, folder in pod_disk.DOCKER:
        for path in (found.path(f"/lib/systemd/system/{unit}.service"), found.path(folder) / "data"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(folder)
    found.active |= {"containerd", "docker"}
    found.commands |= {"cp": copy, "systemctl": _without_socket}
    return found


def _without_socket(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    """systemctl where Docker's package has no socket: it fails for the unit that it does not know."""
    if "docker.socket" in args:
        return Result(5, "", "Failed to stop docker.socket: Unit docker.socket not loaded.")
    return mount_systemctl(host, args, stdin)


def test_on_slurm_images_and_builds_of_docker_do_not_fill_the_root_volume(slurm: FakeHost) -> None:
    assert pod_disk.run_docker(slurm.node()) == "containerd and docker on /opt/sagemaker"
    assert slurm.text("/opt/sagemaker/docker/data") == "/var/lib/docker"
    # What asks for Docker while its folder is copied does not start it.
    assert [call for call in verbs(slurm) if call[0] in ("stop", "restart")] == [
        ("stop", "docker.socket"), ("stop", "docker"), ("stop", "containerd"),
        ("restart", "containerd"), ("restart", "docker"),
    ]  # fmt: skip
    late = slurm.text("/etc/systemd/system/hyperpod-late-data-volume.service")
    assert "systemctl --no-block start containerd docker'" in late
    assert "kubelet" not in late
    assert not slurm.path(pod_disk.LIMITS_FILE).exists()
    slurm.calls.clear()
    assert pod_disk.run_docker(slurm.node()) == "containerd and docker are on /opt/sagemaker"
    assert verbs(slurm) == []


def test_a_node_whose_containers_run_already_keeps_them_and_an_image_without_docker_needs_nothing(
    slurm: FakeHost,
) -> None:
    mount(slurm, "/var/lib/docker/overlay2/1/merged")
    node = slurm.node()
    node.enter("docker-disk")
    assert pod_disk.run_docker(node) == "not moved"
    (said,) = node.warnings["docker-disk"]
    assert said.startswith("containers run already (/var/lib/docker/overlay2/1/merged is mounted)")
    assert verbs(slurm) == []
    for unit, _ in pod_disk.DOCKER:
        slurm.path(f"/lib/systemd/system/{unit}.service").unlink()
    with pytest.raises(Skip, match="no Docker"):
        pod_disk.run_docker(slurm.node())


def test_a_lustre_module_that_is_there_is_loaded(host: FakeHost) -> None:
    assert lustre_client.run(host.node()) == "loaded now"
    host.path("/sys/module/lustre").mkdir(parents=True)
    assert lustre_client.run(host.node()) == "loaded"


def test_an_image_without_a_client_is_said_and_what_it_means(host: FakeHost) -> None:
    host.commands["modprobe"] = lambda h, args, stdin: Result(1, "", "modprobe: FATAL: Module lustre not found")
    with pytest.raises(StepError, match=r"Module lustre not found\): its pods cannot mount /fsx"):
        lustre_client.run(host.node())
