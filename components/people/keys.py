"""The people of a Slurm cluster, ``hyperpod:users``: their accounts on every node, from the stack or from a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from hyperpod_node.facts.model import USER_NAME
from pydantic import Field, StrictBool, StrictInt

from ..common.documents import load
from ..schema.fields import Change, Model, form
from ..schema.problems import NAMESPACE, Problem

KEY, FILE_KEY = f"{NAMESPACE}:users", f"{NAMESPACE}:usersFile"
# Below are the images' own accounts (ubuntu has 1000, Session Manager's the next free one); above, those that systemd
# makes up and useradd's subordinate ids (systemd, "Users, Groups, UIDs and GIDs on systemd Systems"; login.defs(5)).
FIRST_ID, LAST_ID = 2000, 60000
APPLIED = Change("at boot", "in place, for nodes that boot afterwards; for the others by `hyperpod apply`")
CHARGED = Change("at boot", "in place, by `hyperpod apply`, or by the next controller")

UserName: TypeAlias = Annotated[
    str,
    form(
        USER_NAME,
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
    """Return the raw values with the list of the file that ``usersFile`` names, and the file's problems."""
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
