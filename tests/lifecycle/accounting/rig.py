"""A database of accounting that is not there: sacctmgr on tables in memory, MariaDB as a text."""

# ruff: noqa: ARG002 (fakes have the signatures of what they stand for)
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyperpod_node.__main__ import boot
from hyperpod_node.host.host import Result

from tests.lifecycle.rig import FakeHost, World

SLURM: dict[str, Any] = {
    "accounting": {"database": "local"},
    "accounts": [
        # Before its parent, on purpose.
        {"name": "vision", "parent": "lab", "fairshare": 3, "users": ["ada"], "qos": ["normal", "urgent"]},
        {"name": "lab", "maxGpus": 16},
    ],
    "qos": [{"name": "urgent", "priority": 10, "preempts": ["normal"], "maxGpusPerUser": 8, "maxHours": 48}],
}
# sacctmgr(1), LIST/SHOW ... FORMAT OPTIONS: those of them that are asked for. It refuses others.
_FIELDS = {
    "cluster": {"Cluster"},
    "tres": {"Type", "Name"},
    "qos": {"Name", "Priority", "Preempt", "GrpTRES", "MaxTRESPU", "MaxWall"},
    "assoc": {"Account", "User", "ParentName", "Share", "GrpTRES", "QOS", "DefaultQOS"},
    "user": {"User", "DefaultAccount"},
}
_KEYS = {"parent": "ParentName", "fairshare": "Share", "qos": "QOS", "MaxTRESPerUser": "MaxTRESPU"}


@dataclass
class Database:
    """What sacctmgr(1) shows and changes: QOS by name, associations by account and user, people's default accounts.

    ``text``: MariaDB's dump.
    """

    qos: dict[str, dict[str, str]] = field(default_factory=lambda: {"normal": {"Name": "normal", "Priority": "0"}})
    associations: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    text: str = "-- Dump completed\n"
    clusters: list[str] = field(default_factory=lambda: ["mine"])
    tres: list[str] = field(default_factory=lambda: ["cpu/", "gres/gpu"])

    def sacctmgr(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        words = [word for word in args[1:] if not word.startswith("-")]
        shows = words[0] == "show"
        assert list(args[1 : -len(words)]) == (["--noheader", "--parsable2"] if shows else ["--immediate"]), args
        if shows:
            # A field is cut after a few characters where it has no width, which a minus sets to the left.
            assert re.fullmatch(r"format=\w+%-256(,\w+%-256)*", words[-1]), args
            fields = words[-1].removeprefix("format=").replace("%-256", "").split(",")
            assert set(fields) <= _FIELDS[words[1]], args
            shown = self._show(words[1], fields)
            if words[1] == "assoc" and "cluster=mine" not in words:
                # A database may have those of other clusters, whose accounts are called the same.
                named = ({"Account": name, "ParentName": "root", "Share": "1"} for name in ("lab", "vision"))
                shown += "".join("|".join(row.get(one, "") for one in fields) + "\n" for row in named)
            return Result(0, shown)
        self.commands.append(" ".join(words))
        given = dict(word.split("=", 1) for word in words if "=" in word)
        if words[:2] == ["add", "qos"]:
            self.qos[words[2]] = {"Name": words[2], "Priority": "0"}
        elif words[:2] == ["modify", "qos"]:
            self._set(self.qos[words[2]], words[words.index("set") + 1 :])
        elif words[0] == "add":
            account, user = (words[2], "") if words[1] == "account" else (given["account"], words[2])
            if user:
                self.defaults.setdefault(user, account)
            row = {"Account": account, "User": user, "ParentName": given.get("parent", ""), "Share": "1"}
            self.associations[account, user] = row | {"QOS": "normal"}
        elif words[:2] == ["modify", "user"]:
            self.defaults[given["name"]] = given["DefaultAccount"]
        else:
            self._set(self.associations[given["name"], ""], words[words.index("set") + 1 :])
        return Result(0)

    def _show(self, what: str, fields: Sequence[str]) -> str:
        tables: dict[str, list[dict[str, str]]] = {
            "cluster": [{"Cluster": name} for name in self.clusters],
            "tres": [dict(zip(("Type", "Name"), one.split("/"), strict=True)) for one in self.tres],
            "qos": list(self.qos.values()),
            "assoc": list(self.associations.values()),
            "user": [{"User": user, "DefaultAccount": account} for user, account in self.defaults.items()],
        }
        return "".join("|".join(row.get(one, "") for one in fields) + "\n" for row in tables[what])

    def _set(self, row: dict[str, str], changes: Sequence[str]) -> None:
        for change in changes:
            key, value = change.split("=", 1)
            if "TRES" in key:
                # Other limits stay (sacctmgr(1), "TRES").
                tres, most = value.split("=")
                kept = [part for part in row.get(_KEYS.get(key, key), "").split(",") if part and tres not in part]
                value = ",".join([*kept, f"{tres}={most}"])
            elif key == "MaxWall":
                value = "2-00:00:00" if value == "48:00:00" else value
            row[_KEYS.get(key, key)] = value

    def dump(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        path = next(word for word in args if word.startswith("--result-file=")).partition("=")[2]
        Path(path).write_text(self.text)
        return Result(0)

    def mariadb(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if stdin and "-- Dump completed" in stdin:
            assert "--binary-mode" in args, args
            self.text = stdin
        return Result(0, "1\n" if stdin and "@@skip_networking" in stdin else "")


def with_accounting(world: World, database: Database, **options: Any) -> FakeHost:
    """The controller of a world whose settings have accounting."""
    host = world.node("controller", **options)
    host.commands |= {
        "sacctmgr": database.sacctmgr,
        "mariadb": database.mariadb,
        "mariadb-dump": database.dump,
        "slurmdbd": lambda host, args, stdin: Result(0),
    }
    for unit in ("mariadb", "remote-fs"):
        path = host.path(f"/lib/systemd/system/{unit}.service")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[Service]\n")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    if "SlurmUser" not in conf.read_text():
        conf.write_text("SlurmUser=slurm\n" + conf.read_text())
    return host


def booted(world: World, tables: Database) -> FakeHost:
    """A controller after its first boot."""
    host = with_accounting(world, tables, real_time=True)
    assert boot(host) == 0, host.text("/var/log/hyperpod/summary.json")
    return host


def summary(host: FakeHost) -> dict[str, dict[str, object]]:
    """By step, what a boot said of it."""
    return {step["name"]: step for step in json.loads(host.text("/var/log/hyperpod/summary.json"))["steps"]}
