"""Containers: what the image brings is used, what is missing is made from packages, and never half of it."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hyperpod_node.facts.model import Node
from hyperpod_node.host.host import Result
from hyperpod_node.network import environment
from hyperpod_node.slurm import configure, containers

from tests.lifecycle.rig import FakeHost, Killed, World

PLUGSTACK = "/opt/slurm/etc/plugstack.conf"
PYXIS = "/opt/slurm/lib/slurm/spank_pyxis.so"
OURS = "required /opt/slurm/lib/slurm/hyperpod_task_environment.so /opt/hyperpod/bin/hyperpod-task-prolog\n"
# Never /run/pyxis, Pyxis's default, which is in memory.
DISK = "runtime_path=/run/hyperpod-enroot"
LAST = f"required {PYXIS} {DISK}\n"
NAMES = ("enroot_4.1.2-1_amd64.deb", "enroot+caps_4.1.2-1_amd64.deb", "pyxis-0.24.0.tar.gz")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, settings={"slurm": {"containers": True}})


def put(host: FakeHost, name: str, text: str = "") -> None:
    host.path(name).parent.mkdir(parents=True, exist_ok=True)
    host.path(name).write_text(text)


def compiles(host: FakeHost, args: Sequence[str], _: str | None) -> Result:
    Path(args[args.index("-o") + 1]).write_text("ours")
    return Result(0)


def makes(host: FakeHost, args: Sequence[str], _: str | None) -> Result:
    (Path(args[args.index("-C") + 1]) / args[-1]).write_text("built")
    return Result(0)


def installs(host: FakeHost, args: Sequence[str], _: str | None) -> Result:
    if args[1] == "--install":
        host.missing.discard("enroot")
    return Result(0)


@pytest.fixture
def made(world: World) -> Callable[..., FakeHost]:
    """A node of a role, with Slurm's headers; with Enroot and Pyxis where its image brings them."""

    def make(role: str = "worker", *, image: bool = True) -> FakeHost:
        host = world.node(role)
        host.commands |= {"cc": compiles, "make": makes, "dpkg": installs}
        host.commands |= dict.fromkeys(("enroot", "tar"), lambda *_: Result(0))
        put(host, "/opt/slurm/include/slurm/spank.h")
        put(host, containers.ENROOT, "ENROOT_CACHE_PATH /opt/enroot\n")
        if image:
            put(host, PYXIS, "image's")
        else:
            host.missing.add("enroot")
        return host

    return make


def packages(world: World) -> None:
    folder = world.source / containers.FOLDER
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text(name)
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in NAMES]
    (folder / containers.SUMS).write_text("".join(lines))


def run(host: FakeHost) -> Node:
    node = host.node()
    node.enter("containers")
    environment.run(node)
    containers.run(node)
    return node


def test_enroot_keeps_its_files_in_a_folder_of_the_user_before_what_the_image_says(
    made: Callable[..., FakeHost],
) -> None:
    host = made()
    assert not run(host).warnings
    # Enroot takes the first value of a setting.
    assert host.text("/etc/enroot/enroot.conf").splitlines() == [
        "# hyperpod begin",
        "ENROOT_RUNTIME_PATH /run/hyperpod-enroot/$(id -u)/run",
        "ENROOT_CACHE_PATH /run/hyperpod-enroot/$(id -u)/cache",
        "ENROOT_DATA_PATH /run/hyperpod-enroot/$(id -u)/data",
        "ENROOT_TEMP_PATH /run/hyperpod-enroot/$(id -u)",
        "ENROOT_ROOTFS_WRITABLE yes",
        "ENROOT_RESTRICT_DEV no",
        "ENROOT_MOUNT_HOME no",
        "# hyperpod end",
        "ENROOT_CACHE_PATH /opt/enroot",
    ]
    assert host.text("/etc/enroot/mounts.d/50-hyperpod.fstab").splitlines() == [
        f"{folder} {folder} none x-create=dir,bind,{mode},nosuid,nodev,private,nofail,silent"
        for folder, mode in (("/opt/hyperpod/lib/training", "ro"), ("/var/spool/hyperpod/training", "rw"))
    ]
    assert not any(call[0] in ("dpkg", "make") for call in host.calls)
    before = host.tree()
    host.changes.clear()
    assert containers.run(run(host)) == f"{PYXIS}, /usr/bin/enroot"
    assert (host.tree(), host.changes) == (before, [])


