"""The cluster's people: an account each on every node, a home on the shared file system, keys, and sudo for few.

At boot the list is next to the scripts. On a running node ``hyperpod-users`` fetches it from the lifecycle bucket
(``hyperpod node users STACK``). People removed from the list keep account and home, but cannot log in, and their
processes end. One person's problem is a warning, and affects nobody else.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from ..facts import node_record, parameters
from ..facts.model import Node, People, Person
from ..host import aws_cli
from ..host.errors import NotYet, StepError
from ..host.host import Host
from ..host.settings import Settings
from ..network import environment
from . import ssh_folder, ssh_jobs, unix_accounts
from .unix_accounts import SUDOERS

FILE_NAME = "hyperpod_people.json"
SKELETON = "/etc/skel"
SUDO = "{name} ALL=(ALL:ALL) NOPASSWD: ALL\n"
# The stack owns the lines between these two of authorized_keys; the rest is the person's own.
BEGIN, END = "# keys of the stack: change them there", "# end of the stack's keys"
# How long a killed process may take to go.
END_SECONDS = 5.0


class Applied(NamedTuple):
    """Result of applying the list: who has an account, who is locked, and what differs from the list."""

    people: List[str]
    locked: List[str]
    warnings: List[str]


def shipped(host: Host) -> bool:
    """Whether the stack has people."""
    return (host.settings.source / FILE_NAME).is_file()


def run(node: Node) -> str:
    """Step ``people``."""
    path = node.host.settings.source / FILE_NAME
    wanted = _read(path)
    if wanted.cluster_id != node.parameters.cluster_id:
        raise StepError(f"{path} is of the cluster {wanted.cluster_id}")
    done = apply(node.host, wanted)
    for warning in done.warnings:
        node.warn(warning)
    known = len(done.people)
    return ("1 person" if known == 1 else f"{known} people") + (f", {len(done.locked)} locked" if done.locked else "")


def apply(host: Host, wanted: People) -> Applied:
    """Apply the list; idempotent. May be killed anywhere and run again."""
    state = _state(host)
    before: Dict[str, int] = state["people"]
    now = {person.name: person.uid for person in wanted.people}
    there = unix_accounts.local_accounts(host)
    # Only accounts that are ours: one that an earlier list named, and that has its number.
    gone = sorted(one for one, uid in before.items() if one not in now and one in there and there[one].uid == uid)
    # First, so that a later run knows everybody whom a killed run has added.
    _remember(host, {**now, **before}, wanted, state["digest"])
    refused = unix_accounts.settle(host, wanted.people, gone, wanted.homes)
    warnings = [f"{who} {why}: no account" for who, why in sorted(refused.items())]
    people = [person for person in wanted.people if person.name not in refused]
    warnings += _sudo(host, people)
    for user in gone:
        warnings += _end_processes(host, user, before[user])
    warnings += _homes(host, wanted.homes, people, gone)
    if host.path(ssh_jobs.ACCESS).exists():
        ssh_jobs.allow(host)
    ours = {**before, **{person.name: person.uid for person in people}}
    _remember(host, ours, wanted, "" if warnings else digest(wanted))
    return Applied([person.name for person in people], gone, warnings)


def digest(wanted: People) -> str:
    """Fingerprint of the list."""
    return hashlib.sha256(parameters.render(wanted).encode()).hexdigest()[:12]


def _state(host: Host) -> Dict[str, Any]:
    """Return the people of all lists so far with their numbers, the place of homes, and the list that is completely
    applied.
    """
    found = json.loads(host.read(f"{host.settings.state_folder}/people.json") or "{}")
    return {"people": {}, "homes": "/home", "digest": "", **found}


def _remember(host: Host, people: Dict[str, int], wanted: People, applied: str) -> None:
    state = {"people": people, "homes": wanted.homes, "digest": applied}
    host.write(f"{host.settings.state_folder}/people.json", json.dumps(state, sort_keys=True) + "\n", mode=0o600)


def _read(path: Path) -> People:
    try:
        return parameters.parse_people(json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise StepError(f"{path} cannot be read: {error}") from None


# Homes


def _homes(host: Host, homes: str, people: Sequence[Person], gone: Sequence[str]) -> List[str]:
    """Create homes and keys of everybody; return what was not possible, and for whom."""
    warnings = []
    with _folder(host, homes) as parent:
        for person in people:
            try:
                _keys(host, homes, parent, person.name, person.ssh_keys)
            except (StepError, OSError) as error:
                warnings.append(f"{person.name} has no keys: {error}")
        for user in gone:
            # The account is locked whatever the file says.
            with contextlib.suppress(StepError, OSError), _home(host, parent, user) as home:
                with ssh_folder.opened(host, user, home) as folder:
                    _write_keys(folder, ())
    return warnings


@contextlib.contextmanager
def _folder(host: Host, homes: str) -> Iterator[int]:
    """Return a descriptor of the folder with the homes, created if it is missing. No link in it is followed: root of
    another node could lead this node's root anywhere.
    """
    top, _, name = homes.rstrip("/").rpartition("/")
    above = os.open(str(host.path(top or "/")), os.O_RDONLY | os.O_DIRECTORY)
    try:
        if top:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=above)
                host.changes.append(homes)
        # /home itself may be where a file system is mounted, which only root of this node decides.
        follow = 0 if not top else os.O_NOFOLLOW
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | follow, dir_fd=above)
        except OSError as error:
            raise StepError(f"{homes} is not used, and no link is followed: {error.strerror}") from None
    finally:
        os.close(above)
    try:
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _home(host: Host, parent: int, name: str) -> Iterator[int]:
    """Return a descriptor of a person's home. Raises OSError without a home, or for a link."""
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _keys(host: Host, homes: str, parent: int, name: str, keys: Sequence[str]) -> None:
    _make(host, homes, parent, name)
    with _home(host, parent, name) as home:
        owner = host.owner(f"{homes}/{name}")
        if owner != name:
            raise StepError(f"{homes}/{name} is {owner}'s")
        with ssh_folder.opened(host, name, home) as folder:
            _write_keys(folder, keys)


