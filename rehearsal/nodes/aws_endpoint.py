"""AWS as the hosts reach it: one small HTTP server in the VPC, backed by the embedded account."""

import json
import threading
import time
from collections import Counter
from typing import Any

from ..account import Account
from .aws_cli import Caller, Cli
from .http_service import Handler, Service
from .lustre import FileSystem, file_systems_of

# The command's exit code where the service refuses (AWS CLI User Guide, "Command line return codes").
_REFUSED = 254


class Endpoint:
    """Answers the hosts' ``aws`` and ``mount`` commands. ``began`` is the zero of the virtual clock.

    ``callers``: whose credentials an access key belongs to, which a host's metadata gave out, or STS.
    """

    def __init__(self, account: Account) -> None:
        self.file_systems = file_systems_of(account)
        self.began = time.monotonic()
        self.calls: list[tuple[str, list[str], int]] = []
        # How many calls of each operation are throttled for each host; the command has tried again by itself then.
        self.throttle = 0
        self.throttled: Counter[tuple[str, ...]] = Counter()
        self.callers: dict[str, Caller] = {}
        self._cli, self._lock = Cli(account, lambda: self.file_systems, self.callers), threading.Lock()
        self._service: Service | None = None

    def open(self, pid: int, address: str) -> None:
        """Listen at ``address`` in the network namespace of a process."""
        endpoint = self

        class Front(Handler):
            def do_POST(self) -> None:  # noqa: N802
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = endpoint.answer(self.path.strip("/"), self.client_address[0], body)
                self.reply(200, json.dumps(answer), "application/json")

        self._service = Service(pid, address, Front)

    def close(self) -> None:
        """Stop answering."""
        if self._service is not None:
            self._service.close()
            self._service = None

    def now(self, slept: float) -> float:
        """The virtual second: real time since the start, plus the sleeps that the caller skipped."""
        return time.monotonic() - self.began + slept

    def answer(self, what: str, address: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one request of a host."""
        now, caller = self.now(float(body.get("slept", 0))), self.callers.get(str(body.get("key")))
        if what == "lustre":
            return self._mount(str(body["source"]), address, now)
        argv = [str(word) for word in body["argv"]]
        if caller is None:
            return {"rc": 253, "out": "", "err": "\nUnable to locate credentials\n", "files": {}}
        call = (address, *argv[:2])
        if self.throttled[call] < self.throttle:
            self.throttled[call] += 1
            self.calls.append((caller.name, argv, _REFUSED))
            what = "".join(part.title() for part in "".join(argv[1:2]).split("-"))
            said = f"An error occurred (ThrottlingException) when calling the {what} operation: Rate exceeded"
            return {"rc": _REFUSED, "out": "", "err": f"\n{said}\n", "files": {}}
        # moto is not thread-safe.
        with self._lock:
            answer = self._cli.run(argv, dict(body.get("uploads") or {}), caller, now)
        self.calls.append((caller.name, argv, answer["rc"]))
        return answer

    def _mount(self, source: str, address: str, now: float) -> dict[str, Any]:
        """The folder behind a Lustre source. Errors are the Lustre client's."""
        if ":/fsx" in source:
            return self._mount_nfs(source, address, now)
        server, _, name = source.partition("@tcp:/")
        system = next((one for one in self.file_systems if one.dns_name == server), None)
        if system is None:
            return {"rc": 1, "error": "Can't parse NID '" + server + "@tcp'"}
        if system.mount_name != name:
            return {"rc": 2, "error": "No such file or directory\nIs the MGS specification correct?"}
        if system.lifecycle(now) != "AVAILABLE":
            return {"rc": 5, "error": "Input/output error\nIs the MGS running?"}
        return _reached(system, address)

    def _mount_nfs(self, source: str, address: str, now: float) -> dict[str, Any]:
        """The same for OpenZFS. Errors are those of nfs-utils' mount.nfs."""
        system = next((one for one in self.file_systems if one.source == source), None)
        if system is None:
            return {"rc": 32, "error": f"Failed to resolve server {source.split(':')[0]}: Name or service not known"}
        if system.lifecycle(now) != "AVAILABLE":
            return {"rc": 32, "error": "Connection refused"}
        return _reached(system, address)


def _reached(system: FileSystem, address: str) -> dict[str, Any]:
    if system.hangs_once and address not in system.hung:
        system.hung.add(address)
        return {"rc": 0, "hangs": True}
    return {"rc": 0, "folder": system.id, "read_only": system.read_only}