# Ubuntu 24.04; the profile of Enroot's packages from 3.5.0 on (NVIDIA/enroot, conf/apparmor.profile).
@pytest.mark.parametrize(
    ("role", "restricted", "profile", "written"),
    [
        ("worker", "1\n", "", True),
        ("worker", "1\n", "/usr/bin/enroot-nsenter flags=(unconfined) {", False),
        ("worker", "0\n", "", False),
        ("worker", "", "", False),
        ("controller", "1\n", "", False),
    ],
)
def test_enroot_may_make_user_namespaces_where_apparmor_lets_only_named_programs(
    role: str, restricted: str, profile: str, written: bool, made: Callable[..., FakeHost]
) -> None:
    host = made(role)
    host.commands |= dict.fromkeys(("enroot-nsenter", "apparmor_parser"), lambda *_: Result(0))
    put(host, "/etc/apparmor.d/usr.bin.man", "/usr/bin/man {\n}\n")
    if profile:
        put(host, "/etc/apparmor.d/enroot", profile)
    if restricted:
        put(host, containers.RESTRICTED, restricted)
    assert not run(host).warnings
    assert host.path(containers.PROFILE).exists() is written
    assert host.ran("apparmor_parser", "--replace") is written
    if written:
        assert "profile hyperpod-enroot /usr/bin/enroot-nsenter flags=(unconfined) {\n  userns,\n}" in host.text(
            containers.PROFILE
        )
        host.commands["apparmor_parser"] = lambda *_: Result(1, err="no such abi")
        assert "AppArmor lets Enroot have no user namespaces" in run(host).warnings["containers"][0]


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("", f"{OURS}{LAST}"),
        ("required auto_resume.so", f"{OURS}required auto_resume.so\n{LAST}"),
        (f"required {PYXIS}\n", f"{OURS}{LAST}"),
        (f"required {PYXIS} runtime_path=/run/pyxis a=b\n", f"{OURS}required {PYXIS} a=b {DISK}\n"),
        ("optional spank_pyxis.so runtime_path=/raid a=b", f"{OURS}optional spank_pyxis.so runtime_path=/raid a=b\n"),
        ("# required spank_pyxis.so\n", f"{OURS}# required spank_pyxis.so\n{LAST}"),
        ("include /opt/slurm/etc/plug.d/*\n", f"{OURS}include /opt/slurm/etc/plug.d/*\n"),
        ("include /opt/slurm/etc/none/*\n", f"{OURS}include /opt/slurm/etc/none/*\n{LAST}"),
    ],
)
def test_pyxis_is_loaded_once_and_after_what_sets_the_tasks_environment(
    made: Callable[..., FakeHost], image: str, wanted: str
) -> None:
    host = made("login")
    put(host, "/opt/slurm/etc/plug.d/pyxis.conf", f"required {PYXIS}\n")
    if image:
        put(host, PLUGSTACK, image)
    run(host)
    assert host.text(PLUGSTACK) == wanted
    assert not containers.settle(host)


def test_workers_take_the_controllers_lines(made: Callable[..., FakeHost]) -> None:
    host = made()
    run(host)
    assert not host.path(PLUGSTACK).exists()


def test_the_lines_return_when_the_agent_rewrites_the_file_and_taskprolog_goes(made: Callable[..., FakeHost]) -> None:
    host = made("controller")
    run(host)
    put(host, PLUGSTACK, f"required {PYXIS}\n")
    assert configure.configure_again(host)
    assert host.text(PLUGSTACK) == f"{OURS}{LAST}"
    assert "TaskProlog" not in host.text("/opt/slurm/etc/hyperpod.conf")
    assert not configure.configure_again(host)


def test_an_image_without_them_gets_the_packages(world: World, made: Callable[..., FakeHost]) -> None:
    packages(world)
    host = made("controller", image=False)
    assert not run(host).warnings
    (call,) = [call for call in host.calls if call[:2] == ("dpkg", "--install")]
    assert {Path(word).name for word in call if word.endswith(".deb")} == set(NAMES[:2])
    assert host.calls[host.calls.index(call) - 1] == ("dpkg", "--configure", "-a")
    build, source = (str(host.path(containers.BUILD)), str(host.settings.source))
    assert [call for call in host.calls if call[0] in ("tar", "make", "cc")] == [
        ("tar", "-xzf", f"{source}/{containers.FOLDER}/{NAMES[2]}", "-C", build, "--strip-components=1",
         "--no-same-owner"),
        ("make", "-j4", "-C", build, "spank_pyxis.so"),
        ("cc", "-O2", "-shared", "-fPIC", f"-I{host.path('/opt/slurm/include')}", "-o", f"{build}/made.so",
         f"{source}/{containers.TASK_SOURCE}"),
    ]  # fmt: skip
    assert host.text(PYXIS) == "built"
    assert host.text(PLUGSTACK) == f"{OURS}{LAST}"
    assert not host.path(containers.BUILD).exists()


