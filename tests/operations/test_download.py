"""A download that fails says what to do; nothing that a server answers is a traceback."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.deployment.download import fetch
from operations.failures import Exit, Failure


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that gives one answer, byte for byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(request.param)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/chart.tgz"
        thread.join(5)


@pytest.mark.parametrize("answering", [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nchart"], indirect=True)
def test_a_file_lies_under_its_name(answering: str, tmp_path: Path) -> None:
    assert fetch(answering, "mine.tgz", tmp_path, None, None).read_bytes() == b"chart"


@pytest.mark.parametrize(
    "answering",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\n",
    ],
    indirect=True,
)
def test_what_cannot_be_downloaded_is_no_traceback_and_can_be_brought(answering: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=f"^{answering} cannot be downloaded: ") as refused:
        fetch(answering, "mine.tgz", tmp_path, None, None)
    assert refused.value.code == Exit.CANNOT_KNOW
    assert "download it elsewhere as mine.tgz and give that folder with --from" in refused.value.hint


def test_a_folder_stands_in_for_the_network(tmp_path: Path) -> None:
    (tmp_path / "brought").mkdir()
    with pytest.raises(Failure, match=r"brought has no mine\.tgz"):
        fetch("https://example.com/a.tgz", "mine.tgz", tmp_path, tmp_path / "brought", None)
    (tmp_path / "brought/mine.tgz").write_text("chart")
    assert fetch("https://example.com/a.tgz", "mine.tgz", tmp_path, tmp_path / "brought", None).read_text() == "chart"
