"""No ssh to a worker without a job there: only where that can be known, and never for those who look after nodes."""

import pytest
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import Skip
from hyperpod_node.host.host import Result
from hyperpod_node.people import apply, ssh_jobs, unix_accounts

from tests.lifecycle.rig import FakeHost, World

# Ubuntu 22.04's, without its comments.
SSHD = """@include common-auth
account    required     pam_nologin.so
@include common-account
session    required     pam_loginuid.so
@include common-session
session    required     pam_limits.so
@include common-password
"""
COMMON = "session required\tpam_unix.so\nsession optional\tpam_systemd.so \nsession optional pam_ecryptfs.so unwrap\n"
MODULE = "/lib/security/pam_slurm_adopt.so"


@pytest.fixture
def host(world: World) -> FakeHost:
    """A worker with the module, whose controller makes the steps that it looks for."""
    found = world.node("worker")
    for name, text in ((MODULE, "module"), (ssh_jobs.PAM, SSHD), ("/etc/pam.d/common-session", COMMON)):
        found.path(name).parent.mkdir(parents=True, exist_ok=True)
        found.path(name).write_text(text)
    answers(found, "Alloc,Contain")
    return found


def answers(host: FakeHost, flags: str) -> None:
    host.commands["scontrol"] = lambda h, args, stdin: Result(
        0, f"PrologEpilogTimeout = 65534\nPrologFlags = {flags}\n"
    )


def run(host: FakeHost) -> Node:
    node = host.node()
    node.enter("ssh-jobs")
    ssh_jobs.run(node)
    return node


def test_the_rule_is_the_last_about_accounts_and_comes_after_those_who_are_always_let_in(host: FakeHost) -> None:
    host.write(unix_accounts.SUDOERS, "research2 ALL=(ALL:ALL) NOPASSWD: ALL\n")
    assert not run(host).warnings
    lines = host.text(ssh_jobs.PAM).splitlines()
    about = [line.split() for line in lines if line.lstrip("-").startswith("account") or "common-account" in line]
    assert [words[-1] if words[0] == "@include" else words[2] for words in about] == [
        "pam_nologin.so",
        "common-account",
        "pam_access.so",
        "pam_slurm_adopt.so",
    ]
    assert about[2][1] == "sufficient"
    assert about[3][:2] == ["-account", "required"]
    assert about[3][3:] == ["action_adopt_failure=deny", "action_generic_failure=deny"]
    assert host.text(ssh_jobs.ACCESS) == "+:root ubuntu research2:ALL\n-:ALL:ALL\n"
    assert host.text(ssh_jobs.SERVER) == "# Made by the HyperPod lifecycle scripts.\nUsePAM yes\n"
    assert {host.path(name).stat().st_mode & 0o777 for name in (ssh_jobs.ACCESS, ssh_jobs.SERVER)} == {0o600}
    assert host.calls[-1] == ("systemctl", "reload", "ssh")
    assert ssh_jobs.run(host.node()) == "besides root, ubuntu, research2, only people with a job here"


def test_a_session_is_not_moved_out_of_the_job_and_others_keep_their_sessions(host: FakeHost) -> None:
    run(host)
    assert "@include hyperpod-session\n" in host.text(ssh_jobs.PAM)
    assert host.text(ssh_jobs.SESSION) == COMMON.replace("session optional\tpam_systemd.so \n", "")
    assert host.text("/etc/pam.d/common-session") == COMMON


def test_a_second_run_changes_nothing(host: FakeHost) -> None:
    run(host)
    before = host.tree()
    host.changes.clear()
    host.calls.clear()
    run(host)
    assert (host.tree(), host.changes) == (before, [])
    assert not host.ran("systemctl"), "sshd is reloaded for nothing"


NO_MODULE = (
    "pam_slurm_adopt.so is in none of /lib/security, /lib64/security, /lib/x86_64-linux-gnu/security, "
    "/lib/aarch64-linux-gnu/security; it has to be of the node's own release of Slurm"
)


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("module", NO_MODULE),
        ("flags", "the controller has PrologFlags=Alloc, without Contain"),
        ("controller", "the controller did not say its PrologFlags within 30 s: no answer"),
        ("pam", "there is no /etc/pam.d/sshd"),
    ],
)
def test_nobody_is_locked_out_where_it_cannot_work(host: FakeHost, lacking: str, said: str) -> None:
    run(host)
    if lacking == "module":
        host.path(MODULE).unlink()
    elif lacking == "pam":
        host.path(ssh_jobs.PAM).unlink()
    elif lacking == "flags":
        answers(host, "Alloc")
    else:
        host.fail["scontrol"] = Result(1, "", "no answer")
    node = host.node()
    node.enter("ssh-jobs")
    assert ssh_jobs.run(node) == "not in force"
    assert node.warnings == {"ssh-jobs": [f"ssh to this node needs no job: {said}"]}
    assert (host.read(ssh_jobs.PAM) or SSHD) == SSHD


def test_other_nodes_are_left_alone(world: World) -> None:
    for role in ("controller", "login"):
        with pytest.raises(Skip):
            ssh_jobs.run(world.node(role).node())


def test_who_becomes_an_administrator_later_is_let_in_too(host: FakeHost) -> None:
    run(host)
    host.world.ship([{"name": "research2", "uid": 2002, "sudo": True}])
    host.folder("/fsx")
    apply.run(host.node())
    assert host.text(ssh_jobs.ACCESS) == "+:root ubuntu research2:ALL\n-:ALL:ALL\n"