def test_nothing_of_packages_that_are_not_what_they_should_be_is_installed(
    world: World, made: Callable[..., FakeHost]
) -> None:
    packages(world)
    (world.source / containers.FOLDER / NAMES[2]).write_text("another's")
    host = made("controller", image=False)
    first, *_ = run(host).warnings["containers"]
    assert first == f"{NAMES[2]} is not what containers/SHA256SUMS says it is: nothing is installed"
    assert not any(call[0] in ("dpkg", "make", "cc") for call in host.calls)


def test_a_node_without_them_says_so_and_keeps_slurm_as_it_is(made: Callable[..., FakeHost]) -> None:
    host = made("controller", image=False)
    assert run(host).warnings["containers"] == [
        f"there is no {name} in this image; hyperpod:slurm.containerPackages brings it" for name in ("Pyxis", "Enroot")
    ]
    assert containers.run(host.node()) == "none"
    configure.configure_again(host)
    assert not host.path(PLUGSTACK).exists()
    assert "TaskProlog=" in host.text("/opt/slurm/etc/hyperpod.conf")


def test_a_node_that_cannot_build_says_what_it_lacks_and_loads_nothing(made: Callable[..., FakeHost]) -> None:
    host = made("login")
    host.missing.add("cc")
    host.path("/opt/slurm/include/slurm/spank.h").unlink()
    what = "the plug-in for tasks' environments"
    assert run(host).warnings["containers"] == [
        f"{what} cannot be built, and jobs cannot run in containers: no cc and no slurm/spank.h here"
    ]
    assert not host.path(PLUGSTACK).exists()


def test_what_enroot_lacks_is_named_and_nothing_stays_half_installed(
    world: World, made: Callable[..., FakeHost]
) -> None:
    packages(world)
    host = made(image=False)
    said = "dpkg: dependency problems:\n enroot depends on jq (>= 1.5); however:\n  Package jq is not installed.\n"
    host.fail["dpkg"] = Result(1, "", said)
    assert run(host).warnings["containers"][0] == "Enroot is not installed: it needs jq (>= 1.5)"
    assert ("dpkg", "--remove", "enroot+caps", "enroot") in host.calls


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("dpkg: error: frontend lock was locked by another process with pid 7",) * 2,
        ("dpkg: cannot read archive\n", "dpkg: cannot read archive"),
    ],
)
def test_an_installation_that_never_ends_well_is_told_in_dpkgs_words(
    world: World, made: Callable[..., FakeHost], said: str, why: str
) -> None:
    packages(world)
    host = made(image=False)
    host.fail["dpkg"] = Result(2, "", said)
    first, *_ = run(host).warnings["containers"]
    waited = "Enroot was not installed within 120 s: " if "locked" in said else ""
    assert first == waited + why
    assert host.clock == pytest.approx(1120 if waited else 1000)


def test_another_installation_is_waited_for(world: World, made: Callable[..., FakeHost]) -> None:
    packages(world)
    host = made(image=False)
    host.fail["dpkg"] = Result(2, "", "dpkg: error: dpkg frontend lock was locked by another process with pid 7")
    host.on_sleep = host.fail.clear
    assert not run(host).warnings
    assert host.text(PYXIS) == "built"


def test_killed_anywhere_it_ends_as_if_it_had_not_been(world: World, made: Callable[..., FakeHost]) -> None:
    packages(world)
    whole = made("login", image=False)
    run(whole)
    wanted = {name: text for name, text in whole.tree().items() if "hyperpod/build" not in name}
    for point in range(1, whole.operations + 1):
        for path in sorted(whole.path("/").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        whole.path("/").rmdir()
        host = made("login", image=False)
        host.kill_at = point
        with pytest.raises(Killed):
            run(host)
        host.kill_at = None
        assert not run(host).warnings
        assert {name: text for name, text in host.tree().items() if "hyperpod/build" not in name} == wanted, point
