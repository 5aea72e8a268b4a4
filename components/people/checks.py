"""Checks of the list of people."""

import base64
import binascii
import struct
from collections import Counter
from collections.abc import Iterator

from ..schema.problems import Problem
from .keys import KEY, User


def ssh_key_problems(key: str | None, orchestrator: str) -> Iterator[Problem]:
    """Report a key of the whole cluster if nobody can log in with it."""
    if key and orchestrator == "eks":
        yield Problem(
            key="hyperpod:sshPublicKey",
            what="EKS nodes do not use it",
            fix="leave it out with orchestrator eks; nodes are reached through SSM",
        )


# Accounts and groups of the images: Ubuntu's base-passwd and packages, EC2's and HyperPod's. systemd-* is refused too.
RESERVED = frozenset(
    """
    _apt _chrony _ssh adm admin audio backup bin cdrom chrony crontab daemon dhcpcd dialout dip disk dnsmasq docker
    ec2-instance-connect ec2-user fax floppy fwupd-refresh games gnats input irc kmem kvm landscape list lp lxd mail
    man messagebus munge mysql netdev news nobody nogroup nvidia-persistenced operator plugdev polkitd pollinate
    postfix proxy rdma render root rtkit sagemaker-user sasl sgx shadow slurm slurmrestd src ssh sshd ssl-cert
    ssm-user sssd staff sudo sync sys syslog tape tcpdump tss tty ubuntu usbmux users utmp uucp uuidd video voice
    wheel www-data
    """.split()  # noqa: SIM905 (a hundred quotation marks say no more)
)


def people_problems(users: tuple[User, ...], orchestrator: str) -> Iterator[Problem]:
    """Yield every problem of the list, besides the forms of its values."""
    if users and orchestrator == "eks":
        yield Problem(
            key=KEY,
            what="is for Slurm: pods have no accounts on nodes",
            fix="leave it out with orchestrator eks; hyperpod:teams says who may use a namespace",
        )
        return
    yield from _twice(users)
    own = {user.uid: user.name for user in users if user.gid in (None, user.uid)}
    for index, user in enumerate(users):
        key = f"{KEY}[{index}]"
        if user.name in RESERVED or user.name.startswith(("systemd-", "hyperpod")):
            yield Problem(
                key=f"{key}.name", what=f'"{user.name}" is an account or a group of the nodes', fix="another name"
            )
        if user.gid is not None and own.get(user.gid, user.name) != user.name:
            what = f"{user.gid} is the own group of {own[user.gid]}"
            yield Problem(key=f"{key}.gid", what=what, fix="a number that is not a uid, for a shared group")
        for number, line in enumerate(user.ssh_keys):
            if not _is_key(line):
                what = f'"{line}" is not an OpenSSH public key'
                fix = "the whole line of a .pub file: the key is truncated, or of another type than stated"
                yield Problem(key=f"{key}.sshKeys[{number}]", what=what, fix=fix)


def _twice(users: tuple[User, ...]) -> Iterator[Problem]:
    for field in ("name", "uid"):
        for value, times in Counter(getattr(user, field) for user in users).items():
            if times > 1 and value != "":
                fix = f"each has a {field} of their own"
                yield Problem(key=KEY, what=f"{times} people have the {field} {value}", fix=fix)
    for line, times in Counter(" ".join(line.split()[:2]) for user in users for line in user.ssh_keys).items():
        if times > 1:
            whose = ", ".join(user.name for user in users for one in user.ssh_keys if one.startswith(line))
            yield Problem(key=KEY, what=f"{times} entries have one SSH key: {whose}", fix="each has keys of their own")


def _is_key(line: str) -> bool:
    """Whether the key begins with the type that the line names, as a string of RFC 4251, and is complete."""
    kind, blob = line.split()[:2]
    try:
        data = base64.b64decode(blob, validate=True)
        fields, offset = [], 0
        while offset < len(data):
            (length,) = struct.unpack_from(">I", data, offset)
            offset += 4 + length
            fields.append(data[offset - length : offset])
    except (binascii.Error, struct.error):
        return False
    # RFC 8709 and 4253, RFC 5656, PROTOCOL.u2f of OpenSSH: how many strings follow the type.
    parts = {"ssh-ed25519": 2, "ssh-rsa": 3, "sk-ssh-ed25519@openssh.com": 3, "sk-ecdsa-sha2-nistp256@openssh.com": 4}
    parts |= {f"ecdsa-sha2-nistp{bits}": 3 for bits in (256, 384, 521)}
    return offset == len(data) and fields[:1] == [kind.encode()] and len(fields) == parts.get(kind)
