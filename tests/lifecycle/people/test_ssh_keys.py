"""SSH: keys that are the same everywhere, made once, private, and never asked about."""

import stat
from pathlib import Path

import pytest
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import Skip, StepError
from hyperpod_node.people import ssh_folder, ssh_keys
from hyperpod_node.storage import fsx

from tests.lifecycle.rig import HOME, VPC, FakeHost, World


def ready(host: FakeHost) -> Node:
    node = host.node()
    fsx.run(node)
    node.enter("keys")
    return node


HOMES = {"root": "/root", "ubuntu": "/home/ubuntu"}


def cluster(world: World) -> dict[str, FakeHost]:
    """A node of each role after its step."""
    hosts = {role: world.node(role) for role in ("controller", "login", "worker")}
    for host in hosts.values():
        ssh_keys.run(ready(host))
    return hosts


def allowed(host: FakeHost, user: str) -> list[str]:
    return (host.read(f"{HOMES[user]}/.ssh/authorized_keys") or "").splitlines()


def test_people_have_one_key_on_all_nodes_and_all_nodes_know_each_other(world: World) -> None:
    hosts = cluster(world)
    for host in hosts.values():
        assert host.text("/home/ubuntu/.ssh/id_hyperpod") == "PRIVATE ubuntu ip-10-1-0-10\n"
        assert host.path("/home/ubuntu/.ssh/id_hyperpod").stat().st_mode & 0o777 == 0o600
        assert host.path("/home/ubuntu/.ssh").stat().st_mode & 0o777 == 0o700
        for name in (".ssh", ".ssh/id_hyperpod", ".ssh/id_hyperpod.pub"):
            assert host.owner(f"/home/ubuntu/{name}") == "ubuntu"
    assert [line.split()[2] for line in allowed(hosts["worker"], "ubuntu")] == ["CLUSTER-ubuntu-ip-10-1-0-10"]
    known = (world.shared / ".hyperpod/known_hosts").read_text()
    for host in hosts.values():
        assert f"{host.hostname()},{host.address} ssh-ed25519 HOSTKEY{host.address}\n" in known


def test_only_root_of_the_controller_reaches_workers_and_ends_jobs_there(world: World) -> None:
    hosts = cluster(world)
    assert hosts["controller"].text("/root/.ssh/id_hyperpod") == "PRIVATE controller ip-10-1-0-10\n"
    for role in ("login", "worker"):
        assert hosts[role].read("/root/.ssh/id_hyperpod") is None
    (line,) = allowed(hosts["worker"], "root")
    command = 'restrict,command="/opt/hyperpod/bin/hyperpod-end-job"'
    key = "ssh-ed25519 CLUSTER-controller-ip-10-1-0-10 hyperpod mine-12345678 controller"
    assert line == f'from="10.0.0.0/16,10.1.0.0/16",{command} {key}'


def test_no_key_that_root_on_a_worker_can_read_lets_in_on_the_controller_or_a_login_node(world: World) -> None:
    hosts = cluster(world)
    readable = [
        path.read_text() for top in (hosts["worker"].settings.root, world.shared) for path in top.rglob("*.pub")
    ]
    keys = {text.split()[1] for text in readable if "CLUSTER" in text}
    assert len(keys) == 2
    for role in ("controller", "login"):
        assert not [line for user in HOMES for line in allowed(hosts[role], user)]
    assert (world.shared / ".hyperpod/private").stat().st_mode & 0o777 == 0o700


def test_home_folders_that_are_the_same_everywhere_hold_the_workers_line(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"network": VPC, "fsx": {"homeFileSystemId": HOME}})
    for host in cluster(world).values():
        # An existing VPC's address ranges are not known.
        (line,) = allowed(host, "ubuntu")
        assert line.startswith("ssh-ed25519 CLUSTER-ubuntu-")


