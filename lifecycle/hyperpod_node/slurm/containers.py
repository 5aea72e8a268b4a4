"""Containers for Slurm's jobs: Enroot runs them as the job's user, Pyxis gives srun ``--container-image``.

HyperPod's images of 2026 have both, and a line for Pyxis in plugstack.conf; a second copy would make every srun warn
about every option (awsome-distributed-ai, issue 1207 and pull request 1218). So existing ones are used. An older image
gets them from the packages next to the scripts (``hyperpod:slurm.containerPackages``), and from nowhere else.

A node reports what it cannot get, and comes up without it. No job runs outside of its container because of that: if the
controller has the plug-ins and a worker does not, that worker's slurmd does not start.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from ..facts.model import Node
from ..host.errors import NotYet, StepError
from ..host.host import Host
from ..network import environment

# Next to the scripts: packages, and the digests that each of them must have (sha256sum's format).
FOLDER, SUMS = "containers", "SHA256SUMS"
PYXIS = "spank_pyxis.so"
# Where HyperPod's images have it, and where its own `make install` puts it.
PLACES = ("/opt/slurm/lib/slurm", "/usr/local/lib/slurm")
HEADERS = ("/opt/slurm/include", "/usr/include")
# Our plug-in, which sets a task's environment before Pyxis enters the container, in place of TaskProlog.
TASK_SOURCE = "slurm/task_environment.c"
TASK_PLUGIN = f"{PLACES[0]}/hyperpod_task_environment.so"
BUILD = "/var/lib/hyperpod/build"
# Another installation on a fresh node holds dpkg's lock for a minute or two.
LOCK_SECONDS = 120.0
ENROOT, MOUNTS = "/etc/enroot/enroot.conf", "/etc/enroot/mounts.d/50-hyperpod.fstab"
# hyperpod-prolog makes a link here to a folder of the job's user on the fastest disk.
USERS = "/run/hyperpod-enroot"
# Pyxis makes an image of a registry into a file there, in its user's folder, before Enroot unpacks it; by default in
# /run/pyxis, so in memory, and tens of GB do not fit (enroot, issue 83; pyxis, config.c and pyxis_slurmstepd.c).
RUNTIME = f"runtime_path={USERS}"
# Enroot takes the first value that it finds (its config::load), so this stands before the image's own. /dev as it is:
# containers need the EFA and Neuron devices. Homes stay outside: ~/.local would hide the image's packages.
SETTINGS = f"""{environment.BEGIN}
ENROOT_RUNTIME_PATH {USERS}/$(id -u)/run
ENROOT_CACHE_PATH {USERS}/$(id -u)/cache
ENROOT_DATA_PATH {USERS}/$(id -u)/data
ENROOT_TEMP_PATH {USERS}/$(id -u)
ENROOT_ROOTFS_WRITABLE yes
ENROOT_RESTRICT_DEV no
ENROOT_MOUNT_HOME no
{environment.END}
"""
# Every container's mounts of its node (enroot's configuration.md): the trainers' scripts, and the folder for training
# reports. Not by --container-mounts: Pyxis refuses a missing folder, as on nodes without metrics.
_FOLDERS = {"/opt/hyperpod/lib/training": "ro", "/var/spool/hyperpod/training": "rw"}
FSTAB = "".join(
    f"{folder} {folder} none x-create=dir,bind,{mode},nosuid,nodev,private,nofail,silent\n"
    for folder, mode in _FOLDERS.items()
)
# Ubuntu 24.04 has it on: AppArmor allows user namespaces only to programs with a profile (Ubuntu's specification SE045,
# "Unprivileged user namespace restrictions via AppArmor").
RESTRICTED, PROFILES = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "/etc/apparmor.d"
PROFILE = f"{PROFILES}/hyperpod-enroot"


def run(node: Node) -> str:
    """Step ``containers``."""
    host = node.host
    try:
        packages = verified(host.settings.source / FOLDER)
        if host.which("enroot") is None:
            _install(host, [path for path in packages if path.suffix == ".deb"])
        if pyxis(host) is None:
            _build_pyxis(host, [path for path in packages if path.name.startswith("pyxis-")])
        if pyxis(host):
            _build_own(host)
    except StepError as error:
        node.warn(str(error))
    found = {"Pyxis": pyxis(host), "Enroot": host.which("enroot")}
    for name, what in found.items():
        if what is None:
            node.warn(f"there is no {name} in this image; hyperpod:slurm.containerPackages brings it")
    if node.role != "worker":
        # Workers get theirs from the controller, with its slurm.conf.
        settle(host)
    elif found["Enroot"]:
        kept = environment.outside(host.read(ENROOT) or "", environment.BEGIN, environment.END)
        host.write(ENROOT, SETTINGS + "".join(f"{line}\n" for line in kept))
        host.write(MOUNTS, FSTAB)
        _allow_namespaces(node)
    return ", ".join(what for what in found.values() if what) or "none"


def _allow_namespaces(node: Node) -> None:
    """Name the program that makes Enroot's namespaces, if no profile does: its packages have one from 3.5.0 on."""
    host, program = node.host, node.host.which("enroot-nsenter")
    if (host.read(RESTRICTED) or "").strip() != "1" or program is None:
        return
    others = [path for path in host.path(PROFILES).glob("*") if path.is_file() and path.name != Path(PROFILE).name]
    if any("enroot-nsenter" in path.read_text(encoding="utf-8", errors="replace") for path in others):
        return
    host.write(PROFILE, f"abi <abi/4.0>,\nprofile hyperpod-enroot {program} flags=(unconfined) {{\n  userns,\n}}\n")
    done = host.run("apparmor_parser", "--replace", str(host.path(PROFILE)), check=False)
    if done.code != 0:
        node.warn(f"AppArmor lets Enroot have no user namespaces: {done.reason}")


