"""Small HTTP servers whose sockets are in other network namespaces; threads of this process answer."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .sandbox import in_network


class Service:
    """A server on ``address`` in a process's network namespace. ``close`` leaves nothing behind."""

    def __init__(self, pid: int, address: str, handler: type[BaseHTTPRequestHandler], port: int = 80) -> None:
        self._server = ThreadingHTTPServer((address, port), handler, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.socket.close()
        # HTTPServer's own bind looks up the address's name, which may block.
        self._server.socket = in_network(pid, lambda: _listen(address, port))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listen(address: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((address, port))
    listening.listen(64)
    return listening


class Handler(BaseHTTPRequestHandler):
    """A request handler that writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: errors are in the response."""

    def reply(self, status: int, text: str | bytes, kind: str = "text/plain") -> None:
        """Send a response. A caller that hung up is ignored."""
        body = text.encode() if isinstance(text, str) else text
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True
