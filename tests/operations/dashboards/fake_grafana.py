"""A Grafana on this machine that keeps the answers of its HTTP API reference: folder, data source, dashboard (10.4)."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
_SAME = "A folder or dashboard in the general folder with the same name already exists"


@dataclass
class FakeGrafana:
    """What it has, what it was asked (method and path), and what it answers instead: for a path, each answer once."""

    token: str = "glsa_very-secret-token"
    url: str = ""
    folders: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    dashboards: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    instead: dict[str, list[Answer | bytes]] = field(default_factory=dict)

    def answer(self, method: str, path: str, token: str, body: Any) -> Answer | bytes:
        """The answer to a request; bytes are sent as they are, as a page."""
        self.asked.append(f"{method} {path}")
        if waiting := self.instead.get(path):
            return waiting.pop(0)
        if token != f"Bearer {self.token}":
            return 401, {"message": "Invalid API key"}
        kind, _, uid = path.removeprefix("/api/").replace("/uid/", "/").partition("/")
        known = getattr(self, {"folders": "folders", "datasources": "sources"}.get(kind, "dashboards"))
        match method, kind, uid:
            case "GET", _, _:
                return (200, known[uid]) if uid in known else (404, {"message": "not found"})
            case "POST", "folders", "":
                return self._new_folder(body)
            case "POST", "datasources", "":
                return self._new_source(body)
            case "PUT", "datasources", _ if uid in known:
                known[uid] = body
                return 200, {"datasource": body, "message": "Datasource updated"}
            case "POST", "dashboards", "db":
                return self._save(body)
        return 404, {"message": "Not found"}

    def _new_folder(self, body: Any) -> Answer:
        if body["uid"] in self.folders or body["title"] in [one["title"] for one in self.folders.values()]:
            return 409, {"message": _SAME}
        self.folders[body["uid"]] = {**body, "url": f"/dashboards/f/{body['uid']}", "version": 1}
        return 200, self.folders[body["uid"]]

    def _new_source(self, body: Any) -> Answer:
        if body["name"] in [one["name"] for one in self.sources.values()]:
            return 409, {"message": "data source with the same name already exists"}
        self.sources[body["uid"]] = body
        return 200, {"datasource": body, "message": "Datasource added"}

    def _save(self, body: Any) -> Answer:
        model, uid = body["dashboard"], body["dashboard"]["uid"]
        if model.get("id") is not None:
            return 404, {"message": "Dashboard not found", "status": "not-found"}
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        if uid in self.dashboards and not body.get("overwrite"):
            said = "The dashboard has been changed by someone else"
            return 412, {"message": said, "status": "version-mismatch"}
        version = self.dashboards.get(uid, {}).get("version", 0) + 1
        self.dashboards[uid] = {**model, "version": version, "folderUid": body["folderUid"]}
        slug = re.sub(r"\W+", "-", model["title"].lower())
        return 200, {"uid": uid, "url": f"/d/{uid}/{slug}", "status": "success", "version": version, "slug": slug}


@contextmanager
def running(grafana: FakeGrafana) -> Iterator[FakeGrafana]:
    """It serves on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            answer = grafana.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
            status, content = (
                (200, answer) if isinstance(answer, bytes) else (answer[0], json.dumps(answer[1]).encode())
            )
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        grafana.url = f"http://127.0.0.1:{server.server_port}"
        yield grafana
        server.shutdown()
