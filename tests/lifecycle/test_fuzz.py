"""Whatever is in what others write, a step says in one line what is wrong, and has made nothing."""

import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hyperpod_commands import bandwidth
from hyperpod_node.facts import identity, parameters
from hyperpod_node.facts.model import Instance, Node
from hyperpod_node.host.errors import Skip, StepError
from hyperpod_node.host.host import Host, Reply
from hyperpod_node.host.imds import Imds, Unavailable
from hyperpod_node.host.settings import Settings
from hyperpod_node.slurm import conf as slurm_conf
from hyperpod_node.slurm import configure
from hyperpod_node.system import clock
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzzing import DEEP, as_text, damaged
from tests.lifecycle.commands.test_bandwidth import OLD
from tests.lifecycle.commands.test_commands import NCCL, NCCOM
from tests.lifecycle.rig import SLURM_CONF, FakeHost, World, facts, group, record

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> FakeHost:
    found = World(tmp_path_factory.mktemp("world")).node("controller")
    # Waits are virtual, but each look costs.
    found.settings = Settings(
        root=found.settings.root, source=found.settings.source, timeouts=dict.fromkeys(found.settings.timeouts, 0.1)
    )
    return found


SILENT = "it does not say why"


def refused(step: Callable[[], object], *kinds: type[Exception]) -> str:
    """Why a step refused, empty where it did not. Any other exception is a traceback."""
    try:
        step()
    except kinds as error:
        return str(error) or SILENT
    return ""


def plain(text: str) -> bool:
    """One word that can stand in a file of words."""
    return bool(text) and text.isprintable() and not any(letter.isspace() for letter in text)


RESOURCES = {
    "ClusterConfig": {"ClusterName": "mine"},
    "InstanceGroups": [
        {
            "Name": "workers",
            "Instances": [
                {"InstanceName": "workers-1", "AgentIpAddress": "172.16.0.1", "CustomerIpAddress": "10.1.0.10",
                 "InstanceId": "i-00000000010101010"},
                {"InstanceName": "workers-2", "CustomerIpAddress": "10.1.0.13", "InstanceId": "i-2"},
            ],
        },
        {"Name": "login", "Instances": None},
    ],
}  # fmt: skip


@given(text=as_text(RESOURCES))
@example(text=DEEP)
def test_a_resource_configuration_names_nodes_or_what_is_wrong(host: FakeHost, text: str) -> None:
    host.path(host.settings.resource_config).write_text(text, encoding="utf-8", errors="surrogatepass")
    node = Node(host)
    parameters.run(node)
    host.changes.clear()
    if why := refused(lambda: identity.run(node), StepError):
        assert "resource_config.json" in why or "resource configuration" in why
        assert node.identity_ is None
    else:
        for instance in node.identity.instances:
            assert all(map(plain, (instance.group, instance.name, instance.instance_id)))
            assert not instance.address or plain(instance.address)
    assert host.changes == []


PARAMETERS = json.loads(parameters.render(facts("ml.p5.48xlarge", "{}")))


@given(text=as_text(PARAMETERS))
@example(text=DEEP)
@example(text=json.dumps({**PARAMETERS, "lost_after_seconds": math.inf}))
@example(
    text=json.dumps({**PARAMETERS, "instance_groups": [{**PARAMETERS["instance_groups"][0], "accelerators": math.inf}]})
)
def test_parameters_are_read_whole_or_the_wrong_key_is_named(host: FakeHost, text: str) -> None:
    (host.settings.source / parameters.FILE_NAME).write_text(text, encoding="utf-8", errors="surrogatepass")
    node = Node(host)
    host.changes.clear()
    why = refused(lambda: parameters.run(node), StepError)
    host.world.render()
    if why:
        assert why.startswith(str(host.settings.source / parameters.FILE_NAME))
        assert node.parameters_ is None
    else:
        found = node.parameters
        assert plain(found.cluster_id)
        assert found.fsx_mount.startswith("/")
        assert found.groups
        assert 0 < found.lost_after_seconds < math.inf
        json.dumps(asdict(found), allow_nan=False)
    assert host.changes == []


STATUS = st.sampled_from([200, 200, 200, 404, 500]) | st.integers(-1, 999)
DATES = st.sampled_from(["", "Sun, 22 Nov 2026 09:00:00 GMT"]) | st.text() | damaged("Sun, 22 Nov 2026 09:00:00 GMT")


@given(data=st.data())
def test_what_instance_metadata_answers_is_taken_or_refused(host: FakeHost, data: st.DataObject) -> None:
    host.path(host.settings.resource_config).write_text(json.dumps(RESOURCES))
    node = World(host.world.folder).node("controller").node()

    def http(method: str, *_: object) -> Reply:
        return Reply(data.draw(STATUS), data.draw(st.text() | st.just("i-0")), data.draw(DATES))

    node.host.http = http  # type: ignore[method-assign, assignment]
    node.host.settings = host.settings
    node.identity_, node.facts = None, {}
    assert refused(lambda: (identity.run(node), clock.run(node)), StepError, Skip) != SILENT


