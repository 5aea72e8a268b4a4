"""What a node asks Kubernetes with its kubelet's credential, and what it says where there is no answer."""

from __future__ import annotations

import http.client
import io
import json
import ssl
import urllib.error
import urllib.request
from email.message import Message
from typing import Any

import pytest
from hyperpod_node.health import kubelet
from hyperpod_node.host.errors import StepError, TooSlow
from hyperpod_node.host.host import Result

from tests.lifecycle.health.fake_kubernetes import KUBECONFIG
from tests.lifecycle.health.rig import put
from tests.lifecycle.rig import FakeHost

NODES = "/api/v1/nodes"


class Opener:
    """urllib's, which remembers a request and answers it."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.handlers = answer, list[Any]()
        self.request: urllib.request.Request
        self.timeout = 0.0

    def __call__(self, *handlers: Any) -> Opener:
        self.handlers = list(handlers)
        return self

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        self.request, self.timeout = request, timeout
        if isinstance(self.answer, Exception):
            raise self.answer
        return io.BytesIO(self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode())


@pytest.fixture
def opener(monkeypatch: pytest.MonkeyPatch) -> Opener:
    found = Opener({})
    monkeypatch.setattr(urllib.request, "build_opener", found)
    return found


API = kubelet.Api("https://eks", "secret", None)


def refusal(body: bytes) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("https://eks", 403, "Forbidden", Message(), io.BytesIO(body))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(b'{"message": "not yours"}'), "refuses: not yours"),
        (refusal(b'{"message": ""}'), "refuses: Forbidden"),
        (refusal(b"[]"), "refuses: Forbidden"),
        (refusal(b"<html>"), "refuses: Forbidden"),
        (OSError("timed out"), "does not answer: timed out"),
        # What an API server that ends in the middle of an answer comes to; it is no OSError.
        (http.client.IncompleteRead(b"{"), "does not answer: IncompleteRead(1 bytes read)"),
        (b"<html>", "does not answer: Expecting value: line 1 column 1 (char 0)"),
        ([], "answers with no object"),
    ],
)
def test_who_does_not_answer_a_question_is_told_without_what_it_was_about(
    opener: Opener, answer: Any, said: str
) -> None:
    opener.answer = answer
    with pytest.raises(StepError) as refused:
        API.pods("one two")
    assert str(refused.value) == f"Kubernetes (GET /api/v1/pods) {said}"


def test_a_request_has_the_token_the_form_that_it_wants_and_no_proxy(opener: Opener) -> None:
    opener.answer = {"items": [{"metadata": {"name": "a"}}]}
    assert API.nodes("group=a/b c") == [{"name": "a"}]
    asked = opener.request
    assert (asked.get_method(), asked.full_url) == ("GET", "https://eks/api/v1/nodes?labelSelector=group%3Da/b%20c")
    assert dict(asked.header_items()) == {
        "Authorization": "Bearer secret",
        # Kubernetes API Concepts, "Metadata-only fetches".
        "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "Content-type": "application/json",
    }
    assert (asked.data, opener.timeout) == (None, 5.0)
    (proxies,) = opener.handlers
    assert proxies.proxies == {}
    context = ssl.create_default_context()
    kubelet.Api("https://eks", "secret", context).patch_node("a b", {"spec": {"unschedulable": True}})
    asked = opener.request
    assert (asked.get_method(), asked.full_url) == ("PATCH", "https://eks/api/v1/nodes/a%20b")
    assert (asked.data, asked.get_header("Accept")) == (b'{"spec": {"unschedulable": true}}', "application/json")
    assert asked.get_header("Content-type") == "application/merge-patch+json"
    assert opener.handlers[1]._context is context


def test_a_credential_that_is_no_nodes_is_not_used(opener: Opener) -> None:
    opener.answer = {"status": {"userInfo": {"username": "admin"}}}
    with pytest.raises(StepError, match=r'^Kubernetes knows this node as "admin", not as system:node:NAME$'):
        API.own_name()
    assert opener.request.data
    assert json.loads(opener.request.data) == {  # type: ignore[arg-type]
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
    }
    opener.answer = {"status": {"userInfo": {}}}
    with pytest.raises(StepError, match='knows this node as ""'):
        API.own_name()


TOKEN = json.dumps({"status": {"token": "secret"}})


def connected(host: FakeHost, said: Result, authority: str = "") -> kubelet.Api:
    put(host, kubelet.KUBECONFIG, KUBECONFIG.format(server="https://eks/"))
    if authority:
        put(host, "/etc/kubernetes/pki/ca.crt", authority)
    host.commands["aws-iam-authenticator"] = lambda *_: said
    return kubelet.connect(host)


@pytest.mark.parametrize("out", ["", "[]", "{}", '{"status": {}}', '{"status": null}'])
def test_a_command_that_gives_no_token_is_told_without_what_it_gave(host: FakeHost, out: str) -> None:
    with pytest.raises(StepError, match=r"^`aws-iam-authenticator` gave no token$"):
        connected(host, Result(0, out))
    with pytest.raises(StepError) as refused:
        connected(host, Result(2, TOKEN, f"{'x' * 300} denied\n"))
    assert str(refused.value) == f"`aws-iam-authenticator` ended with 2: {'x' * 193} denied"


def test_an_authority_that_is_not_there_or_is_none_is_told(host: FakeHost) -> None:
    for text, why in (("", "No such file or directory"), ("no certificate", "")):
        with pytest.raises(StepError, match=rf"^/etc/kubernetes/pki/ca\.crt cannot be read: .*{why}"):
            connected(host, Result(0, TOKEN), text)


def test_a_session_is_with_the_server_of_the_kubeconfig_and_its_token(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: cafile)
    found = connected(host, Result(0, TOKEN))
    assert found == kubelet.Api("https://eks", "secret", host.path("/etc/kubernetes/pki/ca.crt").as_posix())  # type: ignore[arg-type]

    def slow(*_: Any) -> Result:
        raise TooSlow("`aws-iam-authenticator` did not end within 10 s")

    host.commands["aws-iam-authenticator"] = slow
    with pytest.raises(StepError, match="did not end within 10 s"):
        kubelet.connect(host)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("      args:\n        - \"a b\"\n        - 'c'\n        - --d\n      command: x\n", ["a b", "c", "--d"]),
        ("args:\n- a\n- b", ["a", "b"]),
        ("      command: x\n      args: []\n", []),
        ("", []),
    ],
)
def test_the_words_of_the_command_are_those_of_its_list(text: str, words: list[str]) -> None:
    assert kubelet._arguments(text) == words