def pyxis(host: Host) -> Optional[str]:
    """Return the path of Pyxis's plug-in on this node, None without it."""
    names = (f"{folder}/{PYXIS}" for folder in PLACES)
    return next((name for name in names if host.path(name).exists()), None)


def ready(host: Host) -> bool:
    """Whether both plug-ins are here, so that this one and not TaskProlog sets tasks' environments."""
    return pyxis(host) is not None and host.path(TASK_PLUGIN).exists()


def settle(host: Host) -> bool:
    """Make plugstack.conf load both plug-ins, if they are here, ours first. Return True if it changed.

    The lines are in this file and not in an included one: slurmctld gives workers only this file. ``required``, because
    with ``optional`` a job would silently run outside of its container (spank(8)).
    """
    name = f"{host.settings.slurm_etc}/plugstack.conf"
    text = host.read(name) or ""
    if not ready(host):
        return False
    first = f"required {TASK_PLUGIN} {host.settings.install_folder}/bin/hyperpod-task-prolog\n"
    kept = "".join(f"{_off_memory(line)}\n" for line in text.splitlines() if TASK_PLUGIN not in line)
    last = "" if _mentioned(host, kept) else f"required {pyxis(host)} {RUNTIME}\n"
    return host.write(name, first + kept + last)


def _off_memory(line: str) -> str:
    """Return the line with our ``runtime_path``, if it loads Pyxis and does not name a disk."""
    words = line.split("#")[0].split()
    if len(words) < 2 or not words[1].endswith(PYXIS):
        return line
    kept = [word for word in words if not word.startswith("runtime_path=/run/")]
    return " ".join(kept if any(word.startswith("runtime_path=") for word in kept) else [*kept, RUNTIME])


def _mentioned(host: Host, text: str) -> bool:
    """Whether plugstack.conf or a file that it includes loads Pyxis."""
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    if any(PYXIS in words[1] for words in lines if len(words) > 1 and words[0] in ("required", "optional")):
        return True
    patterns = [words[1].strip("/") for words in lines if len(words) > 1 and words[0] == "include"]
    texts = [path.read_text() for one in patterns if one for path in host.settings.root.glob(one) if path.is_file()]
    return any(PYXIS in one for one in texts)


