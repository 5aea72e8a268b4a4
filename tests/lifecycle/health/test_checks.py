"""Health checks: what each finds bad, what it lets pass, and that what cannot be asked is never bad."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hyperpod_node.health import checks, dcgm, devices, gpu, own, system, xid
from hyperpod_node.health.model import Finding, Subject
from hyperpod_node.health.run import prometheus
from hyperpod_node.host import kernel_queries
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Reply, Result
from hyperpod_node.metrics.node import LNET

from tests.dcgm import diagnosis
from tests.lifecycle.health.rig import NO_LINK, gpus, put, subject, well
from tests.lifecycle.rig import FakeHost, World


def found(host: FakeHost, **more: object) -> dict[str, Finding]:
    return {one.check: one.finding for one in checks.run(subject(host, **more))}


def bad(host: FakeHost) -> dict[str, str]:
    return {name: one.detail for name, one in found(host).items() if one.status == "bad"}


def test_a_whole_node_passes_every_check(host: FakeHost) -> None:
    well(host)
    details = {
        "accelerators": "8 devices", "efa": "32 devices", "ecc": "", "xid": "", "nvlink": "2 links",
        "lustre": "1 mounts", "disk": "", "clock": "+0 s", "metadata": "", "affinity": "8 GPUs", "pcie": "16 lanes",
    }  # fmt: skip
    assert found(host) == {name: Finding("ok", detail) for name, detail in details.items()}
    # nvidia-smi holds a GPU for a moment, so it is asked once for all checks.
    asked = sorted(call for call in host.calls if call[0] == "nvidia-smi")
    assert asked == [("nvidia-smi", "-q", "-x"), ("nvidia-smi", "nvlink", "-s")]


def test_a_missing_tool_or_file_is_unknown_and_never_bad(host: FakeHost) -> None:
    well(host)
    host.missing.add("nvidia-smi")
    for name in ("/dev/kmsg", "/proc/driver/nvidia/gpus/0000:00:00.0/x"):
        host.path(name).unlink(missing_ok=True)
    put(host, "/sys/bus/pci/devices/0000:00:00.0/numa_node", "-1\n")
    host.imds = {"mode": "down"}
    now = found(host)
    assert {name: one.detail for name, one in now.items() if one.status == "unknown"} == {
        **dict.fromkeys(("ecc", "nvlink", "pcie"), "command not found: nvidia-smi"),
        "xid": "the kernel's log cannot be read",
        "affinity": "the kernel does not say on which NUMA node the devices are",
        "clock": "instance metadata did not answer at http://169.254.169.254/latest/api/token: timed out",
    }
    assert "bad" not in [one.status for one in now.values()]


def test_a_lost_accelerator_and_lost_efa_devices_are_bad(host: FakeHost) -> None:
    well(host)
    host.path("/dev/nvidia3").unlink()
    put(host, "/sys/class/infiniband/rdmap0s27/ports/1/state", "1: DOWN\n")
    put(host, "/sys/class/infiniband/rdmap1s27/device/vendor", "0x15b3\n")
    assert bad(host) == {
        "accelerators": "7 of 8 devices /dev/nvidia*",
        "efa": "30 of 32 EFA devices, port down: rdmap0s27",
    }


def test_a_gpu_without_an_efa_device_nearby_is_bad(host: FakeHost) -> None:
    well(host)
    put(host, "/sys/bus/pci/devices/0000:05:00.0/numa_node", "2\n")
    assert bad(host) == {"affinity": "no EFA device on the NUMA node of GPU 0000:05:00.0"}


@pytest.mark.parametrize(
    ("second", "links", "wrong"),
    [
        ({"failure": "Yes"}, "26 GB/s", {"ecc": "row remap failed on 0000:01:00.0"}),
        ({"sram": "Yes"}, "26 GB/s", {"ecc": "SRAM error threshold exceeded on 0000:01:00.0"}),
        ({"pending": "Yes"}, "26 GB/s", {}),
        ({"width": "8x"}, "26 GB/s", {"pcie": "0000:01:00.0 has 8 lanes, others 16"}),
        ({"state": "Completed", "status": "Failed"}, "26 GB/s", {"nvlink": "not in the NVLink fabric: 0000:01:00.0"}),
        ({}, "<inactive>", {"nvlink": "inactive: GPU 0 link 1"}),
    ],
)
def test_what_nvidia_smi_shows(host: FakeHost, second: dict[str, str], links: str, wrong: dict[str, str]) -> None:
    well(host)
    gpus(host, links, **second)
    assert bad(host) == wrong


@pytest.mark.parametrize(
    ("kind", "links", "finding"),
    [
        ("ml.p5.48xlarge", "26.562 GB/s", Finding("bad", "inactive: GPU 1, all links")),
        ("ml.p5.48xlarge", "", Finding("bad", "inactive: GPU 1, all links")),
        # Not connected by NVLink (EC2, "Accelerated computing instances").
        ("ml.g5.48xlarge", "", Finding("ok", "no links")),
    ],
)
def test_a_gpu_of_which_no_link_is_listed_has_none(tmp_path: Path, kind: str, links: str, finding: Finding) -> None:
    host = World(tmp_path, kind).node("worker")
    gpus(host, links, f"GPU 1: NVIDIA H100 (UUID: y)\n{NO_LINK}")
    assert gpu.nvlink(subject(host)) == finding
    # Nothing is known where it says nothing of any GPU.
    gpus(host, "", "No devices were found\n")
    with pytest.raises(StepError, match="shows no GPU: No devices were found"):
        gpu.nvlink(subject(host))


def test_trainium_memory_errors_that_cannot_be_corrected_are_bad(tmp_path: Path) -> None:
    host = World(tmp_path, "ml.trn1.32xlarge").node("worker")
    folder = "/sys/devices/virtual/neuron_device"
    assert gpu.ecc(subject(host)) == Finding("unknown", f"no error counters below {folder}")
    put(host, f"{folder}/neuron0/stats/hardware/mem_ecc_uncorrected", "0\n")
    assert gpu.ecc(subject(host)) == Finding("ok", "1 counters are 0")
    put(host, f"{folder}/neuron3/stats/hardware/sram_ecc_uncorrected", "2\n")
    assert gpu.ecc(subject(host)) == Finding("bad", "2 sram_ecc_uncorrected on neuron3")
    assert devices.count_accelerators(subject(host)) == Finding("ok", "16 devices")


# XIDs

LOG = "NVRM: Xid (PCI:0000:53:00): {}, pid='<unknown>', name=<unknown>, {}"


def log(host: FakeHost, *entries: tuple[int, str]) -> None:
    lines = (f"4,{7 * n},{n}000,-;{LOG.format(*entry)}\n SUBSYSTEM=pci" for n, entry in enumerate(entries, 1))
    put(host, "/dev/kmsg", "\n".join(lines) + "\n")


# What driver 580.159.04 wrote when programs read where they must not, hit a trap and used a misaligned address.
FAULTY_PROGRAMS = """\
3,360,37232872,-;NVRM: Xid (PCI:0000:00:06): 31, pid=555, name=fault, channel 0x0000000a, intr 00000000. MMU Fault: \
ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x7fff_f0000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE
3,361,37569522,-;NVRM: Xid (PCI:0000:00:06): 43, pid=561, name=fault, channel 0x0000000a
3,362,38488617,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address
3,363,38490360,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics Exception: ESR 0x519730=0x500000f 0x519734=0x0
"""


def test_a_program_of_a_persons_that_is_wrong_is_no_fault_of_the_node(host: FakeHost) -> None:
    well(host)
    put(host, "/dev/kmsg", FAULTY_PROGRAMS)
    memory: dict[str, object] = {}
    assert found(host, memory=memory)["xid"] == Finding("ok", "4 XIDs that need no action of ours")
    kept = memory["xids"]
    assert isinstance(kept, list)
    assert [(one["gpu"], one["code"]) for one in kept] == [("0000:00:06", code) for code in (31, 43, 13, 13)]


LINK_6 = "pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6"


# By NVIDIA's XID catalogue: reset or reboot ends it, a restart of the job or nothing does not.
@pytest.mark.parametrize(
    ("entry", "action"),
    [
        *(((code, ""), "RESET_GPU") for code in (46, 62, 64, 95, 109, 119, 120, 136, 140, 143, 155, 156, 158)),
        ((79, "GPU has fallen off the bus."), "RESTART_BM"),
        ((151, ""), "RESTART_VM"),
        ((48, "DBE"), "WORKFLOW_XID_48"),
        ((74, ""), "WORKFLOW_NVLINK_ERR"),
        ((149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08"), "WORKFLOW_NVLINK5_ERR"),
        ((149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 08"), ""),
        ((144, "SAW_MVB Non-fatal XC0 i0 Link -1 (0x00000021 0x00000001)"), ""),
        ((149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0)"), "WORKFLOW_NVLINK5_ERR"),
        # Reasons 100110 and 101000: ignore.
        ((149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x026001c6 0x00000000 0x0)"), ""),
        ((149, "NETIR_LINK_DOWN Fatal XC0 i0 Link 08 (0x02800011 0x00000000 0x0)"), ""),
        # Action 2 of RLW_RXPIPE, before and since R575, and without its bit.
        ((145, "RLW_RXPIPE Nonfatal XC0 i0 Link 08 (0x000004c2 0x00000002)"), "WORKFLOW_NVLINK5_ERR"),
        ((145, "RLW_RXPIPE Nonfatal XC0 i0 Link 08 (0x00000086 0x00000004)"), "WORKFLOW_NVLINK5_ERR"),
        ((145, "RLW_RXPIPE Nonfatal XC0 i0 Link 08 (0x00000006 0x00000004)"), ""),
        ((145, "RLW_RXPIPE Nonfatal XC0 i0 Link 08 (0x00000086 0x00000008)"), ""),
        ((74, f"{LINK_6}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"), "WORKFLOW_NVLINK_ERR"),
        ((74, f"{LINK_6}(0x40800001, 0x0, 0x0, 0x0, 0x24900000, 0x0, 0x0)"), ""),
        ((74, f"{LINK_6}(0x1, 0x0, 0x1, 0x0, 0x0, 0x0, 0x0)"), "WORKFLOW_NVLINK_ERR"),
        ((74, f"{LINK_6}(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"), "WORKFLOW_NVLINK_ERR"),
        ((159, "CHI Non-Data Error"), "CHECK_UVM"),
        ((154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"), "GPU Reset Required"),
        ((154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"), ""),
        *(((code, ""), "") for code in (13, 31, 43, 45, 63, 92, 94, 171, 999)),
    ],
)
def test_an_xid_ends_it_where_nvidia_asks_for_a_reset_or_a_reboot(entry: tuple[int, str], action: str) -> None:
    assert xid.needs_action(*entry) == action


def test_xids_are_remembered_though_the_kernels_ring_forgets(host: FakeHost) -> None:
    memory: dict[str, object] = {}
    one = subject(host, memory=memory)
    log(host, (13, "Graphics Exception"), (79, "GPU has fallen off the bus."))
    assert xid.check(one) == Finding("bad", "XID 79 on 0000:53:00 (RESTART_BM)")
    put(host, "/dev/kmsg", "6,90,9000,-;eth0: link up\n")
    assert xid.check(subject(host, memory=json.loads(json.dumps(memory)))).status == "bad"  # type: ignore[union-attr]


def test_xids_that_a_person_has_accepted_do_not_count_again(host: FakeHost) -> None:
    one = subject(host)
    log(host, (79, "GPU has fallen off the bus."))
    assert xid.check(one).status == "bad"  # type: ignore[union-attr]
    xid.accept(one.memory)
    assert xid.check(one) == Finding("ok", "")
    log(host, (79, ""), (79, "once more"))
    assert xid.check(one).status == "bad"  # type: ignore[union-attr]


def test_a_later_recovery_action_takes_back_an_earlier_one(host: FakeHost) -> None:
    log(host, (154, "changed from 0x0 (None) to 0x1 (GPU Reset Required)"), (13, "Graphics Exception"))
    assert xid.check(subject(host)) == Finding("bad", "XID 154 on 0000:53:00 (GPU Reset Required)")
    log(host, (154, "changed from 0x0 (None) to 0x1 (GPU Reset Required)"), (154, "changed from 0x1 (x) to 0x0 (None)"))
    assert xid.check(subject(host)).status == "ok"  # type: ignore[union-attr]


def test_a_job_that_fails_all_day_does_not_hide_a_lost_gpu(host: FakeHost) -> None:
    log(host, (79, "GPU has fallen off the bus."), *([(31, "MMU Fault")] * 500))
    one = subject(host)
    assert xid.check(one) == Finding("bad", "XID 79 on 0000:53:00 (RESTART_BM)")
    assert len(one.memory["xids"]) == xid.MOST_KEPT


# File systems and the clock


def test_a_shared_file_system_that_is_gone_or_does_not_answer_is_bad(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    well(host)
    monkeypatch.setattr(host, "stuck", lambda point, seconds: f"does not answer within {seconds:g} s")
    assert system.lustre(subject(host)) == Finding("bad", "/fsx does not answer within 5 s")
    put(host, "/proc/self/mounts", "overlay / overlay rw 0 0\n")
    assert system.lustre(subject(host)) == Finding("bad", "/fsx is not mounted")
    # Pods of EKS bring their own mounts.
    on_eks = Subject(host, host.node().identity.group)
    assert system.lustre(on_eks) == Finding("ok", "0 mounts")
    put(host, "/proc/self/mounts", "fs@tcp:/x /var/lib/kubelet/pods/1/fsx lustre rw 0 0\n")
    assert system.lustre(on_eks) == Finding("bad", "/var/lib/kubelet/pods/1/fsx does not answer within 5 s")


def test_a_client_of_eks_that_has_lost_efa_to_the_file_system_since_its_set_up_is_bad(host: FakeHost) -> None:
    group = replace(host.node().identity.group, lustre_efa_interfaces=2)
    done = {"name": "lnet", "result": "ok", "detail": "2 EFA interfaces", "warnings": []}
    put(host, "/var/log/hyperpod/summary.json", json.dumps({"steps": [done]}))
    up = "172.16.1.1@tcp up 1\n172.16.1.1@efa up 1\n"
    put(host, LNET, f"{up}172.16.1.2@efa1 up 1\n")
    assert system.setup(Subject(host, group)) == Finding("ok", "")
    put(host, LNET, f"{up}172.16.1.2@efa1 down 1\n")
    said = "lnet: 1 of 2 EFA interfaces are up: TCP has the rest"
    assert system.setup(Subject(host, group)) == Finding("bad", said)
    # A file system without EFA has no such step.
    put(host, "/var/log/hyperpod/summary.json", json.dumps({"steps": []}))
    assert system.setup(Subject(host, group)) == Finding("ok", "")


def test_a_probe_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_queries.stuck(tmp_path, 5) == ""
    assert kernel_queries.stuck(tmp_path / "gone", 5) == "No such file or directory"
    (tmp_path / "stat").write_text("#!/bin/sh\nexec sleep 5\n")
    (tmp_path / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    began = time.monotonic()
    assert kernel_queries.stuck(tmp_path, 0.2) == "does not answer within 0.2 s"
    assert time.monotonic() - began < 2


def test_a_disk_that_is_read_only_or_full_is_bad(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    put(
        host, "/proc/self/mounts", "/dev/a / ext4 ro,noatime 0 0\n/dev/b /scratch xfs rw 0 0\n/dev/c /mnt ext4 ro 0 0\n"
    )
    host.path("/scratch").mkdir()
    monkeypatch.setattr(system, "LEAST_FREE", 1.1)
    reason = "/ is read-only, /scratch has no space left, /scratch has no files left"
    assert system.disks(subject(host)) == Finding("bad", reason)


def test_a_clock_that_munge_would_not_believe_is_bad(host: FakeHost) -> None:
    host.skew = 30.0
    assert system.time(subject(host)).status == "ok"
    host.skew = 200.0
    assert system.time(subject(host)) == Finding("bad", "the clock is +200 s off the instance metadata's")


# DCGM

DIAGNOSIS = {"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "Inforom"}]}]}}


def test_dcgm_runs_on_idle_nodes_only_and_not_all_the_time(host: FakeHost) -> None:
    document = json.loads(json.dumps(DIAGNOSIS))
    document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"] = [{"gpu_id": "3", "status": "Fail"}]
    host.commands["dcgmi"] = lambda *_: Result(226, "text before\n" + json.dumps(document))
    assert gpu.dcgm(subject(host)) is None
    one = subject(host, idle=True)
    assert gpu.dcgm(one) == Finding("bad", "dcgmi diag -r 1 failed: Inforom")
    host.commands["dcgmi"] = lambda *_: Result(1, "", "cannot reach the host engine")
    assert gpu.dcgm(one) == Finding("bad", "dcgmi diag -r 1 failed: Inforom")
    host.clock += 2 * gpu.DCGM_EVERY
    assert checks.run(one)[-1].finding.status == "unknown"
    assert [call for call in host.calls if call[0] == "dcgmi"] == [("dcgmi", "diag", "-r", "1", "-j")] * 2


@pytest.mark.parametrize(
    ("given", "finding"),
    [
        # Error and severity by dcgm_errors.c: DCGM_FR_PERSISTENCE_MODE and DCGM_FR_ECC_PENDING, then each with one that
        # asks for more (DCGM_FR_ROW_REMAP_FAILURE, DCGM_FR_CORRUPT_INFOROM).
        ([(29, 5)], Finding("ok", "dcgmi diag -r 1 warns of: software")),
        ([(61, 1)], Finding("ok", "dcgmi diag -r 1 warns of: software")),
        ([(29, 5), (80, 6)], Finding("bad", "dcgmi diag -r 1 failed: software")),
        ([(61, 1), (9, 4)], Finding("bad", "dcgmi diag -r 1 failed: software")),
        ([(None, None)], Finding("bad", "dcgmi diag -r 1 failed: software")),
        # DCGM_FR_UNCORRECTABLE_ROW_REMAP and DCGM_FR_PENDING_ROW_REMAP, which NVIDIA lets new work begin with.
        ([(84, 6)], Finding("ok", "dcgmi diag -r 1 warns of: software")),
        ([(85, 6), (29, 5)], Finding("ok", "dcgmi diag -r 1 warns of: software")),
    ],
)
def test_what_dcgm_only_warns_of_takes_no_node_out(
    host: FakeHost, given: Sequence[tuple[int | None, int | None]], finding: Finding
) -> None:
    host.commands["dcgmi"] = lambda *_: Result(226, diagnosis(*given))
    assert gpu.dcgm(subject(host, idle=True)) == finding


def test_what_dcgm_prints_besides_does_not_hide_what_it_found() -> None:
    """On stderr, which Slurm and sessions mix in, and as its only answer (Diag.cpp, HelperDisplayFailureMessage)."""
    srun = "srun: error: ip-10-1-1-2: task 0: Exited with exit code 226\n"
    warns = Finding("ok", "dcgmi diag -r 2 warns of: software")
    assert dcgm.judge(2, f"srun: job 12 queued\n{diagnosis((29, 5))}\n{srun}") == warns
    assert dcgm.judge(3, diagnosis()) == Finding("ok", "dcgmi diag -r 3 gave 3 results")
    cannot = json.dumps({"DCGM Diagnostic": {"runtime_error": "Error: Diagnostic could not be\nrun while paused."}})
    said = "dcgmi diag -r 1 gave no results: Error: Diagnostic could not be run while paused."
    assert dcgm.judge(1, cannot) == Finding("unknown", said)
    assert dcgm.judge(1, srun) == Finding("unknown", f"dcgmi diag -r 1 gave no JSON: {srun.strip()}")
    assert dcgm.judge(1, "") == Finding("unknown", "dcgmi diag -r 1 gave no JSON: nothing")


# The run


def test_users_own_checks_have_the_last_word_on_their_reason(host: FakeHost) -> None:
    for name, text in {
        "fine": "echo all good",
        "broken": "echo 'disk 3 is loud'; echo more; exit 1",
        "odd": "exit 3",
    }.items():
        put(host, f"/opt/hyperpod/{own.FOLDER}/{name}", text)
        host.commands[name] = {
            "fine": lambda *_: Result(0, "all good\n"),
            "broken": lambda *_: Result(1, "disk 3\x1b is loud\nmore\n"),
            "odd": lambda *_: Result(3),
        }[name]
    ran = {name: check(subject(host)) for name, check in own.found(host).items()}
    assert ran == {
        "own-broken": Finding("bad", "disk 3  is loud"),
        "own-fine": Finding("ok", "all good"),
        "own-odd": Finding("unknown", "exit status 3"),
    }
    every = found(host)
    assert {name: every[name] for name in ran} == ran, "a run of all checks has them, too"


def test_a_check_that_hangs_or_has_a_defect_is_unknown(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(_: Subject) -> Finding:
        raise KeyError("x")

    def hang(_: Subject) -> Finding:
        time.sleep(30)
        return Finding("bad")

    monkeypatch.setattr(checks, "CHECKS", {"defect": defect, "hang": hang})
    began = time.monotonic()
    results = checks.run(subject(host), limit=0.2)
    assert [one.finding for one in results] == [
        Finding("unknown", "KeyError: 'x'"),
        Finding("unknown", "no answer within 0.2 s"),
    ]
    assert time.monotonic() - began < 5


def test_results_are_metrics_and_unknown_has_no_value() -> None:
    results = [
        checks.Result("efa", Finding("ok"), 0.25),
        checks.Result("xid", Finding("bad", "x"), 0.5),
        checks.Result("ecc", Finding("unknown", "y"), 1.0),
    ]
    lines = [line for line in prometheus(results, 1790000000.0).splitlines() if line[0] != "#"]
    assert lines == [
        'hyperpod_health_check_ok{check="efa"} 1',
        'hyperpod_health_check_ok{check="xid"} 0',
        'hyperpod_health_check_seconds{check="efa"} 0.250',
        'hyperpod_health_check_seconds{check="xid"} 0.500',
        'hyperpod_health_check_seconds{check="ecc"} 1.000',
        "hyperpod_health_last_run_time_seconds 1790000000",
    ]


def test_metadata_without_a_date_leaves_the_clock_unknown(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "http", lambda *_: Reply(200, "x"))
    assert system.time(subject(host)) == Finding("unknown", "instance metadata gives no time to compare with")
