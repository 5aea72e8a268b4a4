"""``hyperpod-slurm-accounts``: makes Slurm's accounts, people and limits match the configuration, by sacctmgr.

Only names in the configuration are set. Names that people have added stay, and so do those that an earlier
configuration had: these are reported, with the command that removes them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..facts import node_record, parameters
from ..facts.model import Account, Accounting, Default, Node, Qos
from ..host.errors import NotYet, Skip, StepError
from ..host.host import Host
from ..host.settings import Settings
from ..slurm import conf, configure

# The user of this project's tests and commands. Others need to be named.
OWN_USER, OWN_ACCOUNT = "ubuntu", "default"
ROOT = "root"
LAST = "slurm-accounts.json"
# Seconds until slurmctld has registered the cluster and its accelerators with the database.
REGISTERS = 60.0
_QOS = ("Name", "Priority", "Preempt", "GrpTRES", "MaxTRESPU", "MaxWall")
_ASSOCIATION = ("Account", "User", "ParentName", "Share", "GrpTRES", "QOS", "DefaultQOS")

Row = Dict[str, str]


def run(node: Node) -> str:
    """Step ``slurm-accounts``."""
    wanted = node.parameters.accounting
    if node.role != "controller" or wanted is None:
        raise Skip("the controller has them")
    changed, told = apply(node.host, wanted, node.shared)
    for line in told:
        node.warn(line)
    return f"{len(changed)} changes" if changed else "as configured"


def apply(host: Host, wanted: Accounting, shared: str, dry_run: bool = False) -> Tuple[List[str], List[str]]:
    """Set what differs. Return the changes, and names that left the configuration and still exist.

    With ``dry_run`` nothing is changed.
    """
    last = f"{shared}/private/{LAST}"
    before = json.loads(host.read(last) or "{}")
    now: Dict[str, Any] = dataclasses.asdict(wanted)
    kinds = sorted({group.gres_name for group in node_record.read(host).parameters.instance_groups if conf.gres(group)})
    work = _Work(host, _cluster(host), [f"gres/{kind}" for kind in kinds], dry_run)
    work.registered()
    work.qos(wanted.qos)
    accounts = in_order(wanted.accounts)
    work.accounts(accounts)
    work.defaults(wanted.defaults)
    # Written last: after a run that is killed before, the next one reports it.
    told = _removed_names(before, now)
    strangers = sorted({user for account in accounts for user in account.users if host.home(user) is None})
    if strangers:
        told.append(f"no user here yet, so that Slurm refuses their jobs: {', '.join(strangers)}; then run this again")
    if dry_run:
        return work.done, told
    if set(before.get("strangers", ())) - set(strangers):
        # slurmctld looks for the ids of names that it knows once an hour.
        host.run("scontrol", "reconfigure", check=False)
    now["strangers"] = strangers
    host.write(last, json.dumps(now, indent=2, sort_keys=True) + "\n", mode=0o600)
    return work.done, told


def _cluster(host: Host) -> str:
    """Return the cluster's name. Slurm keeps it in small letters, and accepts no slurm.conf without one."""
    return configure.read(host).get("ClusterName").lower()


def with_users(accounts: Sequence[Account], name: str, users: Sequence[str]) -> List[Account]:
    """Return the accounts, with these people in one of them, which is added if it is missing."""
    if not users or any(account.name == name for account in accounts):
        return [
            dataclasses.replace(account, users=(*account.users, *users)) if account.name == name else account
            for account in accounts
        ]
    return [Account(name, ROOT, 1, None, (), tuple(users)), *accounts]


def in_order(accounts: Sequence[Account]) -> List[Account]:
    """Return the accounts, parents before their children, with the user of our own commands in one."""
    placed = any(OWN_USER in account.users for account in accounts)
    found, left = [], with_users(accounts, OWN_ACCOUNT, () if placed else (OWN_USER,))
    while left:
        waiting = {account.name for account in left}
        ready = [account for account in left if account.parent not in waiting]
        if not ready:
            raise StepError(f"accounts are each other's parents: {', '.join(sorted(waiting))}")
        found += ready
        left = [account for account in left if account not in ready]
    return found


def _removed_names(before: Mapping[str, Any], now: Mapping[str, Any]) -> List[str]:
    """Return the names that the last configuration had and this one lacks."""
    found = []
    for kind, word in (("accounts", "account"), ("qos", "qos")):
        there = {one["name"]: one for one in now[kind]}
        for old in before.get(kind, []):
            new = there.get(old["name"])
            if new is None:
                name = old["name"]
                found.append(f"{word} {name} is not configured any more; it is kept: sacctmgr delete {word} {name}")
                continue
            found += [
                f"{user} is not configured in account {new['name']} any more, and is kept in it: "
                f"sacctmgr delete user {user} account={new['name']}"
                for user in sorted(set(old.get("users", ())) - set(new.get("users", ())))
            ]
            found += [
                f"{word} {new['name']}: {key} is not configured any more, and stays {old[key]}"
                for key in ("max_gpus", "max_gpus_per_user", "max_hours")
                if old.get(key) is not None and new.get(key) is None
            ]
    return found


