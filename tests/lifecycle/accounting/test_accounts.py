"""Slurm's accounts and limits by sacctmgr: what the configuration names is set, and all else is kept and told."""

import dataclasses
import json

import pytest
from hyperpod_node.accounting import accounts
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import Account, Accounting, Default, Node, Qos
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result

from tests.lifecycle.accounting.rig import SLURM, Database, booted, summary, with_accounting
from tests.lifecycle.rig import FakeHost, World

SETTINGS = {"slurm": SLURM}
SHARED = "/fsx/.hyperpod"
WANTED = Accounting(
    "local",
    13,
    (Account("lab", "root", 2, 16, ("urgent", "normal"), ("eve", "bob", "ada")),),
    (Qos("urgent", 10, ("low", "normal"), 32, 8, 48),),
    (),
)


@pytest.fixture
def host(world: World, tables: Database) -> FakeHost:
    """A controller whose daemons run, with nothing in the database."""
    found = with_accounting(world, tables)
    found.remember()
    return found


def test_a_persons_default_account_is_set_where_it_is_another(world: World, tables: Database) -> None:
    host = booted(world, tables)
    assert tables.defaults["ada"] == "vision"
    known = host.node().parameters.accounting
    assert known
    members = [dataclasses.replace(one, users=("ada",)) if one.name == "lab" else one for one in known.accounts]
    wanted = dataclasses.replace(known, accounts=tuple(members), defaults=(Default("ada", "lab"),))
    done, _ = accounts.apply(host, wanted, SHARED)
    assert done == [
        "add user ada account=lab cluster=mine",
        "modify user where name=ada cluster=mine set DefaultAccount=lab",
    ]
    assert tables.defaults["ada"] == "lab"
    assert accounts.apply(host, wanted, SHARED)[0] == []


def applied(world: World, tables: Database, **changes: object) -> tuple[list[str], list[str]]:
    world.render(slurm=SLURM | changes)
    host = with_accounting(world, tables)
    wanted = parameters.parse(parameters.load(Node(host)), "").accounting
    assert wanted is not None
    return accounts.apply(host, wanted, SHARED)


def test_what_people_changed_is_kept_unless_the_configuration_names_it(world: World, tables: Database) -> None:
    booted(world, tables)
    tables.associations["lab", ""]["GrpTRES"] = "cpu=100,gres/gpu=2"
    tables.associations["lab", ""]["Share"] = "9"
    tables.associations["theirs", ""] = {"Account": "theirs"}
    tables.associations["vision", "eve"] = {"Account": "vision", "User": "eve"}
    tables.associations["default", ""]["GrpTRES"] = "gres/gpu=4"
    done, told = applied(world, tables)
    assert done == ["modify account where name=lab cluster=mine set GrpTRES=gres/gpu=16 fairshare=1"]
    assert tables.associations["lab", ""]["GrpTRES"] == "cpu=100,gres/gpu=16"
    assert ("vision", "eve") in tables.associations
    assert tables.associations["default", ""]["GrpTRES"] == "gres/gpu=4"
    assert not [line for line in told if "kept" in line]


def test_what_the_configuration_names_no_more_is_told_and_kept(world: World, tables: Database) -> None:
    booted(world, tables)
    done, told = applied(world, tables, accounts=[{"name": "lab"}], qos=[])
    assert done == []
    assert told == [
        "account vision is not configured any more; it is kept: sacctmgr delete account vision",
        "account lab: max_gpus is not configured any more, and stays 16",
        "qos urgent is not configured any more; it is kept: sacctmgr delete qos urgent",
    ]
    assert ("vision", "") in tables.associations
    assert applied(world, tables, accounts=[{"name": "lab"}], qos=[]) == ([], []), "and told once"


