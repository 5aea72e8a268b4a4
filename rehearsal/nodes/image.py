"""The machine image that every host boots from: this Debian, adapted to what HyperPod's image has and lacks.

It is a read-only layer over the machine's own root, made once per run in the sandbox's memory.
"""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import slurm_packages
from .network import Network
from .sandbox import MARK

_STUBS = Path(__file__).parent / "stubs"
# Where HyperPod's image has the commands that stubs replace on a host.
_PLACES = {
    "amazon-cloudwatch-agent": "opt/aws/amazon-cloudwatch-agent/bin",
    "aws": "usr/local/bin",
    "docker": "usr/local/bin",
    "config-translator": "opt/aws/amazon-cloudwatch-agent/bin",
    "hyperpod-efa-capabilities": "usr/local/bin",
    "fi_info": "opt/amazon/efa/bin",
    "neuron-ls": "opt/aws/neuron/bin",
    "lsmod": "usr/sbin",
    "lnetctl": "usr/sbin",
    "modprobe": "usr/sbin",
    "mdadm": "usr/sbin",
}
# The machine's folders that a host sees. The developer's files are not among them.
_SEEN = {"bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "var"}
_MADE = {"dev", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp"}
# Folders of which a host has its own.
_OWN = (
    "etc/cron.d", "etc/munge", "etc/ssh/sshd_config.d", "etc/sysctl.d", "etc/security/limits.d", "etc/systemd/system",
    "home", "mnt", "opt", "root", "srv", "var/lib/munge", "var/lib/slurm", "var/log", "var/spool", "var/tmp",
)  # fmt: skip
_UNIT = """[Unit]
Description=Slurm {what} daemon
After=munge.service network-online.target remote-fs.target
Wants=network-online.target

[Service]
Type=simple
EnvironmentFile=-/etc/default/{name}
ExecStart=/opt/slurm/sbin/{name} -D -s ${options}
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
LimitNOFILE=131072
LimitMEMLOCK=infinity
LimitSTACK=infinity
Delegate=yes

[Install]
WantedBy=multi-user.target
"""
# Debian's units that do not belong in a host: they manage the machine's only kernel, or wait for a user.
_MASKED = (
    "dbus.service", "dbus.socket", "dev-hugepages.mount", "dev-mqueue.mount", "getty.target",
    "proc-sys-fs-binfmt_misc.automount", "sys-fs-fuse-connections.mount", "sys-kernel-config.mount",
    "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path", "systemd-binfmt.service", "systemd-initctl.socket",
    "systemd-journal-flush.service", "systemd-journald-audit.socket", "systemd-logind.service",
    "systemd-modules-load.service", "systemd-random-seed.service", "systemd-sysusers.service",
    "systemd-tmpfiles-setup-dev.service", "systemd-update-utmp-runlevel.service", "systemd-update-utmp.service",
)  # fmt: skip
# chronyd has to start although it may not set the clock.
_CHRONY = "[Unit]\nConditionCapability=\n"
# Every process of a run carries the run's mark, services included.
_MANAGER = "[Manager]\nDefaultEnvironment={mark}\n"
# Scripts run Python isolated from PYTHONPATH. Python still reads .pth files among its own packages, before it looks
# for sitecustomize.
_VIRTUAL_TIME = """import os, sys; \
"REHEARSAL_VIRTUAL_TIME" in os.environ and sys.path.insert(0, "/usr/lib/rehearsal/virtual_time")
"""
_BOOTED = """[Unit]
Description=Says that the host is up
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/usr/bin/touch /run/rehearsal/booted
"""
UBUNTU = 1000
# No account on the machine uses this id. Debian's Slurm packages create a user of the same name.
_SLURM_USER = 64030


def build_image(image: Path, network: Network, environment: Mapping[str, str], slurm: Path) -> None:
    """Create the layer in an empty folder.

    ``environment``: the variables that mark the run's processes. ``slurm``: the folder of a release (slurm_packages).
    """
    image.mkdir(parents=True)
    _hide_the_machine(image)
    _commands(image)
    _accounts(image)
    _slurm(image, slurm)
    _settings(image, network)
    _systemd(image, environment)


def let_sshd_load_slurm(image: Path) -> None:
    """Make sshd use the C library that came with Slurm, which Slurm's PAM module needs in the process that loads it."""
    program = image / "usr/sbin/sshd"
    shutil.copy("/usr/sbin/sshd", program)
    subprocess.run([*slurm_packages.loading(image / "opt/slurm"), str(program)], check=True, capture_output=True)


def snapshot_sysctl(folder: Path) -> None:
    """Copy the machine's kernel settings, so that hosts can read and write them without changing the machine's."""
    for path, folders, files in os.walk("/proc/sys"):
        target = folder / Path(path).relative_to("/proc/sys")
        target.mkdir(parents=True, exist_ok=True)
        folders[:] = [name for name in folders if name != "binfmt_misc"]
        for name in files:
            try:
                (target / name).write_bytes((Path(path) / name).read_bytes())
            except OSError:
                (target / name).touch()


def _hide_the_machine(image: Path) -> None:
    for name in [path.name for path in Path("/").iterdir()]:
        if name not in _SEEN | _MADE:
            _whiteout(image / name)
    for name in sorted(_MADE):
        (image / name).mkdir()
    for name in _OWN:
        folder = image / name
        folder.mkdir(parents=True, exist_ok=True)
        # Overlayfs: the content of this folder in lower layers is hidden.
        os.setxattr(folder, "trusted.overlay.opaque", b"y")
    for key in Path("/etc/ssh").glob("ssh_host_*"):
        _whiteout(image / "etc/ssh" / key.name)
    (image / "root").chmod(0o700)
    (image / "var/tmp").chmod(0o1777)


def _whiteout(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def _commands(image: Path) -> None:
    library = image / "usr/lib/rehearsal"
    library.mkdir(parents=True)
    shutil.copy(_STUBS / "ask.py", library)
    _install(_STUBS / "eks-service", library / "eks-service")
    packages = image / "usr/lib/python3/dist-packages"
    packages.mkdir(parents=True)
    (packages / "rehearsal.pth").write_text(_VIRTUAL_TIME)
    shutil.copytree(_STUBS / "virtual_time", library / "virtual_time", ignore=shutil.ignore_patterns("__pycache__"))
    for source in sorted((_STUBS / "commands").iterdir()):
        _install(source, image / _PLACES.get(source.name, "usr/bin") / source.name)
    shutil.copy("/usr/bin/mount", image / "usr/bin/mount.real")
    for name in ("mkfs.ext4", "mkfs.xfs"):
        (image / "usr/sbin" / name).symlink_to("/usr/bin/true")
    openmpi = image / "opt/amazon/openmpi"
    (openmpi / "bin").mkdir(parents=True)
    (openmpi / "lib").symlink_to(next(Path("/usr/lib").glob("*-linux-gnu")))
    for name in ("mpirun", "mpiexec", "mpicc", "ompi_info"):
        if Path("/usr/bin", name).exists():
            (openmpi / "bin" / name).symlink_to(f"/usr/bin/{name}")


def _install(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    target.chmod(0o755)


def _accounts(image: Path) -> None:
    """Add the users of HyperPod's image: slurm, and ubuntu, who cannot log in until a key is installed."""
    added = {
        "passwd": (
            f"ubuntu:x:{UBUNTU}:{UBUNTU}:Ubuntu:/home/ubuntu:/bin/bash",
            f"slurm:x:{_SLURM_USER}:{_SLURM_USER}::/var/lib/slurm:/usr/sbin/nologin",
        ),
        "group": (f"ubuntu:x:{UBUNTU}:", f"slurm:x:{_SLURM_USER}:"),
        "shadow": ("ubuntu:*:19000:0:99999:7:::", "slurm:*:19000:0:99999:7:::"),
    }
    gone = re.compile(rf"^(ubuntu|slurm):|^[^:]*:[^:]*:({UBUNTU}|{_SLURM_USER}):")
    for name, lines in added.items():
        kept = [entry for entry in Path("/etc", name).read_text().splitlines() if not gone.match(entry)]
        path = image / "etc" / name
        path.write_text("\n".join([*kept, *lines]) + "\n")
        path.chmod(0o640 if name == "shadow" else 0o644)
    home = image / "home/ubuntu"
    home.mkdir()
    os.chown(home, UBUNTU, UBUNTU)
    for name in ("root", "home/ubuntu"):
        (image / name / ".bashrc").write_text("# ~/.bashrc\n")


def _slurm(image: Path, release: Path) -> None:
    shutil.copytree(release, image, symlinks=True, dirs_exist_ok=True)
    (image / "opt/slurm/etc").mkdir()
    system = image / "etc/systemd/system"
    for name, what in (("slurmctld", "controller"), ("slurmd", "node")):
        unit = _UNIT.format(name=name, what=what, options=f"{name.upper()}_OPTIONS")
        (system / f"{name}.service").write_text(unit)
    # The machine may have a Slurm of its own.
    programs = {path.name for name in ("bin", "sbin") for path in (release / "opt/slurm" / name).iterdir()}
    for where in ("usr/bin", "usr/sbin", "usr/lib/systemd/system", "etc/default"):
        for path in Path("/", where).glob("s*"):
            if path.name.removesuffix(".service") in programs and not (image / where / path.name).is_symlink():
                _whiteout(image / where / path.name)
    # Debian's Slurm reads /etc/slurm, HyperPod's reads /opt/slurm/etc.
    (image / "etc/slurm").symlink_to("/opt/slurm/etc")
    for name, user in (("var/spool/slurmctld", "slurm"), ("var/spool/slurmd", "root"), ("var/log/slurm", "slurm")):
        folder = image / name
        folder.mkdir(parents=True)
        _chown(folder, user)
    for name in ("etc/munge", "var/lib/munge", "var/log/munge"):
        folder = image / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        shutil.chown(folder, "munge", "munge")


def _chown(path: Path, user: str) -> None:
    """Change owners by id, since the machine may have no user slurm."""
    number = _SLURM_USER if user == "slurm" else 0
    os.chown(path, number, number)


def _settings(image: Path, network: Network) -> None:
    etc = image / "etc"
    (etc / "hosts").write_text(network.hosts_file())
    # Nothing listens there, so a name that is not in /etc/hosts fails at once.
    resolver = etc / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    (etc / "fstab").write_text("# <source> <mount point> <type> <options> <dump> <pass>\n")
    (etc / "environment").write_text(
        'PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"\n'
    )
    (etc / "default").mkdir(exist_ok=True)
    # -x: a host must never set the machine's clock.
    (etc / "default/chrony").write_text('DAEMON_OPTS="-x -F 0"\n')


def _systemd(image: Path, environment: Mapping[str, str]) -> None:
    units = image / "etc/systemd/system"
    wanted = units / "multi-user.target.wants"
    for folder in (wanted, units / "chrony.service.d", image / "etc/systemd/system.conf.d"):
        folder.mkdir()
    (units / "rehearsal-booted.service").write_text(_BOOTED)
    (units / "chrony.service.d/rehearsal.conf").write_text(_CHRONY)
    mark = " ".join(f"{name}={value}" for name, value in environment.items() if name == MARK)
    (image / "etc/systemd/system.conf.d/rehearsal.conf").write_text(_MANAGER.format(mark=mark))
    for link, target in (
        ("default.target", "/lib/systemd/system/multi-user.target"),
        ("sshd.service", "/lib/systemd/system/ssh.service"),
        ("chronyd.service", "/lib/systemd/system/chrony.service"),
        (f"{wanted.name}/ssh.service", "/lib/systemd/system/ssh.service"),
        (f"{wanted.name}/chrony.service", "/lib/systemd/system/chrony.service"),
        # Debian's systemd package enables it.
        (f"{wanted.name}/remote-fs.target", "/lib/systemd/system/remote-fs.target"),
        (f"{wanted.name}/rehearsal-booted.service", "/etc/systemd/system/rehearsal-booted.service"),
        *((name, "/dev/null") for name in _MASKED),
    ):
        (units / link).symlink_to(target)
    # Units that the machine's other packages generate are not part of HyperPod's image; those from fstab are.
    generators = image / "etc/systemd/system-generators"
    generators.mkdir()
    for path in Path("/usr/lib/systemd/system-generators").iterdir():
        (generators / path.name).symlink_to("/dev/null")
    (generators / "systemd-fstab-generator").unlink()
    _install(_STUBS / "fstab-generator.sh", generators / "systemd-fstab-generator")
    # It would search for processes and mounts once more and sync the machine's disks. When it ends, the kernel ends
    # the host.
    (image / "usr/lib/systemd").mkdir(parents=True, exist_ok=True)
    (image / "usr/lib/systemd/systemd-shutdown").symlink_to("/usr/bin/true")