@pytest.mark.parametrize("role", ["controller", "login", "worker"])
def test_a_node_of_earlier_scripts_loses_the_key_that_made_root_everywhere(world: World, role: str) -> None:
    host = world.node(role)
    node = ready(host)
    old = world.shared / ".hyperpod/private/ssh-root"
    old.mkdir()
    for user, home in HOMES.items():
        public = f"ssh-ed25519 OLD-{user} hyperpod mine-12345678 {user}\n"
        host.path(f"{home}/.ssh").mkdir(mode=0o700)
        lines = f"ssh-rsa AAAA somebody\n{public}"
        for name, text in (("id_hyperpod", "OLD"), ("id_hyperpod.pub", public), ("authorized_keys", lines)):
            host.path(f"{home}/.ssh/{name}").write_text(text)
            (old / name).write_text(text)
    ssh_keys.run(node)
    assert not old.exists()
    left = [(path, text) for path, (_, text) in host.tree().items() if "OLD" in text]
    assert left == []
    assert allowed(host, "root")[0] == allowed(host, "ubuntu")[0] == "ssh-rsa AAAA somebody"
    before = host.tree()
    host.changes.clear()
    ssh_keys.run(node)
    assert (host.tree(), host.changes) == (before, [])


@pytest.mark.parametrize("name", ["authorized_keys", "id_hyperpod", ".id_hyperpod.ip-10-1-0-12.new"])
def test_a_link_planted_by_a_user_is_replaced_and_not_followed(world: World, name: str) -> None:
    host, outside = world.node("worker"), world.folder / "outside"
    outside.write_text("not yours\n")
    outside.chmod(0o640)
    host.path("/home/ubuntu/.ssh").mkdir(mode=0o700)
    host.path(f"/home/ubuntu/.ssh/{name}").symlink_to(outside)
    ssh_keys.run(ready(host))
    assert (outside.read_text(), outside.stat().st_mode & 0o777) == ("not yours\n", 0o640)
    assert not host.path("/home/ubuntu/.ssh/authorized_keys").is_symlink()
    assert "not yours" not in host.text("/home/ubuntu/.ssh/authorized_keys")
    assert host.owners.get(str(outside)) is None


@pytest.mark.parametrize("name", ["", "/.hyperpod-lock"])
def test_a_folder_or_a_lock_that_is_a_link_is_not_used_and_nothing_behind_it_is_changed(
    world: World, name: str
) -> None:
    host, outside = world.node("worker"), world.folder / "outside"
    outside.mkdir(mode=0o755)
    if name:
        host.path("/home/ubuntu/.ssh").mkdir(mode=0o700)
    host.path(f"/home/ubuntu/.ssh{name}").symlink_to(outside if not name else outside / "made")
    node = ready(host)
    node.enter("ssh")
    assert ssh_keys.run(node) == "keys made for the controller"
    said = "ubuntu has no key of the cluster: /home/ubuntu/.ssh is not used, and no link in it is followed: "
    assert node.warnings["ssh"][0].startswith(said)
    assert (list(outside.iterdir()), outside.stat().st_mode & 0o777) == ([], 0o755)


def test_a_link_that_is_planted_in_the_last_moment_is_not_written_through(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = world.node("worker")
    with ssh_folder.opened(host, "ubuntu") as folder:
        new = f".authorized_keys.{host.hostname()}.new"
        host.path(f"/home/ubuntu/.ssh/{new}").symlink_to(tmp_path / "made")
        monkeypatch.setattr(Path, "unlink", lambda _: None)
        with pytest.raises(FileExistsError):
            folder.write("authorized_keys", "x", 0o600)
    assert not (tmp_path / "made").exists()


def test_host_keys_are_always_checked_and_only_ours_are_meant(world: World) -> None:
    host = world.node("worker")
    ssh_keys.run(ready(host))
    text = host.text(ssh_keys.CLIENT)
    assert "StrictHostKeyChecking yes" in text
    assert "Host 10.1.* ip-10-1-* !*.internal\n" in text
    every = "".join(text for _, text in host.tree().values())
    assert "StrictHostKeyChecking no" not in every
    assert "Host *" not in every


def test_keys_that_are_there_are_taken(world: World) -> None:
    assert ssh_keys.run(ready(world.node("controller"))) == "keys made for the controller, ubuntu"
    assert ssh_keys.run(ready(world.node("worker"))) == "keys taken"


def test_a_client_takes_no_settings_from_where_other_nodes_may_write(world: World) -> None:
    """ssh's settings can have commands; a list of host keys cannot."""
    host = world.node("controller")
    ssh_keys.run(ready(host))
    named = [line.split()[0] for line in host.text(ssh_keys.CLIENT).splitlines() if "/fsx" in line]
    assert named == ["GlobalKnownHostsFile"]


def test_a_replaced_node_of_the_same_name_is_known_by_its_new_key(world: World) -> None:
    ssh_keys.run(ready(world.node("worker")))
    host = world.node("worker")
    host.path("/etc/ssh/ssh_host_ed25519_key.pub").write_text("ssh-ed25519 NEWKEY root@x\n")
    ssh_keys.run(ready(host))
    known = (world.shared / ".hyperpod/known_hosts").read_text()
    assert "NEWKEY" in known
    assert "HOSTKEY10.1.0.12" not in known


def test_a_node_whose_image_has_no_host_keys_makes_and_publishes_its_own(world: World) -> None:
    host = world.node("worker")
    host.path("/etc/ssh/ssh_host_ed25519_key.pub").unlink()
    ssh_keys.run(ready(host))
    assert "HOSTKEY10.1.0.12" in (world.shared / ".hyperpod/known_hosts").read_text()


def test_the_cluster_key_works_from_the_clusters_addresses_alone_where_they_are_known(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"network": {"cidr": "10.1.0.0/16", "secondaryCidr": ""}})
    host = world.node("worker")
    ssh_keys.run(ready(host))
    assert allowed(host, "ubuntu")[0].startswith('from="10.1.0.0/16" ssh-ed25519 CLUSTER')
    assert allowed(host, "root")[0].startswith('from="10.1.0.0/16",restrict,command=')


