"""People are refused before anything is created where nodes could not have them as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.config.refusals import EKS, Cases, check, problems
from tests.golden.stacks import KEY
from tests.support import config

ONE = {"name": "research1", "uid": 2001}
TWO = {"name": "research2", "uid": 2002}
# Keys of every type, from ssh-keygen.
KEYS = (
    KEY,
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBFGtw55gxCnFRXw48/yRUQYKcqbWWIyXixa6ij+U"
    "VbW5H49wy5S2ShE7l8MvBytG0jdYgPRIM9tWT6Ox82Y2Mt8= x",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC5ZXjgwhfKpZSkeIhmq1QvgaVr3XXTze8E20ffzXDt1PzJ1cmzL+I/BOCyf/k86zFuzQYDiDOF"
    "12eqect4xwpikrxqOL+ITVKKs0lAMQjJVXRFOElsFntsHipxxDaA/qiNzvqQl4tMJwmPjYDSPmZpQplXEMD+bT92sGsCI3ozLBoXCEiVeBgZMb7k"
    "l9nGPzI3LabUl0Socynz6lVLwS49h1yte80xOJd+CUp6siQj13z5yLJhaSTck0N+uSwN4k/xM+HIrRsgKus5DV+6HhbspRGEyZf8LtFmVy++vnkM"
    "umjCdpkr69ezel7ywxI83+rOuCGxJ9/UmLcx1jZ7J6y1FFxFqdwaXpdJL9/lzLUh79euPxdV09ndTB9keGTOOzY54lVuDLHepKZRnIG94wq+S4TN"
    "Z0kFwpH9xhPhbbxUdzIUTq9Q/sYK3hQumF8iv3BQoroWD8+xAZxWFDJP2jjMvGPeexVKZwzA62PF+PLfwRRVcjwL+qvV0fTrWFZe0u8= x",
)
WITHOUT_END = KEY.split()[1][:-4]
BAD: Cases = {
    "root": ({"users": [{**ONE, "name": "root"}]}, "hyperpod:users[0].name", "an account or a group of the nodes"),
    "systemd's name": ({"users": [{**ONE, "name": "systemd-x"}]}, "hyperpod:users[0].name", "of the nodes"),
    "upper-case name": ({"users": [{**ONE, "name": "Research"}]}, "hyperpod:users[0].name", "lower-case letters"),
    "33 characters": ({"users": [{**ONE, "name": "a" * 33}]}, "hyperpod:users[0].name", "at most 32"),
    "ubuntu's number": ({"users": [{**ONE, "uid": 1000}]}, "hyperpod:users[0].uid", "2000 to 60000"),
    "nobody's number": ({"users": [{**ONE, "uid": 65534}]}, "hyperpod:users[0].uid", "2000 to 60000"),
    "a system group": ({"users": [{**ONE, "gid": 27}]}, "hyperpod:users[0].gid", "2000 to 60000"),
    "no number": ({"users": [{"name": "research1"}]}, "hyperpod:users[0].uid", "is required"),
    "a name twice": ({"users": [ONE, {**ONE, "uid": 2002}]}, "hyperpod:users", "2 people have the name research1"),
    "a number twice": ({"users": [ONE, {**TWO, "uid": 2001}]}, "hyperpod:users", "2 people have the uid 2001"),
    "a key twice": (
        {"users": [{**ONE, "sshKeys": [KEY]}, {**TWO, "sshKeys": [KEY + "2"]}]},
        "hyperpod:users",
        "2 entries have one SSH key: research1, research2",
    ),
    "another's own group": ({"users": [ONE, {**TWO, "gid": 2001}]}, "hyperpod:users[1].gid", "own group of research1"),
    "no key": ({"users": [{**ONE, "sshKeys": ["research1"]}]}, "hyperpod:users[0].sshKeys[0]", "one line like"),
    "options of a key": (
        {"users": [{**ONE, "sshKeys": [f'command="x" {KEY}']}]}, "hyperpod:users[0].sshKeys[0]", "without options",
    ),
    "a second line": ({"users": [{**ONE, "sshKeys": [f"{KEY}\nx"]}]}, "hyperpod:users[0].sshKeys[0]", "one line"),
    "a key cut off": (
        {"users": [{**ONE, "sshKeys": [f"ssh-ed25519 {WITHOUT_END}"]}]}, "hyperpod:users[0].sshKeys[0]", "is cut off",
    ),
    "another type than it says": (
        {"users": [{**ONE, "sshKeys": [KEY.replace("ssh-ed25519", "ssh-rsa", 1)]}]},
        "hyperpod:users[0].sshKeys[0]",
        "of another type than it says",
    ),
    "people of an EKS cluster": ({**EKS, "users": [{**ONE, "account": "lab"}]}, "hyperpod:users", "hyperpod:teams"),
    "sessions as oneself without a document": (
        {"security": {"sessionRunAs": True}},
        "hyperpod:security.sessionRunAs",
        "set hyperpod:security.sessionLogs too",
    ),
    "jobs for ssh on an EKS cluster": (
        {**EKS, "security": {"sshOnlyWithJob": True}},
        "hyperpod:security.sshOnlyWithJob",
        "leave it out",
    ),
    "no file": ({"usersFile": "nowhere.yaml"}, "hyperpod:usersFile", "No such file"),
    "a file without a list": ({"usersFile": "Pulumi.yaml"}, "hyperpod:usersFile", "has no list"),
    "no YAML": ({"usersFile": "LICENSE"}, "hyperpod:usersFile", "LICENSE: line 93 is not YAML"),
    "a list and a file": ({"usersFile": "docs/people.yaml", "users": [ONE]}, "hyperpod:usersFile", "one of the two"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_is_refused_with_key_reason_and_remedy(case: str) -> None:
    check(BAD[case])


def test_everything_that_is_wrong_is_told_at_once() -> None:
    bad = {"name": "docker", "uid": 2001, "gid": 2003, "sshKeys": [f"ssh-ed25519 {WITHOUT_END}"]}
    keys = ["", "[0].name", "[0].gid", "[0].sshKeys[0]"]
    assert set(problems(users=[bad, {**TWO, "uid": 2001}, {"name": "research3", "uid": 2003}])) == {
        f"hyperpod:users{key}" for key in keys
    }


def test_keys_of_every_type_are_taken() -> None:
    assert len(config(users=[{**ONE, "sshKeys": list(KEYS)}]).settings.users[0].ssh_keys) == len(KEYS)


def test_the_file_to_copy_says_what_a_list_in_the_stack_would(tmp_path: Path) -> None:
    found = config(usersFile="docs/people.yaml").settings.users
    assert [(user.name, user.uid, user.gid, user.sudo) for user in found] == [
        ("research1", 2001, None, False),
        ("research2", 2002, 3000, True),
    ]
    (tmp_path / "mine.yaml").write_text("[{name: Bad, uid: 1}]")
    assert set(problems(usersFile=str(tmp_path / "mine.yaml"))) == {"hyperpod:users[0].name", "hyperpod:users[0].uid"}
