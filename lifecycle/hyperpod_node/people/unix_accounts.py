"""Local accounts: does the work of groupadd, useradd and usermod for many people at once, on the same files.

Each of these programs takes tens of milliseconds. Like systemd-sysusers this module holds the lock of lckpwdf(3), for
which they wait, and replaces the files one by one. passwd comes last: an account in it has the rest too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from ..facts.model import Person
from ..host.host import Host

PASSWD, GROUP, SHADOW, GSHADOW = "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"
# How long lckpwdf(3) waits.
LOCK, LOCK_SECONDS = "/etc/.pwd.lock", 15.0
# sudo reads no file there with a dot in its name (sudoers(5), "Including other files"): none that is half written.
SUDOERS = "/etc/sudoers.d/90-hyperpod-people"
SHELL, NO_SHELL = "/bin/bash", "/usr/sbin/nologin"
# shadow(5): no password, and "!" before it for a locked account; days since 1970 after which there is no login, by no
# means. 0 may mean "never".
NO_PASSWORD, LOCKED, EXPIRED = "*", "!", "1"


class Account(NamedTuple):
    """An account as /etc/passwd and /etc/shadow have it."""

    uid: int
    gid: int
    enabled: bool


def group_of(person: Person) -> str:
    """Return the name of a person's group: their own, or one for everybody with that number."""
    return person.name if person.gid == person.uid else f"hyperpod-{person.gid}"


def local_accounts(host: Host) -> Dict[str, Account]:
    """Return all local accounts."""
    expiry = {row[0]: row[7] for row in _rows(host, SHADOW, 9)}
    return {row[0]: Account(int(row[2]), int(row[3]), expiry.get(row[0]) != EXPIRED) for row in _rows(host, PASSWD, 7)}


def with_sudo(host: Host) -> List[str]:
    """Return the stack's people who may become root here."""
    return [line.split()[0] for line in (host.read(SUDOERS) or "").splitlines() if line.strip()]


def settle(host: Host, people: Sequence[Person], gone: Sequence[str], homes: str) -> Dict[str, str]:
    """Give every person an account, and lock those of the names in ``gone``.

    Return why people have none, by name: nobody gets an existing account, group or number of another.
    """
    with _locked(host):
        passwd, groups = _rows(host, PASSWD, 7), _rows(host, GROUP, 4)
        refused = _conflicts(people, passwd, groups)
        taken = [person for person in people if person.name not in refused]
        numbers = {row[2] for row in groups}
        new = {group_of(person): str(person.gid) for person in taken if str(person.gid) not in numbers}
        _edit(host, GROUP, 4, {name: ["x", gid, ""] for name, gid in new.items()}, {})
        if host.path(GSHADOW).exists():
            _edit(host, GSHADOW, 4, {name: ["!", "", ""] for name in new}, {})
        today = str(int(host.wall() // 86400))
        fresh = {person.name: [NO_PASSWORD, today, "0", "99999", "7", "", "", ""] for person in taken}
        changes: Dict[str, Callable[[List[str]], List[str]]] = {person.name: _unlocked_line for person in taken}
        changes.update(dict.fromkeys(gone, _closed))
        _edit(host, SHADOW, 9, fresh, changes)
        lines = {p.name: ["x", str(p.uid), str(p.gid), "", f"{homes}/{p.name}", SHELL] for p in taken}
        changes = {person.name: _passwd_line(lines[person.name]) for person in taken}
        changes.update({name: lambda row: [*row[:6], NO_SHELL] for name in gone})
        _edit(host, PASSWD, 7, lines, changes)
    return refused


def _conflicts(people: Sequence[Person], passwd: Sequence[List[str]], groups: Sequence[List[str]]) -> Dict[str, str]:
    ids, names = {row[0]: row[2] for row in passwd}, {row[2]: row[0] for row in passwd}
    gids = {row[0]: row[2] for row in groups}
    found = {}
    for person in people:
        uid, group = str(person.uid), group_of(person)
        if ids.get(person.name, uid) != uid:
            found[person.name] = f"has the number {ids[person.name]} here, not {uid}"
        elif names.get(uid, person.name) != person.name:
            found[person.name] = f"cannot have the number {uid}, which is {names[uid]}'s here"
        elif gids.get(group, str(person.gid)) != str(person.gid):
            found[person.name] = f"needs the group {group}, which has the number {gids[group]} here"
    return found


def _unlocked_line(row: List[str]) -> List[str]:
    """Return a line of /etc/shadow that may log in. A password that an administrator has set stays."""
    expiry = "" if row[7] == EXPIRED else row[7]
    return [row[0], row[1].lstrip(LOCKED) or NO_PASSWORD, *row[2:7], expiry, row[8]]


def _closed(row: List[str]) -> List[str]:
    return [row[0], LOCKED + row[1].lstrip(LOCKED), *row[2:7], EXPIRED, row[8]]


def _passwd_line(line: List[str]) -> Callable[[List[str]], List[str]]:
    """Return a line of /etc/passwd with our ids and home. The shell, if any, stays the person's, chsh(1)."""

    def change(row: List[str]) -> List[str]:
        shell = line[5] if row[6] in ("", NO_SHELL) else row[6]
        return [row[0], row[1], line[1], line[2], row[4], line[4], shell]

    return change


def _edit(
    host: Host,
    name: str,
    width: int,
    wanted: Mapping[str, List[str]],
    changes: Mapping[str, Callable[[List[str]], List[str]]],
) -> None:
    """Change lines, and append missing ones. All others stay as they are, byte by byte."""
    # Names in it may have any encoding; in ours each byte is a character.
    text = (host.read_bytes(name) or b"").decode("latin-1")
    lines, seen = [], set()
    *whole, rest = text.split("\n")
    for line in [*whole, rest] if rest else whole:
        row = line.split(":")
        if row[0] in changes and len(row) == width:
            line = ":".join(changes[row[0]](row))
        seen.add(row[0])
        lines.append(line)
    lines += [":".join([key, *row]) for key, row in wanted.items() if key not in seen]
    changed = "".join(line + "\n" for line in lines)
    if changed != text:
        _replace(host, name, changed.encode("latin-1"))


def _replace(host: Host, name: str, data: bytes) -> None:
    """Replace a file at once, with its mode and owners: on Debian the group shadow may read two of them."""
    path = host.path(name)
    before, temporary = path.stat(), path.with_name(f"{path.name}+")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
        os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    temporary.replace(path)
    host.changes.append(name)


def _rows(host: Host, name: str, width: int) -> List[List[str]]:
    """Return the well-formed lines of one of the files."""
    rows = [line.split(":") for line in (host.read(name) or "").splitlines()]
    numbers: Tuple[int, ...] = {PASSWD: (2, 3), GROUP: (2,)}.get(name, ())
    return [row for row in rows if len(row) == width and all(row[column].isdigit() for column in numbers)]


@contextlib.contextmanager
def _locked(host: Host) -> Iterator[None]:
    path = host.path(LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="ascii") as file:
        path.chmod(0o600)

        def take() -> bool:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            return True

        host.poll("another program kept the accounts locked", take, LOCK_SECONDS)
        yield
