"""How a host's commands ask the emulated AWS: one HTTP request. Standard library only; runs on the host."""

# Loading pathlib would take longer than everything else.
# ruff: noqa: PTH123
# mypy: ignore-errors
import json
import socket


def ask(what, connect=60.0, read=60.0, **payload):
    """The answer to ``what``; a dictionary. Raises OSError where nothing answers within these seconds."""
    with open("/etc/rehearsal/machine.json") as file:
        address = json.load(file)["endpoint"]
    try:
        with open("/run/rehearsal/slept") as file:
            payload["slept"] = float(file.read() or 0)
    except (OSError, ValueError):
        payload["slept"] = 0.0
    return json.loads(http(address, "POST", "/" + what, read, connect=connect, body=json.dumps(payload))[1])


def http(address, method, path, read, *headers, connect=None, body=""):
    """The status of an answer, and its text. Raises OSError where nothing answers within these seconds."""
    content = body.encode()
    head = [f"{method} {path} HTTP/1.0", f"Host: {address}", f"Content-Length: {len(content)}", *headers]
    with socket.create_connection((address, 80), connect or read) as channel:
        channel.settimeout(read)
        channel.sendall("\r\n".join([*head, "", ""]).encode() + content)
        answer = b""
        while True:
            part = channel.recv(1 << 16)
            if not part:
                break
            answer += part
    head, _, text = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), text.decode()
