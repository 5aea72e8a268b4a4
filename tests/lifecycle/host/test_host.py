"""The real machine under the steps: what it reads of the kernel, runs, asks of the network, and says where it fails."""

import fcntl
import os
import pwd
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hyperpod_node.host.errors import Cancelled, StepError
from hyperpod_node.host.host import Host, Reply, Result
from hyperpod_node.host.settings import Settings


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(Settings(root=tmp_path))


def put(host: Host, name: str, text: str) -> None:
    host.path(name).parent.mkdir(parents=True, exist_ok=True)
    host.path(name).write_text(text)


def refuse(*_: Any, **__: Any) -> Any:
    raise OSError(13, "Permission denied")


def unknown(_: Any) -> Any:
    raise KeyError


# Commands


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Result(3, "out\n", "first\n second \n"), "second"),
        (Result(3, " first\nlast\n", " \n"), "last"),
        (Result(3, "", "slurm_load: down\n*****\n\t* *\n"), "slurm_load: down"),
        (Result(3), "exit status 3"),
    ],
)
def test_the_reason_of_a_command_is_its_last_line_that_says_something(result: Result, said: str) -> None:
    assert result.reason == said


def test_a_command_is_found_in_path_first_and_then_where_a_login_shell_looks(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, names in {"first": ("one",), "opt": ("one", "two")}.items():
        for name in names:
            put(host, f"{folder}/{name}", '#!/bin/sh\necho "$0 $LC_ALL $PATH $MORE"\nexec cat\n')
            host.path(f"{folder}/{name}").chmod(0o755)
    host = Host(Settings(root=tmp_path, extra_path=str(tmp_path / "opt")))
    monkeypatch.setenv("PATH", f"{tmp_path}/first:/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE")
    path = f"{tmp_path}/first:/usr/bin:/bin:{tmp_path}/opt"
    assert host.run("one").out == f"{tmp_path}/first/one C {path} \n", "and nothing is on its input"
    assert host.run("two", stdin="in", env={"MORE": "x"}).out == f"{tmp_path}/opt/two C {path} x\nin"
    monkeypatch.delenv("PATH")
    assert host.which("sh") in ("/usr/bin/sh", "/bin/sh")
    assert host.which("three") is None
    with pytest.raises(StepError, match=r"^command not found: three$"):
        host.run("three", "words")


def test_a_program_that_the_kernel_does_not_run_is_named(host: Host, tmp_path: Path) -> None:
    put(host, "bad", "\x7fELF")
    host.path("bad").chmod(0o755)
    with pytest.raises(StepError, match=rf"^cannot run {tmp_path}/bad: .*Exec format error"):
        host.run(str(tmp_path / "bad"))


def test_what_fails_is_told_by_its_first_words_unless_it_may_fail(host: Host) -> None:
    with pytest.raises(StepError, match=r"^`sh -c exit 3 a` failed: exit status 3$"):
        host.run("sh", "-c", "exit 3", "a", "b")
    assert host.run("sh", "-c", "exit 3", check=False).code == 3


def test_nothing_begins_or_waits_after_a_required_step_has_failed(host: Host) -> None:
    host.cancel()
    host.sleep(60)
    for wait in (lambda: host.run("true"), lambda: host.poll("it", lambda: None, 60)):
        with pytest.raises(Cancelled, match=r"^a required step failed$"):
            wait()


def test_each_thread_has_the_time_of_its_own_step(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "now", lambda: 100.0)
    assert host.remaining() == float("inf")
    host.begin(7)
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append(host.remaining()))
    thread.start()
    thread.join()
    assert (host.remaining(), seen) == (7, [float("inf")])
    monkeypatch.setattr(host, "now", lambda: 110.0)
    assert host.remaining() == 0


# Files


def test_files_of_the_kernel_are_read_as_far_as_they_can_be(host: Host) -> None:
    put(host, "sys/one", "a" * 70_000)
    host.path("sys/two").write_bytes(b"\xff")
    host.path("sys/three").mkdir()
    found = host.read_all("/sys", ("one", "two", "three", "four"))
    assert found == {"one": "a" * 65_536, "two": "�"}


