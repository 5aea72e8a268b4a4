"""Who reaches the embedded account's providers: loopback is open to every user of the machine, the account is not."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2_grpc

from rehearsal.account import Account
from rehearsal.engines.own_user import owners
from rehearsal.engines.provider import serve

# As proc_net_tcp.5 shows them: a listener of root's; both ends of a connection to it from port 40000, of user 1000's;
# one that has ended, of nobody's; and in the table of IPv6 one from port 40002.
TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 100 0 0 10 0
   3: 0100007F:9C40 0100007F:1F91 06 00000000:00000000 03:00000799 00000000     0        0 0 3 0000000019f080b5
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:9C42 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 4 1
"""  # noqa: E501


@pytest.mark.skipif(sys.byteorder != "little", reason="the table above is of a little-endian machine")
def test_a_connection_is_its_callers() -> None:
    assert owners("ipv4:127.0.0.1:40000", TABLE) == {1000}
    assert owners("ipv4:127.0.0.1:40002", TABLE) == {1001}
    assert owners("ipv4:127.0.0.1:40001", TABLE) == set()
    assert owners("unix:", TABLE) == set()


def ask(port: str) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        provider = provider_pb2_grpc.ResourceProviderStub(channel)
        return str(provider.GetPluginInfo(empty_pb2.Empty()).version)


def test_the_same_user_is_served_and_another_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Account("us-west-2") as account, serve(account, tmp_path, ["aws"]) as environment:
        port = environment["PULUMI_DEBUG_PROVIDERS"].partition(":")[2]
        assert ask(port)
        monkeypatch.setattr("os.geteuid", lambda: 12345)
        with pytest.raises(grpc.RpcError) as refused:
            ask(port)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


# Somebody who has changed into another user, after importing what that one may not be able to read.
_CALL = """
import os
import sys
import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2_grpc
os.setresuid(*[int(sys.argv[2])] * 3)
with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
    try:
        provider_pb2_grpc.ResourceProviderStub(channel).GetPluginInfo(empty_pb2.Empty())
    except grpc.RpcError as refused:
        print(refused.code().name)
    else:
        print("SERVED")
"""


@pytest.mark.root
@pytest.mark.parametrize(("user", "answer"), [(0, "SERVED"), (65534, "PERMISSION_DENIED")])
def test_a_process_of_another_user_is_refused(user: int, answer: str, tmp_path: Path) -> None:
    with Account("us-west-2") as account, serve(account, tmp_path, ["aws"]) as environment:
        port = environment["PULUMI_DEBUG_PROVIDERS"].partition(":")[2]
        words = [sys.executable, "-c", _CALL, port, str(user)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == answer, done.stderr
