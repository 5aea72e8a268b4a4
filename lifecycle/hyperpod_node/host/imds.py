"""The instance metadata service, by session token (IMDSv2); without one only where the configuration allows it."""

from __future__ import annotations

from typing import Optional

from .host import Host, Reply

_TOKEN_SECONDS = "300"


class Unavailable(Exception):
    """The service is unavailable; the text says how it failed."""


class Imds:
    """One session. The token is requested once."""

    def __init__(self, host: Host, allow_v1: bool, timeout: float) -> None:
        self._host, self._allow_v1, self._timeout = host, allow_v1, timeout
        self._token: Optional[str] = None
        self.date = ""

    def get(self, path: str) -> str:
        """Return one value. Raises Unavailable."""
        if self._token is None:
            self._token = self._new_token()
        headers = {"X-aws-ec2-metadata-token": self._token} if self._token else {}
        reply = self._ask("GET", f"/latest/meta-data/{path}", headers)
        if reply.status != 200:
            raise Unavailable(f"instance metadata refused {path} with status {reply.status}")
        return reply.body.strip()

    def _new_token(self) -> str:
        """Return a token; an empty one if the service has none and the configuration allows that."""
        reply = self._ask("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS})
        if reply.status == 200:
            return reply.body.strip()
        if self._allow_v1:
            return ""
        raise Unavailable(
            f"instance metadata gave no session token (status {reply.status}), and IMDSv1 is not allowed (imds_v1)"
        )

    def _ask(self, method: str, path: str, headers: "dict[str, str]") -> Reply:
        url = self._host.settings.imds_url + path
        end = self._host.now() + self._timeout
        # A new instance's first connection may be refused; a short wait is cheaper than a lost node.
        wait = 0.05
        while True:
            left = end - self._host.now()
            try:
                reply = self._host.http(method, url, headers, max(0.1, left))
                self.date = reply.date or self.date
                return reply
            except OSError as error:
                if self._host.now() + wait >= end:
                    why = getattr(error, "reason", None) or error
                    raise Unavailable(f"instance metadata did not answer at {url}: {why}") from None
            self._host.sleep(wait)
            wait = min(wait * 2, 0.5)