def test_who_and_which_limits_are_named_no_more_is_told_too(host: FakeHost) -> None:
    accounts.apply(host, WANTED, SHARED)
    account, urgent = WANTED.accounts[0], WANTED.qos[0]
    less = dataclasses.replace(
        WANTED,
        accounts=(dataclasses.replace(account, users=("bob",)),),
        qos=(dataclasses.replace(urgent, max_gpus=None, max_gpus_per_user=None, max_hours=None),),
    )
    done, told = accounts.apply(host, less, SHARED)
    assert done == []
    assert told[:-1] == [
        "ada is not configured in account lab any more, and is kept in it: sacctmgr delete user ada account=lab",
        "eve is not configured in account lab any more, and is kept in it: sacctmgr delete user eve account=lab",
        "qos urgent: max_gpus is not configured any more, and stays 32",
        "qos urgent: max_gpus_per_user is not configured any more, and stays 8",
        "qos urgent: max_hours is not configured any more, and stays 48",
    ]


@pytest.mark.parametrize(
    ("table", "key", "other", "done"),
    [
        # sacctmgr(1) shows as 2-00:00:00 what is set as 48:00:00.
        ("qos", "MaxWall", "2-00:00:00", ""),
        ("qos", "MaxWall", "48:00:00", ""),
        ("qos", "MaxWall", "", "MaxWall=48:00:00"),
        ("qos", "MaxWall", "1-12:00:00", "MaxWall=48:00:00"),
        ("qos", "MaxWall", "2-00:00:01", "MaxWall=48:00:00"),
        ("qos", "MaxWall", "2-00:01:00", "MaxWall=48:00:00"),
        ("qos", "MaxWall", "48:00", "MaxWall=48:00:00"),
        ("qos", "Priority", "9", "Priority=10"),
        ("qos", "Priority", "", "Priority=10"),
        ("qos", "Preempt", "", "Preempt=low,normal"),
        ("qos", "Preempt", "normal,low", ""),
        ("qos", "GrpTRES", "cpu=2,gres/gpu=4", "GrpTRES=gres/gpu=32"),
        ("qos", "MaxTRESPU", "gres/gpu=32", "MaxTRESPerUser=gres/gpu=8"),
        ("account", "ParentName", "other", "parent=root"),
        ("account", "Share", "3", "fairshare=2"),
        ("account", "GrpTRES", "", "GrpTRES=gres/gpu=16"),
        ("account", "GrpTRES", "cpu=2,gres/gpu=16", ""),
        ("account", "QOS", "normal", "qos=urgent,normal"),
        ("account", "QOS", "normal,urgent", ""),
        ("account", "DefaultQOS", "", "DefaultQOS=urgent"),
    ],
)
def test_what_is_another_is_set_and_nothing_else(
    host: FakeHost, tables: Database, table: str, key: str, other: str, done: str
) -> None:
    accounts.apply(host, WANTED, SHARED)
    assert accounts.apply(host, WANTED, SHARED)[0] == []
    row = tables.qos["urgent"] if table == "qos" else tables.associations["lab", ""]
    row[key] = other
    where = "qos urgent" if table == "qos" else "account where name=lab cluster=mine"
    assert accounts.apply(host, WANTED, SHARED)[0] == ([f"modify {where} set {done}"] if done else [])


def test_what_preempts_nothing_any_more_is_set_to_nothing(host: FakeHost, tables: Database) -> None:
    accounts.apply(host, WANTED, SHARED)
    qos = (dataclasses.replace(WANTED.qos[0], preempts=()),)
    assert accounts.apply(host, dataclasses.replace(WANTED, qos=qos), SHARED)[0] == ["modify qos urgent set Preempt="]


def test_our_own_user_is_in_an_account_of_its_own_unless_it_is_in_another(host: FakeHost) -> None:
    made = ("add user ubuntu account=default cluster=mine", "add account default parent=root cluster=mine")
    assert set(made) <= set(accounts.apply(host, WANTED, SHARED)[0])
    lab = dataclasses.replace(WANTED.accounts[0], users=("ada", "ubuntu"))
    assert [one.name for one in accounts.in_order((lab,))] == ["lab"]


def test_accounts_that_are_each_others_parents_are_refused() -> None:
    round_about = [Account(name, parent, 1, None, (), ()) for name, parent in (("b", "a"), ("a", "b"), ("c", "root"))]
    with pytest.raises(StepError, match=r"^accounts are each other's parents: a, b$"):
        accounts.in_order(round_about)