def test_an_owner_is_a_name_or_where_there_is_none_a_number(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host, "file", "")
    assert host.owner("file") == pwd.getpwuid(os.getuid()).pw_name
    assert host.home(host.owner("file")) == pwd.getpwuid(os.getuid()).pw_dir
    given: list[tuple[Any, ...]] = []
    monkeypatch.setattr(os, "chown", lambda *args: given.append(args))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=7, pw_gid=8))
    host.chown("/somewhere", "slurm")
    assert given == [("/somewhere", 7, 8)]
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    assert host.owner("file") == str(os.getuid())
    assert host.home("nobody-here") is None


def test_a_mode_or_an_owner_that_was_wrong_is_a_change_and_else_nothing_is(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(host, "file", "text")
    host.path("file").chmod(0o644)
    own = host.owner("file")
    assert not host.secure("file", 0o644, own)
    assert host.secure("file", 0o1600)
    assert (host.path("file").stat().st_mode & 0o7777, host.changes) == (0o1600, ["file"])
    taken: list[str] = []
    monkeypatch.setattr(host, "chown", lambda path, owner: taken.append(f"{path[:14]} {owner}"))
    assert host.write("file", "text", 0o1600, "slurm")
    assert taken == ["/proc/self/fd/ slurm"], "and never by a name that may be a link by now"
    assert host.write("new", "text", owner="slurm")
    assert host.changes == ["file", "file", "new"]


def test_a_link_is_made_once_and_one_that_was_left_half_made_is_no_obstacle(host: Host) -> None:
    put(host, "bin/.a.new", "")
    host.path("bin/.a.new").unlink()
    host.path("bin/.a.new").symlink_to("nowhere")
    for target, changes in (("/one", 1), ("/one", 1), ("/two", 2)):
        host.link("/bin/a", target)
        assert (str(host.path("bin/a").readlink()), len(host.changes)) == (target, changes)
    assert [path.name for path in host.path("bin").iterdir()] == ["a"]
    assert host.remove("/bin/a")
    assert not host.remove("/bin/a")
    assert host.changes == ["/bin/a"] * 3


def test_what_is_left_on_a_disk_is_what_everybody_may_use(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def statvfs(path: str) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(f_bavail=3, f_bfree=5, f_frsize=1024, f_bsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    put(host, "var/file", "")
    assert host.free("/var/lib/none") == 3072
    assert asked == [str(host.path("var"))]


def test_a_folder_that_gives_back_something_else_is_not_writable(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host, "fsx/file", "")
    host.prove_writable("/fsx/not/there")
    probe = host.path(f"fsx/.hyperpod-probe-{host.hostname()}")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda path, encoding: f"stale {path.name}")
        with pytest.raises(StepError, match=r"^/fsx returned something else than was written to it$"):
            host.prove_writable("/fsx")
    assert not probe.exists()
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StepError, match=r"^cannot write to /fsx: Permission denied$"):
        host.prove_writable("/fsx")
    assert not probe.exists()


# The network


@pytest.fixture
def server() -> Iterator[str]:
    """Instance metadata that knows its token, and one address where something else than HTTP answers."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            if self.path == "/garbage":
                self.wfile.write(b"SSH-2.0-OpenSSH\r\n")
                return
            token = self.headers.get("X-aws-ec2-metadata-token") == "token"
            self.send_response_only(200 if token or self.command == "PUT" else 401)
            if self.path != "/dateless":
                self.send_header("Date", "Mon, 23 Nov 2026 10:00:00 GMT")
            self.end_headers()
            self.wfile.write(b"a" * 70_000 if self.path == "/long" else f"{self.command} {self.path}".encode())

        do_GET = do_PUT = answer  # noqa: N815 (http.server's names)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_a_request_goes_straight_there_and_its_answer_has_the_servers_date(
    host: Host, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    date, token = "Mon, 23 Nov 2026 10:00:00 GMT", {"X-aws-ec2-metadata-token": "token"}
    assert host.http("PUT", f"{server}/api", {}, 5) == Reply(200, "PUT /api", date)
    assert host.http("GET", f"{server}/id", token, 5) == Reply(200, "GET /id", date)
    assert host.http("GET", f"{server}/id", {}, 5) == Reply(401, "", date)
    assert host.http("GET", f"{server}/dateless", token, 5) == Reply(200, "GET /dateless", "")
    assert host.http("GET", f"{server}/dateless", {}, 5) == Reply(401, "", "")
    assert len(host.http("GET", f"{server}/long", token, 5).body) == 65_536
    with pytest.raises(OSError, match=r"^no HTTP \(BadStatusLine\)$"):
        host.http("GET", f"{server}/garbage", {}, 5)


def test_a_port_answers_while_somebody_listens(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert host.answers("127.0.0.1", port)
    assert not host.answers("127.0.0.1", port)


def test_a_name_has_its_ipv4_addresses_once_each_or_none(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def known(name: str, port: None, family: int) -> list[Any]:
        assert (name, port, family) == ("db", None, socket.AF_INET)
        return [(family, kind, 6, "", (f"10.0.0.{end}", 0)) for end in (2, 1) for kind in (1, 2)]

    monkeypatch.setattr(socket, "getaddrinfo", known)
    assert host.resolve("db") == ["10.0.0.1", "10.0.0.2"]
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert host.resolve("db") == []
    monkeypatch.setattr(socket, "gethostname", lambda: "ip-10-0-0-1.us-west-2.compute.internal")
    assert host.hostname() == "ip-10-0-0-1"


def test_addresses_are_those_that_the_kernel_takes_for_its_own(host: Host) -> None:
    """/proc/net/fib_trie has every table twice, and what is only on the way: networks and broadcasts."""
    assert host.addresses() == []
    local = (
        "        |-- 10.1.0.12\n           /32 host LOCAL\n        |-- 10.1.255.255\n           /32 link BROADCAST\n"
    )
    main = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/16 2 0 2\n"
    more = "     +-- 127.0.0.0/8 2 0 2\n        |-- 127.0.0.1\n           /32 host LOCAL\n     |-- 10.2.0.7\n"
    put(
        host, "/proc/net/fib_trie", f"{main}{local}{more}        /32 host LOCAL\n{main.replace('Main', 'Local')}{local}"
    )
    assert host.addresses() == ["10.1.0.12", "10.2.0.7"]


def test_the_default_interface_is_that_of_the_route_to_everywhere(host: Host) -> None:
    """/proc/net/route, in which numbers are hexadecimal: destination, gateway, flags, three counts, mask."""
    assert host.default_interface() is None
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
    half = "ens5\t00000000\t0101000A\t0003\t0\t0\t100\t00000080\t0\n"
    near = "ens6\t0000010A\t00000000\t0001\t0\t0\t100\t00000000\t0\n"
    put(host, "/proc/net/route", f"{head}{half}{near}cut\t00000000\t0\t0\t0\t0\t0\n")
    assert host.default_interface() is None
    put(host, "/proc/net/route", f"{head}{half}{near}ens7\t00000000\t0101000A\t0003\t0\t0\t0\t00000000\n")
    assert host.default_interface() == "ens7"
    put(host, "/proc/net/route", "ens7\t00000000\t0101000A\t0003\t0\t0\t0\t00000000\n")
    assert host.default_interface() is None, "the first line is the heading"


def test_an_interfaces_mtu_is_the_kernels(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.mtu("lo") == int(Path("/sys/class/net/lo/mtu").read_text())
    assert host.mtu("none") is None
    # netdevice(7): a name has 15 bytes at most and a zero.
    asked = b"a" * 15 + bytes(241)
    monkeypatch.setattr(fcntl, "ioctl", lambda _, __, given: struct.pack("16si236x", b"", int(given == asked)))
    assert host.mtu("a" * 20) == 1


def test_mounts_are_what_the_kernel_has_at_a_place_at_last(host: Host) -> None:
    assert host.mounts() == {}
    lines = (
        "overlay / overlay rw 0 0\nfs-0a@tcp:/x /fsx autofs rw 0 0\nfs-0a@tcp:/x /fsx lustre rw 0 0\ncut /cut\na /b c\n"
    )
    put(host, "/proc/self/mounts", lines)
    assert host.mounts() == {"/": ("overlay", "overlay"), "/fsx": ("fs-0a@tcp:/x", "lustre"), "/b": ("a", "c")}
