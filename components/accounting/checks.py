"""Checks of the keys of Slurm's accounting. Every rule yields its own problems."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from ..catalogue.regions import Region
from ..people.keys import User
from ..schema.fields import Model
from ..schema.problems import Problem
from .keys import Accounting, SlurmAccount, SlurmQos

Accounts: TypeAlias = Sequence[SlurmAccount]

_KEY = "hyperpod:slurm"
# Every database of Slurm's has both (sacctmgr(1)).
ROOT, NORMAL = "root", "normal"
# Amazon RDS User Guide, "Working with a DB instance in a VPC": a subnet group has two zones at least.
_SUBNETS = 2
# Keys of a database on RDS only.
_OF_RDS = ("instance_class", "storage_gib", "backup_days", "subnet_ids")
# Users of every node.
_OWN = {"root", "ubuntu"}


def accounting_problems(
    accounting: Accounting | None, accounts: Accounts, qos: Sequence[SlurmQos], region: Region | None, *, existing: bool
) -> Iterator[Problem]:
    """Yield every problem of Slurm's accounting keys. ``existing``: the VPC is the user's."""
    if accounting is None:
        for key, given in (("accounts", accounts), ("qos", qos)):
            if given:
                fix = "add slurm.accounting: {database: local}, or leave it out"
                yield Problem(key=f"{_KEY}.{key}", what="Slurm keeps no accounts", fix=fix)
    else:
        yield from _database(accounting, region, existing=existing)
    yield from _names(accounts, qos)
    yield from _accounts(accounts, qos)
    yield from _qos(qos)


def _database(accounting: Accounting, region: Region | None, *, existing: bool) -> Iterator[Problem]:
    key = f"{_KEY}.accounting"
    if accounting.database == "local":
        for name in sorted(accounting.model_fields_set.intersection(_OF_RDS)):
            fix = "add database: rds, or leave it out"
            yield Problem(key=f"{key}.{_alias(accounting, name)}", what="is of a database on RDS", fix=fix)
        return
    if region and region.partition != "aws":
        what = f"the lifecycle scripts have no certificate of RDS's authority in {region.name}"
        yield Problem(key=f"{key}.database", what=what, fix="local")
    given = accounting.subnet_ids
    if given and not existing:
        yield Problem(key=f"{key}.subnetIds", what="set without network.vpcId", fix="leave it out: the stack makes two")
    elif existing and (len(given) != _SUBNETS or len(set(given)) != _SUBNETS):
        what = "is missing" if not given else f"has {len(set(given))} subnets"
        fix = "two subnets of the existing VPC, in different zones, as RDS wants them"
        yield Problem(key=f"{key}.subnetIds", what=what, fix=fix)


def _alias(model: Model, name: str) -> str:
    return type(model).model_fields[name].alias or name


def strangers(users: Sequence[User], accounts: Accounts) -> list[str]:
    """Report members of an account whom ``users`` does not list, if there is a list: a directory may know them."""
    people = {user.name for user in users} | _OWN
    named = {user for account in accounts for user in account.users}
    return sorted(named - people) if users else []


def charged_problems(users: Sequence[User], accounts: Accounts, *, kept: bool) -> Iterator[Problem]:
    """Report people charged to an account that does not exist. ``kept``: Slurm keeps accounts."""
    names = [account.name for account in accounts]
    for index, user in enumerate(users):
        if user.account is None or user.account in names:
            continue
        key = f"hyperpod:users[{index}].account"
        if not kept:
            fix = "add slurm.accounting and slurm.accounts, or leave it out"
            yield Problem(key=key, what="Slurm keeps no accounts", fix=fix)
        else:
            what = f'there is no account "{user.account}" in slurm.accounts'
            fix = f"one of {', '.join(names)}" if names else "add it there, or leave it out"
            yield Problem(key=key, what=what, fix=fix)


def _names(accounts: Accounts, qualities: Sequence[SlurmQos]) -> Iterator[Problem]:
    for key, named in (("accounts", accounts), ("qos", qualities)):
        for name, times in Counter(one.name for one in named).items():
            if times > 1:
                yield Problem(key=f"{_KEY}.{key}", what=f'{times} are named "{name}"', fix="names must differ")


def _accounts(accounts: Accounts, qualities: Sequence[SlurmQos]) -> Iterator[Problem]:
    parents = {account.name: account.parent for account in accounts}
    known = {NORMAL, *(qos.name for qos in qualities)}
    for index, account in enumerate(accounts):
        key = f"{_KEY}.accounts[{index}]"
        if account.name == ROOT:
            yield Problem(key=f"{key}.name", what="root is Slurm's own account", fix="another name")
        if account.parent != ROOT and account.parent not in parents:
            yield Problem(key=f"{key}.parent", what=f'there is no account "{account.parent}"', fix=_list(parents, ROOT))
        elif _in_a_circle(account.name, parents):
            yield Problem(
                key=f"{key}.parent", what=f"{account.name} is above itself", fix="an account that is not below"
            )
        for qos in account.qos:
            if qos not in known:
                yield Problem(
                    key=f"{key}.qos", what=f'there is no QOS "{qos}"', fix=f"one of {', '.join(sorted(known))}"
                )
        for user, times in Counter(account.users).items():
            if times > 1:
                yield Problem(key=f"{key}.users", what=f'"{user}" is listed {times} times', fix="once")


def _list(parents: Mapping[str, str], root: str) -> str:
    return f"one of {', '.join([root, *sorted(parents)])}"


def _in_a_circle(name: str, parents: Mapping[str, str]) -> bool:
    above, seen = parents[name], {ROOT}
    while above in parents and above not in seen:
        if above == name:
            return True
        seen.add(above)
        above = parents[above]
    return False


def _qos(qualities: Sequence[SlurmQos]) -> Iterator[Problem]:
    known = {NORMAL, *(qos.name for qos in qualities)}
    for index, qos in enumerate(qualities):
        key = f"{_KEY}.qos[{index}].preempts"
        for other in qos.preempts:
            if other not in known:
                yield Problem(key=key, what=f'there is no QOS "{other}"', fix=f"one of {', '.join(sorted(known))}")
            elif other == qos.name:
                yield Problem(key=key, what="a QOS does not preempt itself", fix="others, or leave it out")
