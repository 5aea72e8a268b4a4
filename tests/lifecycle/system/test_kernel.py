"""The kernel's settings and limits, and that it stays the one that has a Lustre client."""

import re
import subprocess
from pathlib import Path

import pytest
from hyperpod_node.facts.model import Node
from hyperpod_node.network import pod_metadata_guard
from hyperpod_node.system import kernel

from tests.lifecycle.rig import FakeHost


def test_kernel_settings_are_kept_for_reboots_and_set_now(host: FakeHost, node: Node) -> None:
    detail = kernel.run(node)
    assert "net.core.rmem_max = 536870912" in host.text("/etc/sysctl.d/90-hyperpod.conf")
    assert "* hard memlock unlimited" in host.text("/etc/security/limits.d/90-hyperpod.conf")
    assert host.text("/proc/sys/net/core/rmem_max") == "536870912\n"
    assert host.text("/proc/sys/net/ipv4/tcp_rmem") == "4096 87380 536870912\n"
    assert "this kernel has no net.core.wmem_max" in detail


def test_no_kernel_comes_by_itself_that_has_no_lustre_client(host: FakeHost, node: Node) -> None:
    """aws-parallelcluster, issue 2095: after the next reboot the file system could not be mounted."""
    kernel.run(node)
    assert not host.path("/etc/apt").exists(), "no apt here"
    host.path("/etc/apt/apt.conf.d").mkdir(parents=True)
    kernel.run(node)
    text = host.text("/etc/apt/apt.conf.d/52hyperpod")
    assert "Unattended-Upgrade::Package-Blacklist {" in text
    # As unattended-upgrade does it: re.match with each of them.
    patterns = re.findall(r'^ +"(.*)";$', text, re.M)
    kept = (
        *("linux-aws", "linux-image-6.8.0-1031-aws", "linux-headers-aws", "lustre-client-modules-aws"),
        *("nvidia-driver-570-server-open", "libnvidia-compute-570-server", "nvidia-container-toolkit", "cuda-12-8"),
        *("libcuda1-570", "libnccl2", "datacenter-gpu-manager-4-core", "aws-neuronx-dkms", "efa", "efa-nv-peermem"),
        *("libfabric1-aws", "rdma-core", "ibverbs-providers", "libibverbs1", "openmpi40-aws", "slurm-smd-slurmd"),
        *("slurmctld", "libslurm41", "munge", "libmunge2", "docker-ce", "docker.io", "containerd.io", "runc", "enroot"),
    )
    taken = ("openssl", "linux-libc-dev", "libc6", "openssh-server", "sudo", "curl", "python3.10")
    assert [name for name in (*kept, *taken) if any(re.match(one, name) for one in patterns)] == list(kept)


def test_nothing_that_runs_jobs_is_restarted_for_a_new_library(host: FakeHost, node: Node) -> None:
    """As needrestart does it: Perl evaluates the file after its own settings, and a match with 0 is only named."""
    kernel.run(node)
    assert not host.path("/etc/needrestart").exists(), "no needrestart here"
    host.path("/etc/needrestart/conf.d").mkdir(parents=True)
    kernel.run(node)
    file = host.path("/etc/needrestart/conf.d/52-hyperpod.conf")
    names = "slurmd slurmctld slurmdbd munge docker containerd kubelet mariadb dbus nvidia-persistenced"
    kept = [f"{name}.service" for name in names.split()]
    taken = ("ssh.service", "cron.service", "chrony.service")
    program = r"""our %nrconf = (override_rc => {qr(^dbus) => 0}); do shift; die $@ if $@;
        for my $rc (@ARGV) { for my $re (keys %{$nrconf{override_rc}}) {
            print "$rc\n" if $rc =~ /$re/ && !$nrconf{override_rc}->{$re} } }"""
    done = subprocess.run(["perl", "-e", program, str(file), *kept, *taken], capture_output=True, text=True, check=True)
    assert done.stdout.split() == kept


def test_a_jobs_shared_memory_stays_when_its_user_logs_out(host: FakeHost, node: Node) -> None:
    host.path("/lib/systemd/system").mkdir(parents=True, exist_ok=True)
    host.path("/lib/systemd/system/systemd-logind.service").write_text("[Service]\n")
    kernel.run(node)
    assert host.text("/etc/systemd/logind.conf.d/90-hyperpod.conf").endswith("\n[Login]\nRemoveIPC=no\n")
    told = ("systemctl", "kill", "--signal=HUP", "systemd-logind")
    assert host.calls.count(told) == 1
    kernel.run(node)
    assert host.calls.count(told) == 1, "it has read it already"


def test_a_kernel_that_refuses_is_a_warning(host: FakeHost, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", refuse)
    kernel.run(node)
    assert "the kernel refused net.core.rmem_max, net.ipv4.tcp_rmem" in node.warnings["step"]


def test_a_small_mtu_is_a_warning(host: FakeHost, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "mtu", lambda interface: 1500)
    kernel.run(node)
    assert "ens6 has an MTU of 1500, not 9001" in node.warnings["step"][0]


def test_a_node_without_a_default_route_says_so(host: FakeHost, node: Node) -> None:
    host.path("/proc/net/route").unlink()
    assert kernel.run(node).startswith("no default route; this kernel has no ")
    assert node.warnings["step"] == ["there is no default route"]


def test_pods_are_kept_from_metadata_before_they_start(host: FakeHost, node: Node) -> None:
    assert pod_metadata_guard.run(node) == "not from pods"
    text = host.text(f"/etc/systemd/system/{pod_metadata_guard.UNIT}")
    assert "Before=sysinit.target network-pre.target" in text
    assert host.ran("systemctl", "start", pod_metadata_guard.UNIT)