def test_a_database_that_does_not_know_the_cluster_yet_is_waited_for_and_then_told_of(
    host: FakeHost, tables: Database
) -> None:
    tables.clusters, tables.tres = [], ["cpu/"]
    with pytest.raises(StepError) as refused:
        accounts.apply(host, WANTED, SHARED)
    assert str(refused.value) == "the database did not know mine within 60 s: it has no cluster and cpu/"
    assert host.clock == pytest.approx(1060)
    tables.clusters = ["other", "mine"]
    with pytest.raises(StepError, match=r": it has mine, other and cpu/$"):
        accounts.apply(host, WANTED, SHARED)
    host.on_sleep = lambda: tables.tres.append("gres/gpu")
    assert accounts.apply(host, WANTED, SHARED)[0]
    assert tables.commands, "and no sooner"


def test_a_cluster_is_called_in_the_database_as_slurm_writes_it(host: FakeHost, tables: Database) -> None:
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("ClusterName=mine", "ClusterName=Mine"))
    assert "add account lab parent=root cluster=mine" in accounts.apply(host, WANTED, SHARED)[0]


def test_the_step_says_how_much_it_has_changed_and_warns_of_what_it_kept(host: FakeHost, tables: Database) -> None:
    node = host.node()
    node.enter("slurm-accounts")
    assert accounts.run(node) == f"{len(tables.commands)} changes"
    assert accounts.run(node) == "as configured"
    said = "no user here yet, so that Slurm refuses their jobs: ada; then run this again"
    assert node.warnings["slurm-accounts"] == [said, said]
    assert host.path(f"{SHARED}/private/slurm-accounts.json").stat().st_mode & 0o777 == 0o600


def test_the_command_says_what_it_has_done_and_what_it_kept(
    host: FakeHost, tables: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(accounts, "Host", lambda _: host)
    monkeypatch.setattr(FakeHost, "home", lambda host, user: f"/home/{user}")
    text = json.dumps(dataclasses.asdict(WANTED))
    assert accounts.main(["--dry-run"], lambda: text) == 0
    planned = capsys.readouterr().out
    assert tables.commands == []
    assert accounts.main([], lambda: text) == 0
    out, err = capsys.readouterr()
    assert planned == out.replace("done: ", "would do: ")
    assert (out, err) == ("".join(f"done: sacctmgr {one}\n" for one in tables.commands), "")
    assert accounts.main([], lambda: text) == 0
    assert capsys.readouterr().out == "nothing to change\n"
    assert accounts.main([], lambda: json.dumps(dataclasses.asdict(dataclasses.replace(WANTED, qos=())))) == 0
    kept = "qos urgent is not configured any more; it is kept: sacctmgr delete qos urgent"
    assert capsys.readouterr().out == f"kept: {kept}\nnothing to change\n"


def test_people_who_have_no_user_yet_are_named_and_slurm_learns_of_them_later(
    world: World, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = booted(world, tables)
    assert "refuses their jobs: ada" in str(summary(host)["slurm-accounts"]["warnings"])
    monkeypatch.setattr(FakeHost, "home", lambda host, user: f"/home/{user}")
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(FakeHost, "execute", recording(FakeHost.execute, asked))
    assert applied(world, tables)[1] == []
    assert ("scontrol", "reconfigure") in asked


def recording(execute: object, asked: list[tuple[str, ...]]) -> object:
    def run(host: FakeHost, args: tuple[str, ...], *more: object) -> Result:
        asked.append(args)
        return execute(host, args, *more)  # type: ignore[operator, no-any-return]

    return run


def test_a_file_of_accounts_from_outside_is_checked_before_anything_is_changed(
    world: World, tables: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    booted(world, tables)
    before = list(tables.commands)
    wrong = {"database": "local", "retention_months": 13, "accounts": [{"name": "Bad Name"}], "qos": [], "defaults": []}
    assert accounts.main([], lambda: json.dumps(wrong)) == 1
    assert "accounting.accounts[0]" in capsys.readouterr().err
    assert tables.commands == before