def test_other_peoples_lines_in_authorized_keys_stay(world: World) -> None:
    host = world.node("worker")
    host.path("/root/.ssh").mkdir(mode=0o700)
    host.path("/root/.ssh/authorized_keys").write_text("# mine\nssh-rsa AAAA somebody\n")
    ssh_keys.run(ready(host))
    assert host.text("/root/.ssh/authorized_keys").startswith(
        '# mine\nssh-rsa AAAA somebody\nfrom="10.0.0.0/16,10.1.0.0/16",restrict'
    )


def test_passwords_are_refused(world: World) -> None:
    host = world.node("worker")
    host.active.add("ssh")
    ssh_keys.run(ready(host))
    assert "PasswordAuthentication no" in host.text(ssh_keys.SERVER)
    assert host.ran("systemctl", "reload", "ssh")
    assert stat.S_IMODE(host.path(ssh_keys.SERVER).stat().st_mode) == 0o600
    # Red Hat's name for it; a server that reads no folder of settings is told of.
    host.path("/lib/systemd/system/ssh.service").unlink()
    host.path("/etc/ssh/sshd_config").write_text("Port 22\n")
    node = ready(host)
    ssh_keys.run(node)
    assert host.ran("systemctl", "start", "sshd")
    assert node.warnings == {"keys": ["sshd reads no /etc/ssh/sshd_config.d; its own settings stay in force"]}
    host.active.add("sshd")
    host.path(ssh_keys.SERVER).write_text("")
    ssh_keys.run(node)
    assert host.ran("systemctl", "reload", "sshd")


def test_a_persons_key_from_parameter_store_lets_them_in_as_ubuntu(tmp_path: Path) -> None:
    world = World(tmp_path, parameters={"/hyperpod/mine/ssh-public-key": "ssh-ed25519 PERSON me@laptop"})
    host = world.node("worker")
    ssh_keys.users_key(ready(host))
    assert "ssh-ed25519 PERSON me@laptop\n" in host.text("/home/ubuntu/.ssh/authorized_keys")
    assert host.read("/root/.ssh/authorized_keys") is None
    # The same key is there once, by the stack's words for it; another's, of whatever kind, stays.
    keys = host.path("/home/ubuntu/.ssh/authorized_keys")
    others = "ssh-ed25519 OTHER me@laptop\necdsa-sha2 PERSON x\nsk-ssh PERSON x\n# ssh-ed25519\n"
    keys.write_text(f'{others}from="10.0.0.0/8" ssh-ed25519 PERSON old\nssh-ed25519 PERSON\n')
    assert ssh_keys.users_key(ready(host)) == "/hyperpod/mine/ssh-public-key may log in as ubuntu"
    assert keys.read_text() == f"{others}ssh-ed25519 PERSON me@laptop\n"


def test_without_a_configured_key_there_is_nothing_to_fetch(world: World) -> None:
    with pytest.raises(Skip):
        ssh_keys.users_key(ready(world.node("worker")))


def test_a_missing_parameter_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, parameters={"/other": "x"})
    with pytest.raises(StepError, match=r"parameter /hyperpod/mine/ssh-public-key: .*ParameterNotFound"):
        ssh_keys.users_key(ready(world.node("worker")))