class Server:
    """Answers every connection with the same bytes."""

    def __init__(self) -> None:
        self.answer = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(self.answer)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


GOOD_ANSWER = "HTTP/1.1 200 OK\r\nDate: Sun, 22 Nov 2026 09:00:00 GMT\r\nContent-Length: 3\r\n\r\ni-1"


@given(answer=damaged(GOOD_ANSWER).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary())
@example(answer=GOOD_ANSWER.encode()[:-3] + b"\xff\xff\xff")
@example(answer=GOOD_ANSWER.replace(": 3", ": 30").encode())
def test_bytes_that_are_no_answer_are_no_metadata(server: Server, answer: bytes) -> None:
    server.answer = answer
    host = Host(Settings(root=Path("/none"), imds_url=server.url))
    assert refused(lambda: Imds(host, allow_v1=True, timeout=0.0).get("instance-id"), Unavailable) != SILENT


BITS = ("# Avg bus bandwidth : ", "# Out of bounds values : ", "\n", "\t", "  ", "nan", "inf", "N/A", "1e999", "0x10",
        "9" * 5000, "float", "nccom-test --check\n", "[1,0]<stdout>:", "1e308 1e308 1e308 0\n", "²")  # fmt: skip


@given(
    test=st.sampled_from(["nccl", "nccom"]),
    text=damaged(NCCL, OLD, NCCOM, f"nccom-test allr --check\n{NCCOM}", bits=BITS) | st.text(),
    limit=st.none() | st.floats(0, 1e6),
)
@example(test="nccl", text="9" * 5000 + " 1 float 1 1 1 0\n", limit=None)
@example(test="nccom", text="1 1 f 1 1 1e308\n1 1 f 1 1 1e308\n", limit=None)
def test_what_a_benchmark_prints_is_rated_whatever_it_is(test: str, text: str, limit: float | None) -> None:
    rating = bandwidth.rate(test, text, limit)
    assert rating.passed is not bool(rating.reasons)
    assert not rating.passed or rating.rows
    json.dumps(rating.record(), allow_nan=False)
    assert bandwidth.verdict(rating, [])[-1] in ("PASS", "FAIL")
    bandwidth.placement(text)


GROUPS = {
    "workers": group("workers", "ml.p5.48xlarge"),
    "more": group("more", "ml.trn1.32xlarge"),
    "login": replace(group("login", "ml.m5.large"), role="login"),
}
INSTANCES = (
    Instance("workers", "workers-1", "10.1.0.12", "i-1"),
    Instance("more", "more-1", "10.1.0.13", "i-2"),
    Instance("login", "login-1", "10.1.0.11", "i-3"),
)
CONF_BITS = (
    "NodeName=", "PartitionName=", "SlurmctldHost=", "include ", "include slurm.conf\n", "include .\n", "[1-3,7]",
    "[1-999999999]", "[9-1]", "[x-y]", "[01-10]", "[", "]", "\\\n", "#", "=", '"', "\n", "ip-10-1-0-11", "Topology=",
    "TopologyPlugin=topology/tree\n", "State=", "Gres=", "SlurmdTimeout=²", "SlurmctldPort=", "\0",
    "include accounting.conf\n", "include hyperpod.conf\n",
)  # fmt: skip


@given(text=damaged(SLURM_CONF, bits=CONF_BITS), included=damaged(SLURM_CONF, "", bits=CONF_BITS))
@example(text="NodeName=n[1-x]\n", included="")
@example(text="NodeName=ip-10-1-0-12 NodeAddr=10.1.0.12 State=\n", included="")
@example(text="SlurmctldPort=a\nSlurmdTimeout=²\n", included="")
@example(text="include .\ninclude \0\ninclude accounting.conf\n", included="include slurm.conf\n" * 50)
def test_a_slurm_conf_of_any_kind_is_settled_once_and_for_all(host: FakeHost, text: str, included: str) -> None:
    etc, known = host.settings.slurm_etc, record(*GROUPS.values())
    for name in ("hyperpod.conf", "gres.conf", "topology.conf"):
        host.remove(f"{etc}/{name}")
    for name, content in (("slurm.conf", text), ("accounting.conf", included)):
        host.path(f"{etc}/{name}").write_text(content, encoding="utf-8", errors="surrogatepass", newline="")
    configure.configure(host, known, INSTANCES)
    conf = configure.read(host)
    assert 0 <= conf.port("SlurmctldPort", 6817) <= 99999
    slurm_conf.missing_keys(conf, "/opt/hyperpod/bin")
    slurm_conf.login_nodes(conf, INSTANCES, GROUPS)
    configure.publish(host, known)
    assert not configure.configure(host, known, INSTANCES), "a second time changes something"
