"""A host's instance metadata service. It answers like EC2's IMDSv2 unless a scenario says otherwise."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from .http_service import Handler, Service
from .network import IMDS_ADDRESSES

# "v1-only": tokens are neither issued nor required. "down": nothing listens.
Mode: TypeAlias = Literal["v2", "v1-only", "down"]
_TOKEN_PATH = "/latest/api/token"
_DATA = "/latest/meta-data/"


@dataclass(frozen=True)
class Instance:
    """What the service knows about its instance. ``asked``: how often each path was asked for."""

    instance_id: str
    instance_type: str
    address: str
    hostname: str
    region: str
    zone: str
    zone_id: str
    account: str
    mac: str
    role: str
    # The first letters say that they are temporary (IAM User Guide, "IAM identifiers").
    key: str = field(default_factory=lambda: "ASIA" + secrets.token_hex(8).upper())
    asked: Counter[str] = field(default_factory=Counter)

    def documents(self) -> Mapping[str, str]:
        """The document at every path under ``/latest``. SageMaker's instance types are EC2's without ``ml.``."""
        plain = self.instance_type.removeprefix("ml.")
        card = f"network/interfaces/macs/{self.mac}"
        metadata = {
            "instance-id": self.instance_id,
            "instance-type": plain,
            "ami-id": "ami-0123456789abcdef0",
            "local-ipv4": self.address,
            "local-hostname": f"{self.hostname}.{self.region}.compute.internal",
            "hostname": f"{self.hostname}.{self.region}.compute.internal",
            "mac": self.mac,
            "placement/region": self.region,
            "placement/availability-zone": self.zone,
            "placement/availability-zone-id": self.zone_id,
            "services/domain": "amazonaws.com",
            "services/partition": "aws",
            f"{card}/device-number": "0",
            f"{card}/local-ipv4s": self.address,
        }
        identity = {
            "accountId": self.account,
            "instanceId": self.instance_id,
            "instanceType": plain,
            "privateIp": self.address,
            "region": self.region,
            "availabilityZone": self.zone,
        }
        now = datetime.now(UTC)
        metadata[f"iam/security-credentials/{self.role}"] = json.dumps(
            {
                "Code": "Success",
                "LastUpdated": f"{now:%Y-%m-%dT%H:%M:%SZ}",
                "Type": "AWS-HMAC",
                "AccessKeyId": self.key,
                "SecretAccessKey": secrets.token_hex(20),
                "Token": secrets.token_hex(40),
                "Expiration": f"{now + timedelta(hours=6):%Y-%m-%dT%H:%M:%SZ}",
            }
        )
        found = {_DATA + key: value for key, value in metadata.items()}
        found["/latest/dynamic/instance-identity/document"] = json.dumps(identity, indent=2)
        return found


def serve(pid: int, instance: Instance, *, mode: Mode = "v2", delay: float = 0.0, skew: float = 0.0) -> list[Service]:
    """Start a host's service in its network namespace, for both families of addresses; none if the service is down.

    ``delay``: seconds before each response. ``skew``: seconds by which the host's clock is ahead.
    """
    if mode == "down":
        return []
    documents, tokens = instance.documents(), set[str]()

    class Metadata(Handler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((time.time() if timestamp is None else timestamp) - skew)

        def do_PUT(self) -> None:  # noqa: N802
            instance.asked[self.path] += 1
            time.sleep(delay)
            lifetime = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if self.path != _TOKEN_PATH or mode == "v1-only":
                self.reply(404, "")
            elif not lifetime.isdigit() or not 1 <= int(lifetime) <= 21600:
                self.reply(400, "")
            else:
                token = secrets.token_urlsafe(40)
                tokens.add(token)
                self.reply(200, token)

        def do_GET(self) -> None:  # noqa: N802
            instance.asked[self.path] += 1
            time.sleep(delay)
            if mode == "v2" and self.headers.get("X-aws-ec2-metadata-token") not in tokens:
                self.reply(401, "")
                return
            path = self.path.replace("//", "/")
            folder = path.rstrip("/") + "/"
            below = {key[len(folder) :].split("/")[0] for key in documents if key.startswith(folder)}
            if path in documents:
                self.reply(200, documents[path])
            elif below:
                self.reply(200, "\n".join(sorted(below)))
            else:
                self.reply(404, "")

    return [Service(pid, one, Metadata) for one in IMDS_ADDRESSES]
