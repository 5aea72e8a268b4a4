"""A host's process 1: the part of systemd that lifecycle scripts meet.

Starts, stops, restarts and remembers units as their files and drop-ins say, and answers ``systemctl`` on a socket.
Not here: cgroups, dependencies other than After, sockets, timers. Standard library only; runs on the host.
"""

# Pathlib alone would take longer to load than all the rest.
# ruff: noqa: PTH101, PTH103, PTH123
# mypy: ignore-errors
import contextlib
import grp
import json
import os
import pwd
import resource
import shlex
import signal
import socket
import sys
import threading
import time
import traceback

sys.path.insert(0, "/usr/lib/rehearsal")
import units

SOCKET = "/run/systemd/private"
JOURNAL = "/var/log/journal"
LIMITS = {"NOFILE": resource.RLIMIT_NOFILE, "MEMLOCK": resource.RLIMIT_MEMLOCK, "STACK": resource.RLIMIT_STACK}
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# systemd's DefaultStartLimitBurst and DefaultStartLimitIntervalSec.
BURST, BURST_SECONDS = 5, 10.0


class Reaper:
    """How every child of process 1 ended: those that it started, and the orphans that fell to it."""

    def __init__(self):
        self.ended = {}
        self.changed = threading.Condition()

    def run(self):
        """Never returns: the first thread's work."""
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(0.02)
                continue
            with self.changed:
                self.ended[pid] = os.waitstatus_to_exitcode(status)
                self.changed.notify_all()

    def wait(self, pid, seconds=None):
        """The exit code, or None when it did not end in time."""
        with self.changed:
            self.changed.wait_for(lambda: pid in self.ended or not alive(pid), seconds)
            return self.ended.get(pid, None if alive(pid) else 0)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Service:
    """One unit's running state."""

    def __init__(self, name, manager):
        self.name, self.manager = name, manager
        self.pid, self.state, self.result = 0, "inactive", "success"
        self.starts, self.lock, self.stopping = [], threading.RLock(), False

    def start(self):
        """Returns an error text, empty when it started."""
        with self.lock:
            if self.state == "active" and alive(self.pid):
                return ""
            unit = units.load(self.name)
            if unit.missing or unit.masked:
                return unit.problem
            if not unit.conditions_met():
                return ""
            self.stopping, self.result = False, "success"
            return self._launch(unit)

    def _launch(self, unit):
        kind = unit.get("Service", "Type", "simple")
        environment = dict(ENVIRONMENT, **unit.environment())
        if "HYPERPOD_REHEARSAL" in os.environ:
            environment["HYPERPOD_REHEARSAL"] = os.environ["HYPERPOD_REHEARSAL"]
        self._directories(unit)
        timeout = units.seconds(unit.get("Service", "TimeoutStartSec", "90"))
        steps = unit.all("Service", "ExecStartPre") + (unit.all("Service", "ExecStart") if kind == "oneshot" else [])
        for line in steps:
            code = self._run(unit, line, environment, timeout)
            if code and not line.startswith("-"):
                return self._failed("exit-code", f"{line.split()[0]} exited with {code}")
        if kind == "oneshot":
            self.state = "active" if unit.get("Service", "RemainAfterExit") == "yes" else "inactive"
            return ""
        command = unit.all("Service", "ExecStart")
        if len(command) != 1:
            return self._failed("bad-setting", f"{self.name} has no ExecStart= setting")
        ready = threading.Event()
        if kind == "notify":
            environment["NOTIFY_SOCKET"] = self.manager.notify_socket(ready)
        pid = self._spawn(unit, command[0], environment)
        if kind == "forking":
            code = self.manager.reaper.wait(pid, timeout)
            if code:
                return self._failed("exit-code", f"control process exited with {code}")
            pid = self._pid_from_file(unit.get("Service", "PIDFile"))
        elif kind == "notify":
            deadline = time.monotonic() + timeout
            while not ready.wait(0.02) and time.monotonic() < deadline:
                if not alive(pid):
                    return self._failed("exit-code", "main process exited")
        self.pid, self.state = pid, "active"
        self.starts.append(time.monotonic())
        threading.Thread(target=self._watch, args=(unit, pid), daemon=True).start()
        return ""

    def _watch(self, unit, pid):
        """Restart the main process as the unit says, once it ends."""
        code = self.manager.reaper.wait(pid)
        while code is None:
            time.sleep(0.05)
            code = self.manager.reaper.wait(pid)
        with self.lock:
            if self.pid != pid or self.stopping:
                return
            self.state, self.result = ("inactive", "success") if code == 0 else ("failed", "exit-code")
            wanted = unit.get("Service", "Restart", "no")
            again = {"always": True, "on-failure": code != 0, "on-abort": code < 0, "on-success": code == 0}
            if not again.get(wanted, False) or str(code) in unit.get("Service", "RestartPreventExitStatus").split():
                return
        time.sleep(units.seconds(unit.get("Service", "RestartSec", "100ms")))
        with self.lock:
            recent = [at for at in self.starts if at > time.monotonic() - BURST_SECONDS]
            if self.pid == pid and not self.stopping and len(recent) < BURST:
                self._launch(units.load(self.name))

    def stop(self):
        with self.lock:
            self.stopping = True
            unit = units.load(self.name)
            for line in unit.all("Service", "ExecStop") if not unit.missing else []:
                self._run(unit, line, dict(ENVIRONMENT, MAINPID=str(self.pid), **unit.environment()), 10)
            if alive(self.pid):
                whole = unit.get("Service", "KillMode", "control-group") == "control-group"
                self._signal(signal.SIGTERM, whole)
                timeout = units.seconds(unit.get("Service", "TimeoutStopSec", "10"))
                if self.manager.reaper.wait(self.pid, timeout) is None and alive(self.pid):
                    self._signal(signal.SIGKILL, whole)
                    self.manager.reaper.wait(self.pid, 5)
            self.pid, self.state = 0, "inactive"
            return ""

    def reload(self):
        unit = units.load(self.name)
        if not alive(self.pid):
            return f"{self.name} is not active, cannot reload."
        environment = dict(ENVIRONMENT, MAINPID=str(self.pid), **unit.environment())
        for line in unit.all("Service", "ExecReload"):
            if self._run(unit, line, environment, 10):
                return f"{self.name} failed: {line}"
        return ""

    def _signal(self, number, whole):
        with contextlib.suppress(OSError):
            if whole:
                os.killpg(os.getpgid(self.pid), number)
            else:
                os.kill(self.pid, number)

    def _failed(self, result, why):
        self.state, self.result = "failed", result
        self.log(why)
        return f"Job for {self.name} failed: {why}. See journalctl -u {self.name}."

    def log(self, line):
        with open(f"{JOURNAL}/{self.name}.log", "a") as file:
            file.write(f"systemd: {line}\n")

    def _pid_from_file(self, path):
        for _ in range(100):
            with contextlib.suppress(OSError, ValueError):
                return int(open(path.replace("/var/run/", "/run/")).read())
            time.sleep(0.02)
        return 0

    def _directories(self, unit):
        user, group = unit.get("Service", "User", "root"), unit.get("Service", "Group")
        for setting, base in (("Runtime", "/run"), ("State", "/var/lib"), ("Logs", "/var/log")):
            for name in unit.get("Service", setting + "Directory").split():
                path = f"{base}/{name}"
                os.makedirs(path, exist_ok=True)
                os.chmod(path, int(unit.get("Service", setting + "DirectoryMode", "0755"), 8))
                owner = pwd.getpwnam(user)
                os.chown(path, owner.pw_uid, grp.getgrnam(group).gr_gid if group else owner.pw_gid)

    def _run(self, unit, line, environment, seconds):
        pid = self._spawn(unit, line, environment)
        code = self.manager.reaper.wait(pid, seconds)
        if code is None:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        return -9 if code is None else code

    def _spawn(self, unit, line, environment):
        argv = units.command(line, environment)
        full_rights = line.lstrip("@-:")[:1] in ("+", "!")
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            os.chdir("/")
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            output = os.open(f"{JOURNAL}/{self.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for key, which in LIMITS.items():
                value = unit.get("Service", "Limit" + key)
                if value:
                    number = resource.RLIM_INFINITY if value == "infinity" else int(value.split(":")[0])
                    try:
                        resource.setrlimit(which, (number, number))
                    except ValueError:
                        # Not every machine lets its root raise limits.
                        most = resource.getrlimit(which)[1]
                        resource.setrlimit(which, (most, most))
            user = unit.get("Service", "User")
            if user and not full_rights:
                who = pwd.getpwnam(user)
                os.initgroups(user, who.pw_gid)
                os.setgid(who.pw_gid)
                os.setuid(who.pw_uid)
            os.execvpe(argv[0], argv, environment)
        except BaseException as error:
            os.write(2, (f"{shlex.join(argv)}: {error}\n").encode())
            os._exit(203)


class Manager:
    def __init__(self):
        self.reaper, self.services, self.lock = Reaper(), {}, threading.Lock()
        self._notify = 0

    def service(self, name):
        name = units.load(name).name
        with self.lock:
            return self.services.setdefault(name, Service(name, self))

    def notify_socket(self, ready):
        self._notify += 1
        path = f"/run/systemd/notify{self._notify}"
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        channel.bind(path)
        os.chmod(path, 0o777)

        def listen():
            while b"READY=1" not in channel.recv(4096):
                pass
            ready.set()

        threading.Thread(target=listen, daemon=True).start()
        return path

    def boot(self):
        """Mount what fstab names, then start what is enabled."""
        if units.mounts_at_boot():
            # Not P_WAIT: every child's end is the reaper's to see.
            self.reaper.wait(os.spawnv(os.P_NOWAIT, "/usr/bin/mount", ["mount", "-a"]), 30)
        for name in units.in_order(units.enabled()):
            service = self.service(name)
            try:
                service.start()
            except Exception:
                service.log(traceback.format_exc())

    def answer(self, request):
        verb, names = request["verb"], request["units"]
        replies = {}
        if verb == "poweroff":
            # What runs, last started first; whoever has power over the machine takes it away then.
            verb = "stop"
            running = [service for service in self.services.values() if service.state == "active" and service.starts]
            names = [service.name for service in sorted(running, key=lambda one: -one.starts[-1])]
        for name in names:
            service = self.service(name)
            error = ""
            if verb in ("start", "stop", "reload"):
                error = getattr(service, verb)()
            elif verb in ("restart", "try-restart"):
                if verb == "restart" or service.state == "active":
                    error = service.stop() or service.start()
            elif verb == "reset-failed" and service.state == "failed":
                service.state = "inactive"
            if service.state == "active" and service.pid and not alive(service.pid):
                service.state = "failed"
            reply = {"error": error, "state": service.state, "pid": service.pid, "result": service.result}
            replies[name] = dict(reply, name=service.name, user=units.load(name).get("Service", "User"))
        return replies

    def serve(self):
        server = socket.socket(socket.AF_UNIX)
        server.bind(SOCKET)
        os.chmod(SOCKET, 0o600)
        server.listen(16)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection):
        with connection, connection.makefile("rwb") as stream:
            try:
                reply = self.answer(json.loads(stream.readline()))
            except Exception as error:
                reply = {"systemd": {"error": repr(error), "state": "failed", "pid": 0, "name": "", "result": ""}}
            stream.write(json.dumps(reply).encode() + b"\n")


def main():
    for path in ("/run/systemd/system", JOURNAL, "/run/lock"):
        os.makedirs(path, exist_ok=True)
    sys.stdin.readline()  # The network is there.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    manager = Manager()

    def begin():
        threading.Thread(target=manager.serve, daemon=True).start()
        try:
            manager.boot()
        finally:
            with open("/run/rehearsal/booted", "w") as file:
                file.write("yes\n")

    threading.Thread(target=begin, daemon=True).start()
    manager.reaper.run()


main()
