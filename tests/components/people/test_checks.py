"""People are refused before anything is created where nodes could not have them as they are written."""

from pathlib import Path

from tests.components.config.refusals import EKS, Cases, problems
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
    "root": {"users": [{**ONE, "name": "root"}]},
    "systemd's name": {"users": [{**ONE, "name": "systemd-x"}]},
    "upper-case name": {"users": [{**ONE, "name": "Research"}]},
    "33 characters": {"users": [{**ONE, "name": "a" * 33}]},
    "ubuntu's number": {"users": [{**ONE, "uid": 1000}]},
    "nobody's number": {"users": [{**ONE, "uid": 65534}]},
    "a system group": {"users": [{**ONE, "gid": 27}]},
    "no number": {"users": [{"name": "research1"}]},
    "a name twice": {"users": [ONE, {**ONE, "uid": 2002}]},
    "a number twice": {"users": [ONE, {**TWO, "uid": 2001}]},
    "a key twice": {"users": [{**ONE, "sshKeys": [KEY]}, {**TWO, "sshKeys": [KEY + "2"]}]},
    "another's own group": {"users": [ONE, {**TWO, "gid": 2001}]},
    "no key": {"users": [{**ONE, "sshKeys": ["research1"]}]},
    "options of a key": {"users": [{**ONE, "sshKeys": [f'command="x" {KEY}']}]},
    "a second line": {"users": [{**ONE, "sshKeys": [f"{KEY}\nx"]}]},
    "a key cut off": {"users": [{**ONE, "sshKeys": [f"ssh-ed25519 {WITHOUT_END}"]}]},
    "another type than it says": {"users": [{**ONE, "sshKeys": [KEY.replace("ssh-ed25519", "ssh-rsa", 1)]}]},
    "people of an EKS cluster": {**EKS, "users": [{**ONE, "account": "lab"}]},
    "sessions as oneself without a document": {"security": {"sessionRunAs": True}},
    "jobs for ssh on an EKS cluster": {**EKS, "security": {"sshOnlyWithJob": True}},
    "no file": {"usersFile": "nowhere.yaml"},
    "a file without a list": {"usersFile": "Pulumi.yaml"},
    "no YAML": {"usersFile": "LICENSE"},
    "a list and a file": {"usersFile": "docs/people.yaml", "users": [ONE]}
}  # fmt: skip


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