class _Work:
    """One pass over the database: its contents, and the commands for what differs."""

    def __init__(self, host: Host, cluster: str, tres: Sequence[str], dry_run: bool) -> None:
        self._host, self._cluster, self._tres, self._dry_run = host, cluster, list(tres), dry_run
        self.done: List[str] = []

    def registered(self) -> None:
        """Wait until slurmctld has registered with the database, which it does when it starts."""

        def there() -> bool:
            clusters = {row["Cluster"] for row in self._show("cluster", ("Cluster",))}
            tres = {f"{row['Type']}/{row['Name']}" for row in self._show("tres", ("Type", "Name"))}
            if self._cluster in clusters and tres.issuperset(self._tres):
                return True
            raise NotYet(f"it has {', '.join(sorted(clusters)) or 'no cluster'} and {', '.join(sorted(tres))}")

        self._host.poll(f"the database did not know {self._cluster}", there, REGISTERS, most=0.5)

    def qos(self, wanted: Sequence[Qos]) -> None:
        """Make and change qualities of service."""
        there = {row["Name"]: row for row in self._show("qos", _QOS)}
        for qos in wanted:
            if qos.name not in there:
                self._do("add", "qos", qos.name)
        for qos in wanted:
            row = there.get(qos.name, {})
            changes = self._limit(row, "GrpTRES", qos.max_gpus) + self._limit(
                row, "MaxTRESPU", qos.max_gpus_per_user, "MaxTRESPerUser"
            )
            if int(row.get("Priority") or 0) != qos.priority:
                changes.append(f"Priority={qos.priority}")
            if _names(row.get("Preempt", "")) != set(qos.preempts):
                changes.append(f"Preempt={','.join(qos.preempts)}")
            if qos.max_hours is not None and _hours(row.get("MaxWall", "")) != qos.max_hours:
                changes.append(f"MaxWall={qos.max_hours}:00:00")
            if changes:
                self._do("modify", "qos", qos.name, "set", *changes)

    def accounts(self, wanted: Sequence[Account]) -> None:
        """Create and change accounts and their members."""
        rows = self._show("assoc", _ASSOCIATION, f"cluster={self._cluster}")
        there = {row["Account"]: row for row in rows if not row["User"]}
        members = {(row["Account"], row["User"]) for row in rows}
        for account in wanted:
            row = there.get(account.name)
            if row is None:
                self._do("add", "account", account.name, f"parent={account.parent}", f"cluster={self._cluster}")
                row = {"ParentName": account.parent, "Share": "1"}
            changes = self._limit(row, "GrpTRES", account.max_gpus)
            if row["ParentName"] != account.parent:
                changes.append(f"parent={account.parent}")
            if row["Share"] != str(account.fairshare):
                changes.append(f"fairshare={account.fairshare}")
            if account.qos and _names(row.get("QOS", "")) != set(account.qos):
                changes.append(f"qos={','.join(account.qos)}")
            if account.qos and row.get("DefaultQOS", "") != account.qos[0]:
                changes.append(f"DefaultQOS={account.qos[0]}")
            if changes:
                where = ("where", f"name={account.name}", f"cluster={self._cluster}")
                self._do("modify", "account", *where, "set", *changes)
            for user in account.users:
                if (account.name, user) not in members:
                    self._do("add", "user", user, f"account={account.name}", f"cluster={self._cluster}")

    def defaults(self, wanted: Sequence[Default]) -> None:
        """Set people's default accounts, of which they are members by now."""
        there = {row["User"]: row["DefaultAccount"] for row in self._show("user", ("User", "DefaultAccount"))}
        for one in wanted:
            if there.get(one.user) != one.account:
                where = ("where", f"name={one.user}", f"cluster={self._cluster}")
                self._do("modify", "user", *where, "set", f"DefaultAccount={one.account}")

    def _limit(self, row: Row, shown: str, most: Optional[int], key: str = "") -> List[str]:
        """Return a change of the number of accelerators in a limit; other limits of the row stay."""
        now = dict(part.split("=", 1) for part in row.get(shown, "").split(",") if "=" in part)
        if most is None:
            return []
        return [f"{key or shown}={tres}={most}" for tres in self._tres if now.get(tres) != str(most)]

    def _show(self, what: str, fields: Sequence[str], *where: str) -> List[Row]:
        out = self._host.run(
            "sacctmgr",
            "--noheader",
            "--parsable2",
            "show",
            what,
            *where,
            f"format={','.join(f'{f}%-256' for f in fields)}",
        ).out
        lines = (line.split("|") for line in out.splitlines() if line.strip())
        return [dict(zip(fields, line)) for line in lines]

    def _do(self, *words: str) -> None:
        if not self._dry_run:
            self._host.run("sacctmgr", "--immediate", *words)
        self.done.append(" ".join(words))


def _names(text: str) -> "set[str]":
    return {name for name in text.split(",") if name}


def _hours(text: str) -> Optional[int]:
    """Return ``2-00:00:00`` in whole hours; None for any other text."""
    days, _, time = text.rpartition("-")
    parts = time.split(":")
    if len(parts) != 3 or parts[1:] != ["00", "00"] or not (parts[0] + (days or "0")).isdigit():
        return None
    return int(days or 0) * 24 + int(parts[0])


def parser() -> argparse.ArgumentParser:
    """Return the options of ``hyperpod-slurm-accounts``."""
    found = argparse.ArgumentParser(prog="hyperpod-slurm-accounts", description="Slurm's accounts and limits.")
    found.add_argument("--dry-run", action="store_true", help="print the changes only")
    return found


def main(words: Optional[Sequence[str]] = None, read: Optional[Callable[[], str]] = None) -> int:
    """Apply the accounting of a configuration, as JSON on standard input."""
    asked = parser().parse_args(words)
    host = Host(Settings.from_environment())
    try:
        wanted = parameters.part(Accounting, json.loads((read or sys.stdin.read)()), "accounting")
        done, told = apply(host, wanted, node_record.read(host).shared, asked.dry_run)
    except (StepError, ValueError, KeyError) as error:
        print(f"hyperpod-slurm-accounts: {error}", file=sys.stderr)
        return 1
    for line in done:
        print(f"{'would do' if asked.dry_run else 'done'}: sacctmgr {line}")
    for line in told:
        print(f"kept: {line}")
    if not done:
        print("nothing to change")
    return 0


if __name__ == "__main__":
    sys.exit(main())
