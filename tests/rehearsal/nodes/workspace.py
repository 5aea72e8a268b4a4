"""A workspace that takes metrics: a signer in the CloudWatch agent's place, a proxy that verifies, a real Prometheus.

The signer is botocore. The proxy computes the signature itself, as the IAM User Guide describes it ("Create a signed
AWS API request"). The CloudWatch agent's own signer is not run here.
"""

import hashlib
import hmac
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from rehearsal.nodes.cluster import Cluster
from rehearsal.nodes.http_service import Handler, Service

# What the stand-in for the agent writes to (stubs/commands/config-translator).
PORT = 9090
_MOST_SKEW = 300.0
RIGHT, WRONG = "a-secret-of-the-right-role", "another-secret"


@dataclass
class Workspace:
    """A receiver on this machine's loopback. ``refused``: the statuses that writes got, other than 2xx."""

    port: int
    region: str
    url: str
    secret: str = RIGHT
    refused: list[tuple[int, str]] = field(default_factory=list)

    def send(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        """Sign a write as the agent does, and give it to the proxy. The status."""
        host = urllib.parse.urlsplit(self.url).netloc
        kept = {name: value for name, value in headers.items() if name.lower().startswith(("content-", "x-prometheus"))}
        request = AWSRequest("POST", f"https://{host}{path}", data=body, headers=kept)
        SigV4Auth(Credentials("AKIDEXAMPLE", self.secret), "aps", self.region).add_auth(request)
        return self.take(path, {**dict(request.headers.items()), "host": host}, body)

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        """The proxy: pass on what is signed with the right key, for this service, region and time."""
        why = complaint({name.lower(): value for name, value in headers.items()}, path, body, self.region)
        if why:
            self.refused.append((403, why))
            return 403
        passed = {name: value for name, value in headers.items() if name.lower().startswith("content-")}
        to = f"http://127.0.0.1:{self.port}/api/v1/write"
        request = urllib.request.Request(to, body, passed)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            self.refused.append((error.code, error.read().decode()))
            return error.code

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What the receiver has now: labels and value."""
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{asked}", timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]


def complaint(headers: Mapping[str, str], path: str, body: bytes, region: str) -> str:
    """Why a request is not what its signature says; empty where it is."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    given = dict(part.strip().split("=", 1) for part in rest.split(",")) if rest else {}
    if scheme != "AWS4-HMAC-SHA256" or set(given) != {"Credential", "SignedHeaders", "Signature"}:
        return "not signed"
    stamp, signed = headers["x-amz-date"], given["SignedHeaders"].split(";")
    scope = given["Credential"].split("/", 1)[1]
    if scope != f"{stamp[:8]}/{region}/aps/aws4_request" or not {"host", "x-amz-date"} <= set(signed):
        return f"scope {scope}, signed {signed}"
    told = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if abs(told.timestamp() - time.time()) > _MOST_SKEW:
        return "the time is another"
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in signed]
    canonical = "\n".join(["POST", path, "", *lines, "", ";".join(signed), hashlib.sha256(body).hexdigest()])
    text = "\n".join([scheme, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{RIGHT}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    right = hmac.new(key, text.encode(), "sha256").hexdigest()
    return "" if hmac.compare_digest(right, given["Signature"]) else "the signature differs"


@contextmanager
def receiving(cluster: Cluster, port: int, folder: Path, url: str) -> Iterator[Workspace]:
    """Prometheus as the receiver, and the address in the VPC that nodes write to."""
    workspace = Workspace(port, cluster.stack.config.region.name, url)

    class Front(Handler):
        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(workspace.send(self.path, dict(self.headers.items()), body), "")

    (folder / "none.yaml").write_text("{}\n")
    server = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/none.yaml", f"--storage.tsdb.path={folder}/data",
         "--web.enable-remote-write-receiver", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
    )  # fmt: skip
    front = Service(cluster.sandbox.pid, cluster.network.endpoint, Front, PORT)
    try:
        yield workspace
    finally:
        front.close()
        server.terminate()
        server.wait()
