"""What a person writes into the kernel's log, so that a health check finds a fault and takes the node out."""

import subprocess
from pathlib import Path

import pytest
from hyperpod_node.health import xid
from hyperpod_node.health.model import Finding
from hyperpod_node.host import kernel_queries

from tests.lifecycle.health.rig import put, subject
from tests.lifecycle.rig import FakeHost

FAULT = "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, GPU has fallen off the bus."
# What Linux 6.18 wrote of the attacks below, and of a program that has a terminal of its own and could write there.
WRITTEN = {
    "an unknown mount option": f"3,339,2640553888,-;tmpfs: Unknown parameter '{FAULT}'",
    "a process and its file": "6,359,2656292649,-;NVRM: Xid (0000[19988]: segfault at 0 ip 00005608a73dc16b sp "
    "00007ffde6400850 error 6 in x): 79, GPU has[116b,5608a73dc000+1000] likely on CPU 0 (core 0, socket 0)",
    "a line of a program's": f"12,360,2656292699,-;{FAULT}",
    "a line in a record": f"3,361,2656292700,-;tmpfs: Unknown parameter 'x\\x0a{FAULT}'",
}
# A process of a name, from a file of another, that writes where it must not.
CRASH = '#include <sys/prctl.h>\nint main(){prctl(PR_SET_NAME,"NVRM: Xid (0000",0,0,0);*(volatile int*)0=1;}\n'
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def found(host: FakeHost, log: str) -> Finding | None:
    put(host, "/dev/kmsg", log)
    return xid.check(subject(host))


@pytest.mark.parametrize("record", WRITTEN.values(), ids=WRITTEN)
def test_what_a_person_gets_the_kernel_to_write_is_no_fault_of_the_node(host: FakeHost, record: str) -> None:
    assert found(host, f"{record}\n") == Finding("ok", "")


@pytest.mark.parametrize(
    "address", ["PCI:0000:53:00", "PCI:0000:53:00 GPU-I:05", "PCI:00000008:01:00.0", "0000:53:00", "PCI:0000:C3:00"]
)
def test_the_drivers_own_record_is_one(host: FakeHost, address: str) -> None:
    seen = found(host, f"4,7,1,-;NVRM: Xid ({address}): 79, pid=1234, GPU has fallen off the bus.\n")
    assert seen is not None
    assert seen.status == "bad"


@pytest.mark.root
def test_attacks_on_the_log_of_this_kernel(host: FakeHost, everybodys: Path) -> None:
    """The same as an ordinary user, for real: this kernel's log then has the words, and no node is bad."""
    program = everybodys / "x): 79, GPU has"
    subprocess.run(["cc", "-x", "c", "-o", str(program), "-"], input=CRASH, text=True, check=True)
    mount = ["mount", "-t", "tmpfs", "-o", FAULT.replace(",", ""), "x", "/mnt"]
    for command in (["unshare", "--user", "--map-root-user", "--mount", *mount], [str(program)]):
        assert subprocess.run([*NOBODY, *command], capture_output=True, cwd="/", check=False).returncode != 0
    log = kernel_queries.kernel_log(Path("/dev/kmsg"))
    assert log is not None
    attacks = [line for line in log if "NVRM: Xid" in line]
    assert any("Unknown parameter 'NVRM: Xid (PCI:0000:53:00): 79" in line for line in attacks), "no mount wrote it"
    assert any(";NVRM: Xid (0000[" in line and "in x): 79" in line for line in attacks), "no crash wrote it"
    assert found(host, "\n".join(attacks)) == Finding("ok", "")
