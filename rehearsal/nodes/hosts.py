"""One isolated host: its namespaces, its disk, and running things on it."""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .machine import Machine
from .network import INTERFACE, Network, host_name
from .sandbox import BOX, Sandbox, SandboxError, kill, read_line

_BOOT_SECONDS = 60.0
_STOP_SECONDS = 120.0
# How long a command may take to end after its limit.
_GRACE = 10.0
# A login shell's PATH on HyperPod's image.
LOGIN = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}


@dataclass
class Host:
    """A host, running or not. Its disk survives power off, so a reboot keeps files; a replacement is another host."""

    name: str
    instance_id: str
    group: str
    role: str
    address: str
    machine: Machine
    sandbox: Sandbox
    network: Network
    pid: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None

    @property
    def hostname(self) -> str:
        """What ``hostname`` prints, and the node's name in Slurm."""
        return host_name(self.address)

    @property
    def _disk(self) -> Path:
        return self.sandbox.path(f"disks/{self.instance_id}")

    def path(self, inside: str) -> Path:
        """The path by which this process reaches a file of the running host."""
        return Path(f"/proc/{self.pid}/root") / inside.lstrip("/")

    def make(self) -> None:
        """Create an empty disk and the instance type's devices."""
        for name in ("upper", "work", "root", "sysctl", "sysctl-work", "dev", "sys"):
            (self._disk / name).mkdir(parents=True)
        facts = {"endpoint": self.network.endpoint, "interface": INTERFACE, "subnet": str(self.network.subnet)}
        self.machine.write(self._disk, self.instance_id, {**facts, **self.facts})
        for name, text in (("hostname", self.hostname), ("machine-id", secrets.token_hex(16))):
            (self._disk / "upper/etc" / name).write_text(text + "\n")

    def power_on(self) -> None:
        """Boot: namespaces, root, network, process 1. Raises SandboxError. ``serve`` can open sockets beforehand."""
        boot = [
            "sh",
            f"{BOX}/boot.sh",
            f"{BOX}/disks/{self.instance_id}",
            self.hostname,
            f"{BOX}/image",
            f"{BOX}/lustre",
        ]
        namespaces = ("--uts", "--ipc", "--net", "--pid", "--mount", "--fork", "--kill-child")
        self._process = subprocess.Popen(
            self.sandbox.command("unshare", *namespaces, *boot),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.sandbox.environment,
            start_new_session=True,
        )
        answer = read_line(self._process.stdout)
        if not answer.isdigit():
            self._process.kill()
            said = answer or self._process.communicate()[1].strip()
            self.power_off()
            raise SandboxError(f"{self.name} does not boot: {said}")
        self.pid = int(answer)
        self.network.connect(self.pid, self.address)

    def start_services(self) -> None:
        """Start systemd, now that network and metadata are up, and wait until every unit has started or failed."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.close()
        deadline = time.monotonic() + _BOOT_SECONDS
        while not self.path("/run/rehearsal/booted").exists():
            if time.monotonic() > deadline or self._process.poll() is not None:
                waiting = self.run("systemctl list-jobs --no-legend; systemctl --failed --no-legend").stdout
                raise SandboxError(f"{self.name} did not come up: {' '.join(waiting.split()) or 'no process 1'}")
            time.sleep(0.01)

    @property
    def running(self) -> bool:
        """Whether the host has power."""
        return self._process is not None and self._process.poll() is None

    def power_off(self) -> None:
        """Kill everything on the host at once, as a power failure does."""
        if self._process is None:
            return
        kill(self.pid)
        if not self.pid:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._process.wait()
        self._process, self.pid = None, 0

    def shut_down(self) -> None:
        """The first half of ``systemctl reboot``: stop every unit in order."""
        assert self._process is not None
        self.run(["systemctl", "reboot"])
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise SandboxError(f"{self.name} does not shut down") from None

    def discard(self) -> None:
        """Power off and delete the disk."""
        self.power_off()
        shutil.rmtree(self._disk, ignore_errors=True)

    def command(
        self, argv: Sequence[str], *, user: str = "root", environment: Mapping[str, str] | None = None, cwd: str = "/"
    ) -> list[str]:
        """A command line that runs ``argv`` on the host without the machine's environment."""
        values = {**LOGIN, **(environment or {})}
        if user != "root":
            account = self._account(user)
            values |= {"HOME": account[5], "USER": user, "LOGNAME": user}
            argv = ["setpriv", "--reuid", user, "--regid", account[3], "--init-groups", *argv]
        assigned = [f"{key}={value}" for key, value in values.items()]
        mark = [f"{key}={value}" for key, value in self.sandbox.environment.items() if key not in LOGIN]
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", f"--wdns={cwd}"]
        return [*enter, "env", "-i", *assigned, *mark, *argv]

    def run(
        self,
        argv: Sequence[str] | str,
        *,
        timeout: float = 30.0,
        user: str = "root",
        environment: Mapping[str, str] | None = None,
        cwd: str = "/",
        text_in: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command (a string runs in a login bash) and wait. After ``timeout`` it ends with code 124."""
        words = ["bash", "-lc", argv] if isinstance(argv, str) else list(argv)
        limited = ["timeout", "-k", "1", f"{timeout:g}", *words]
        process = subprocess.Popen(
            self.command(limited, user=user, environment=environment, cwd=cwd),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self.sandbox.environment,
        )
        try:
            out, err = process.communicate(text_in, timeout + _GRACE)
        except subprocess.TimeoutExpired as late:
            # A process that the command left behind still holds its output open.
            process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()
            out, err = (part.decode(errors="replace") if part else "" for part in (late.stdout, late.stderr))
            return subprocess.CompletedProcess(words, 124, out, err)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, cwd: str = "/"
    ) -> subprocess.Popen[str]:
        """Start a command. Its stdout and stderr are both on ``stdout``."""
        return subprocess.Popen(
            self.command(argv, environment=environment, cwd=cwd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self.sandbox.environment,
            start_new_session=True,
        )

    def read(self, inside: str) -> str:
        """A file's text, empty if there is no such file."""
        try:
            return self.path(inside).read_text(errors="replace")
        except OSError:
            return ""

    def _account(self, user: str) -> list[str]:
        """The fields of a host's user in passwd(5), who need not exist on the machine."""
        line = next(line for line in self.read("/etc/passwd").splitlines() if line.startswith(f"{user}:"))
        return line.split(":")

    def write(self, inside: str, text: str | bytes, *, mode: int = 0o644, owner: str = "") -> None:
        """Write a file on the host."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        if owner:
            account = self._account(owner)
            os.chown(path, int(account[2]), int(account[3]))