def verified(folder: Path) -> List[Path]:
    """Return the packages. Raises StepError if one does not match its digest, for example an incomplete download."""
    sums = folder / SUMS
    wanted = digests(sums.read_text(encoding="utf-8")) if sums.is_file() else {}
    for name, digest in wanted.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise StepError(f"{name} is not what {FOLDER}/{SUMS} says it is: nothing is installed")
    return [folder / name for name in sorted(wanted)]


def digests(text: str) -> Dict[str, str]:
    """Parse a file of sha256sum's, by names, without lines of another form."""
    return {name: digest for digest, name in re.findall(r"^([0-9a-f]{64}) [ *]([^/\n]+)$", text, re.M)}


def _install(host: Host, packages: List[Path]) -> None:
    """Install Enroot and the other packages next to it. The image must have their dependencies: nothing is fetched."""
    if not packages:
        return
    # A killed run may have left it.
    host.run("dpkg", "--configure", "-a", check=False, timeout=120)

    def installed() -> bool:
        done = host.run("dpkg", "--install", *(str(path) for path in packages), check=False, timeout=120)
        if done.code == 0:
            return True
        if "lock was locked" in done.err:
            raise NotYet(done.reason)
        # Half installed it would keep others from installing anything.
        host.run("dpkg", "--remove", *(path.name.split("_")[0] for path in packages), check=False, timeout=120)
        unmet = re.findall(r"depends on ([^;]+); however", done.err)
        raise StepError(f"Enroot is not installed: it needs {', '.join(unmet)}" if unmet else done.reason)

    host.poll("Enroot was not installed", installed, LOCK_SECONDS, first=1.0, most=5.0)


def _build_pyxis(host: Host, archives: List[Path]) -> None:
    """Build Pyxis for this node's Slurm, which refuses a plug-in of another release (Pyxis's README)."""
    if not archives:
        return
    headers = _headers(host, "Pyxis", "make", "cc")
    with _workshop(host) as folder:
        host.run("tar", "-xzf", str(archives[0]), "-C", str(folder), "--strip-components=1", "--no-same-owner")
        # In the environment: as an argument it would replace the Makefile's own flags.
        host.run("make", "-j4", "-C", str(folder), PYXIS, timeout=120, env={"CPPFLAGS": headers})
        host.write_bytes(f"{PLACES[0]}/{PYXIS}", (folder / PYXIS).read_bytes())


def _build_own(host: Host) -> None:
    """Build our plug-in, unless it exists and is of this source."""
    source = host.settings.source / TASK_SOURCE
    copy = f"{host.settings.install_folder}/lib/{source.name}"
    if host.path(TASK_PLUGIN).exists() and host.read(copy) == source.read_text(encoding="utf-8"):
        return
    headers = _headers(host, "the plug-in for tasks' environments", "cc")
    with _workshop(host) as folder:
        made = folder / "made.so"
        host.run("cc", "-O2", "-shared", "-fPIC", headers, "-o", str(made), str(source), timeout=60)
        host.write_bytes(TASK_PLUGIN, made.read_bytes())
    # Last, so that a killed run builds it again.
    host.write(copy, source.read_text(encoding="utf-8"))


def _headers(host: Host, what: str, *commands: str) -> str:
    """Return the compiler's option for Slurm's headers. Raises StepError if a build dependency is missing."""
    missing = [command for command in commands if host.which(command) is None]
    folder = next((one for one in HEADERS if host.path(f"{one}/slurm/spank.h").exists()), None)
    if folder is None:
        missing.append("slurm/spank.h")
    if missing:
        raise StepError(
            f"{what} cannot be built, and jobs cannot run in containers: no {' and no '.join(missing)} here"
        )
    return f"-I{host.path(str(folder))}"


@contextlib.contextmanager
def _workshop(host: Host) -> Iterator[Path]:
    """Return an empty folder to build in; a killed run may have left files there."""
    folder = host.path(BUILD)
    shutil.rmtree(str(folder), ignore_errors=True)
    host.folder(BUILD, mode=0o700)
    yield folder
    shutil.rmtree(str(folder), ignore_errors=True)