def _make(host: Host, homes: str, parent: int, name: str) -> None:
    """Create a person's home, like useradd: prepared under a name of this node's, and renamed at once. All nodes try,
    and the first one's stays.
    """
    if os.access(name, os.F_OK, dir_fd=parent, follow_symlinks=False):
        return
    own = f".{name}.{host.hostname()}"
    below = Path(f"/proc/self/fd/{parent}")
    # A killed run left it half done.
    shutil.rmtree(str(below / own), ignore_errors=True)
    if host.path(SKELETON).is_dir():
        shutil.copytree(str(host.path(SKELETON)), str(below / own), symlinks=True)
    else:
        os.mkdir(own, 0o700, dir_fd=parent)
    # Root's until it is complete.
    os.chmod(own, 0o700, dir_fd=parent)
    # Never empty: a rename would replace an empty one that another node has just begun to use.
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{own}/.ssh", 0o700, dir_fd=parent)
    for folder, folders, files in os.walk(str(below / own)):
        for one in (*folders, *files):
            if not Path(folder, one).is_symlink():
                host.chown(f"{folder}/{one}", name)
    host.chown(str(below / own), name)
    try:
        os.rename(own, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        shutil.rmtree(str(below / own), ignore_errors=True)
        # Another node was faster, or somebody put a file there, on which the later open fails.
        if not os.access(name, os.F_OK, dir_fd=parent, follow_symlinks=False):
            raise
        return
    host.changes.append(f"{homes}/{name}")


def _write_keys(folder: ssh_folder.SshFolder, keys: Sequence[str]) -> None:
    """Write the stack's keys between their marks, before those that the person has added."""
    before = folder.read("authorized_keys")
    kept = environment.outside(before, BEGIN, END)
    lines = [BEGIN, *keys, END, *kept] if keys else kept
    if lines or before:
        folder.write("authorized_keys", "".join(line + "\n" for line in lines), 0o600)


# People's rights, and the processes of those who have left


def _sudo(host: Host, people: Sequence[Person]) -> List[str]:
    """Write who may become root. A file that sudo would refuse would lock out everybody, so visudo checks it first."""
    text = "".join(SUDO.format(name=person.name) for person in people if person.sudo)
    if not text:
        host.remove(SUDOERS)
        return []
    candidate = f"{host.settings.state_folder}/sudoers"
    host.write(candidate, text, mode=0o440)
    try:
        checked = host.run("visudo", "-c", "-f", str(host.path(candidate)), check=False)
        trouble = "" if checked.code == 0 else checked.reason
    except StepError as error:
        trouble = str(error)
    if trouble:
        host.remove(SUDOERS)
        return [f"nobody of the stack has sudo: {trouble}"]
    host.write(SUDOERS, text, mode=0o440)
    return []


def _end_processes(host: Host, user: str, uid: int) -> List[str]:
    """End the processes of a locked account: only these could start new ones."""

    def none_left() -> bool:
        # pkill(1): 1 says that no process matched.
        if host.run("pkill", "-KILL", "-U", str(uid), check=False).code == 1:
            return True
        raise NotYet("they were told to")

    try:
        host.poll(f"processes of {user} did not end", none_left, END_SECONDS)
    except StepError as error:
        return [str(error)]
    return []


# hyperpod-users, on a living node


def fetched(host: Host, uri: str, region: str) -> People:
    """Return the list that is in the lifecycle bucket now."""
    name = f"{host.settings.state_folder}/{FILE_NAME}"
    target = host.path(name)
    host.remove(name)
    aws_cli.copied(host, uri, region, str(target))
    return _read(target)


def listed(host: Host) -> Dict[str, Any]:
    """Return the stack's people on this node, and the list that they come from."""
    state, there = _state(host), unix_accounts.local_accounts(host)
    found = {name: there[name]._asdict() for name in state["people"] if name in there}
    return {"people": found, "digest": state["digest"]}


def parser() -> argparse.ArgumentParser:
    """Return the options of ``hyperpod-users``."""
    found = argparse.ArgumentParser(prog="hyperpod-users", description="The stack's people on this node.")
    found.add_argument("uri", nargs="?", help="the list in the lifecycle bucket, to be applied first")
    found.add_argument("--region", help="the bucket's region")
    found.add_argument("--nobody", action="store_true", help="apply a list without anybody")
    return found


def main(words: Optional[Sequence[str]] = None) -> int:
    """``hyperpod-users``: print this node's people as JSON, after applying a list if one is named."""
    asked = parser().parse_args(words)
    host = Host(Settings.from_environment())
    os.umask(0o022)
    host.begin(300)
    warnings: List[str] = []
    try:
        if asked.uri or asked.nobody:
            record = node_record.read(host)
            empty = People(record.parameters.cluster_id, _state(host)["homes"], ())
            wanted = empty if asked.nobody else fetched(host, asked.uri, asked.region)
            if wanted.cluster_id != record.parameters.cluster_id:
                raise StepError(f"{asked.uri} is of the cluster {wanted.cluster_id}")
            done = apply(host, wanted)
            warnings = done.warnings
            if record.group.role == "controller":
                for user in done.locked:
                    host.run("scancel", f"--user={user}", check=False)
    except (StepError, OSError, KeyError) as error:
        print(f"hyperpod-users: {error}", file=sys.stderr)
        return 1
    print(json.dumps({**listed(host), "warnings": warnings}, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
