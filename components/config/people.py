"""The people of a Slurm cluster, ``hyperpod:users``: their accounts on every node, from the stack or from a file."""

from __future__ import annotations

import base64
import binascii
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from pydantic import Field, StrictBool, StrictInt

from ..documents import load
from .fields import Change, Model, form
from .problems import NAMESPACE, Problem

KEY, FILE_KEY = f"{NAMESPACE}:users", f"{NAMESPACE}:usersFile"
# Below are the images' own accounts (ubuntu has 1000, Session Manager's the next free one); above, those that systemd
# makes up and useradd's subordinate ids (systemd, "Users, Groups, UIDs and GIDs on systemd Systems"; login.defs(5)).
FIRST_ID, LAST_ID = 2000, 60000
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
APPLIED = Change("at boot", "in place, for nodes that boot afterwards; for the others by `hyperpod users`")
CHARGED = Change("at boot", "in place, by `hyperpod accounts`, or by the next controller")

UserName: TypeAlias = Annotated[
    str,
    form(
        "[a-z_][a-z0-9_-]{0,31}",
        "cannot name an account",
        "at most 32 lower-case letters, digits, underscores and hyphens, with a letter or underscore first",
    ),
]
# Slurm makes small letters of names (sacctmgr(1)), and shows them in narrow columns.
AccountName: TypeAlias = Annotated[
    str,
    form(
        "[a-z0-9][a-z0-9_-]{0,31}",
        "cannot name an account or a QOS",
        "lower-case letters, digits, hyphens and underscores, at most 32",
    ),
]
PersonsKey: TypeAlias = Annotated[
    str,
    form(
        r"(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]{40,}={0,3}( [ -~]*)?",
        "is not an OpenSSH public key",
        'one line like "ssh-ed25519 AAAA... name", without options',
    ),
]


class User(Model):
    """A person who works on the cluster, with the same ids on every node."""

    name: Annotated[UserName, APPLIED]
    """Name of the account."""
    uid: Annotated[StrictInt, APPLIED] = Field(ge=FIRST_ID, le=LAST_ID)
    """User id. It stays the person's: give it to nobody else, even after they have left."""
    gid: Annotated[StrictInt | None, APPLIED] = Field(None, ge=FIRST_ID, le=LAST_ID)
    """Group id, which several people may have. Default: a group of their own, with the number of `uid`."""
    ssh_keys: Annotated[tuple[PersonsKey, ...], APPLIED] = ()
    """OpenSSH public keys that may log in."""
    account: Annotated[AccountName | None, CHARGED] = None
    """Account of `slurm.accounts` that their jobs are charged to by default; they are in it without being named there.
    Default: the first of their accounts, or the account default."""
    sudo: Annotated[StrictBool, APPLIED] = False
    """Whether they may become root on every node, without a password."""


def with_file(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The raw values with the list of the file that ``usersFile`` names, and what is wrong with the file."""
    name = values.get(FILE_KEY)
    if not name or not isinstance(name, str):
        return dict(values), []
    if values.get(KEY) not in (None, "", "[]", []):
        fix = f"people are in the file or in {KEY}: leave one of the two out"
        return dict(values), [Problem(key=FILE_KEY, what=f"{KEY} is set as well", fix=fix)]
    fix = "a YAML file with a list of {name, uid, sshKeys}, relative to the project's folder"
    try:
        people = load(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = f"line {mark.line + 1} is not YAML" if (mark := getattr(error, "problem_mark", None)) else str(error)
        why = getattr(error, "strerror", None) or why
        return dict(values), [Problem(key=FILE_KEY, what=f"{name}: {why}", fix=fix)]
    if not isinstance(people, list) or not people:
        return dict(values), [Problem(key=FILE_KEY, what=f"{name} has no list", fix=fix)]
    return {**values, KEY: people}, []


def people_problems(users: tuple[User, ...], orchestrator: str) -> Iterator[Problem]:
    """Everything that is wrong with the list, beside the forms of its values."""
    if users and orchestrator == "eks":
        yield Problem(
            key=KEY,
            what="is for Slurm: pods have no accounts on nodes",
            fix="leave it out with orchestrator eks; who may use a namespace is in hyperpod:teams",
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
            yield Problem(
                key=f"{key}.gid", what=what, fix="a number that is nobody's uid, for a group of several people"
            )
        for number, line in enumerate(user.ssh_keys):
            if not _is_key(line):
                what = f'"{line}" is not an OpenSSH public key'
                fix = "the whole line of a .pub file: the key is cut off, or of another type than it says"
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
    """Whether the key begins with the type that the line says, as a string of RFC 4251, and is whole."""
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
