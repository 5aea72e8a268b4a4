"""Grafana's HTTP API: what an import needs of it, with every answer that its reference documents.

Every request may be sent again: the same folder, data source and dashboards are there afterwards.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util import Retry

from ..failures import Failure, bad_input, cannot_know

_SECONDS = 30
_ATTEMPTS = 3
_GOOD = (200, 201)
_PASSING = (429, 500, 502, 503, 504)
_HERE = ("localhost", "127.0.0.1", "::1")


class _Bearer(AuthBase):
    """The token, set last: a machine's .netrc does not replace it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Grafana:
    """One Grafana, at an address, with a token of a service account. The token is in no message and no exception."""

    def __init__(self, url: str, token: str, *, pause: float = 1.0) -> None:
        """``pause`` is the first wait before a request is repeated, in seconds; each next one is twice as long.

        Raises Failure where the token would cross a network in the clear.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise bad_input(f"{url} is not the address of a Grafana", "for example https://grafana.example.com")
        if parts.scheme == "http" and parts.hostname not in _HERE:
            raise bad_input(f"{url} would send the token in the clear", "https, or http to localhost through a tunnel")
        self.url = url.rstrip("/")
        self._token = token
        self._session = requests.Session()
        self._session.auth = _Bearer(token)
        retry = Retry(
            _ATTEMPTS - 1, backoff_factor=pause, status_forcelist=_PASSING, allowed_methods=None, raise_on_status=False
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retry))

    def ensure_folder(self, uid: str, title: str) -> None:
        """A folder with this uid is there; one that people have renamed keeps its title. Raises Failure."""
        what, path = f"the folder {title}", f"/api/folders/{uid}"
        if self._ask("GET", path, what, missing=True) is not None:
            return
        status, answer = self._send("POST", "/api/folders", {"uid": uid, "title": title})
        # Somebody else has just made it, or another folder has this title: 409 by the reference, 412 by older releases.
        if status in (409, 412) and self._ask("GET", path, what, missing=True) is None:
            raise Failure(
                f"Grafana has another folder with the title {title}", "rename that folder, then run this again"
            )
        if status not in (*_GOOD, 409, 412):
            raise self._failure(status, answer, what)

    def ensure_source(self, source: Mapping[str, Any]) -> None:
        """A data source with this uid has these settings. Whether it is the default stays as it is. Raises Failure."""
        uid, what = source["uid"], f"the data source {source['name']}"
        there = self.source(uid)
        if there is None:
            self._ask("POST", "/api/datasources", what, {**source, "isDefault": False})
        else:
            default = bool(there.get("isDefault"))
            self._ask("PUT", f"/api/datasources/uid/{uid}", what, {**source, "isDefault": default})

    def source(self, uid: str) -> dict[str, Any] | None:
        """A data source; None if there is none with this uid. Raises Failure."""
        return self._ask("GET", f"/api/datasources/uid/{uid}", f"the data source {uid}", missing=True)

    def put_dashboard(self, model: Mapping[str, Any], folder: str) -> str:
        """Create a dashboard, or replace the one with its uid. Returns its address. Raises Failure."""
        body = {"dashboard": dict(model), "folderUid": folder, "overwrite": True, "message": "operations dashboards"}
        answer = self._ask("POST", "/api/dashboards/db", f'the dashboard "{model["title"]}"', body) or {}
        return urljoin(self.url, str(answer.get("url", "")))

    def _ask(
        self, method: str, path: str, what: str, body: Mapping[str, Any] | None = None, *, missing: bool = False
    ) -> dict[str, Any] | None:
        """The answer to a request. With ``missing``, None where Grafana knows no such thing."""
        status, answer = self._send(method, path, body)
        if status == 404 and missing:
            return None
        if status not in _GOOD:
            raise self._failure(status, answer, what)
        return answer

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        try:
            response = self._session.request(
                method, self.url + path, json=body, timeout=_SECONDS, allow_redirects=False
            )
        except requests.RequestException as error:
            raise cannot_know(
                f"Grafana cannot be reached at {self.url} ({type(error).__name__})",
                "check the address, the network and the proxy",
            ) from None
        try:
            answer = response.json()
        except requests.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise cannot_know(
                f"{self.url} did not answer as Grafana does ({response.status_code})",
                "something else has answered, perhaps a sign-in page or a proxy: check the address",
            )
        return response.status_code, answer

    def _failure(self, status: int, answer: Mapping[str, Any], what: str) -> Failure:
        said = str(answer.get("message", "")).replace(self._token, "[secret]")
        if status == 401:
            return cannot_know(
                f"Grafana at {self.url} does not accept the token: {said}", "is it valid and not expired?"
            )
        if status == 403:
            return cannot_know(
                f"the token may not write {what}: {said}", "give its service account the role Admin in Grafana"
            )
        if status == 412:
            return Failure(f"Grafana keeps {what}: {said} ({answer.get('status', 412)})")
        if status >= 500:
            return cannot_know(f"Grafana at {self.url} failed with {status} on {what}: {said}", "run this again later")
        return Failure(f"Grafana refused {what} with {status}: {said}")
