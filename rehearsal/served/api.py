"""AWS over HTTP, at one address for all services, as `AWS_ENDPOINT_URL` lets SDKs and the AWS CLI find it."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import botocore.session
from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.models import botocore_stubber

from components.config import Config

from ..account import Account, Refused
from ..account.watching import as_aws
from .answers import Answers, no_kubernetes

# A signature's scope (AWS Signature Version 4): whose key, and for which service.
_SCOPE = re.compile(r"Credential=([^/]+)/\d+/[^/]+/([^/]+)/aws4_request")
# Services whose name in signatures is not botocore's.
_NAMES = {
    "aps": "amp",
    "servicequotas": "service-quotas",
    "tagging": "resourcegroupstaggingapi",
    "monitoring": "cloudwatch",
    "elasticloadbalancing": "elbv2",
    "sso": "sso-admin",
}
Reply = tuple[int, dict[str, str], bytes]


class Api:
    """Answers for one account. Only who knows ``key``, an access key's id, is answered: every user reaches loopback."""

    def __init__(self, account: Account, config: Config, stack: str, key: str, address: str) -> None:
        self._account, self._stack, self._key = account, stack, key
        self.answers = Answers(account, config, stack, address).table

    def reply(self, method: str, path: str, headers: Any, body: bytes) -> Reply:
        """Status, headers and body."""
        scope = _SCOPE.search(headers.get("Authorization", ""))
        if scope is None:
            return 503, {"Content-Type": "application/json"}, no_kubernetes(self._stack)
        service = _NAMES.get(scope[2], scope[2])
        try:
            if scope[1] != self._key:
                raise Refused("UnrecognizedClientException", "The security token included in the request is invalid.")
            # moto is not thread-safe.
            with self._account.lock, as_aws():
                return self._answer(service, method, path, headers, body)
        except Refused as refused:
            return _error(service, refused.code, str(refused).removeprefix(f"{refused.code}: "))

    def _answer(self, service: str, method: str, path: str, headers: Any, body: bytes) -> Reply:
        operation, asked = _asked(service, method, path, headers, body)
        if own := self.answers.get((service, operation)):
            return 200, {"Content-Type": headers.get("Content-Type", "")}, json.dumps(own(asked)).encode()
        url = self._account.client(service).meta.endpoint_url + path
        plain = HTTPHeaders()
        for name, value in headers.items():
            plain[name] = value
        try:
            found = botocore_stubber.process_request(AWSPreparedRequest(method, url, plain, body, False))
        except NotImplementedError:
            found = None
        if found is None:
            raise Refused("NotRehearsed", f"the embedded account does not know {service} {operation or path}")
        status, answered, text = found
        return status, {str(k): str(v) for k, v in answered.items()}, text.encode() if isinstance(text, str) else text


def _asked(service: str, method: str, path: str, headers: Any, body: bytes) -> tuple[str, dict[str, Any]]:
    """The operation and its parameters, in the protocols of the services that `Answers` knows: JSON, and REST."""
    if target := headers.get("X-Amz-Target"):
        return target.rpartition(".")[2], json.loads(body or b"{}")
    plain = path.partition("?")[0]
    for name, verb, template in _rest(service):
        if verb == method and (found := template.fullmatch(plain)):
            return name, {key: unquote(value) for key, value in found.groupdict().items()}
    return "", {}


@cache
def _rest(service: str) -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    """The operations of a service with REST: method, and a pattern of the path."""
    model = botocore.session.get_session().get_service_model(service)
    if model.metadata["protocol"] != "rest-json":
        return ()
    found = [(name, model.operation_model(name).http) for name in model.operation_names]
    return tuple(
        (name, http["method"], re.compile(re.sub(r"\{(\w+)\+?\}", r"(?P<\1>[^/]+)", http["requestUri"].split("?")[0])))
        for name, http in found
    )


def _error(service: str, code: str, message: str) -> Reply:
    """A refusal, for services with JSON in their form, for the others in that of queries."""
    headers = {"x-amzn-ErrorType": code}
    protocol = botocore.session.get_session().get_service_model(service).metadata["protocol"]
    if "json" in protocol:
        return 400, headers, json.dumps({"__type": code, "message": message}).encode()
    text = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return 400, headers, text.encode()


@contextmanager
def serving(account: Account, config: Config, stack: str, key: str) -> Iterator[str]:
    """Listen on loopback, at a free port. Yields the address."""

    class Front(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, text = api.reply(self.command, self.path, self.headers, body)
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _reply  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    server.daemon_threads = True
    address = f"http://127.0.0.1:{server.server_port}"
    api = Api(account, config, stack, key, address)
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
