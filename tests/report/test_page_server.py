"""The server: this machine, this token, this host, these files; GET and HEAD, nothing else."""

import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from floatlens.errors import Refusal
from floatlens.report.page.server import PageServer, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[PageServer]:
    folder = tmp_path / "page"
    (folder / "data" / "c").mkdir(parents=True)
    (folder / "index.html").write_text("the page")
    (folder / "data" / "zarr.json").write_text("{}")
    (folder / "data" / "c" / "0").write_bytes(b"\x00\x01")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "out").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    (folder / "inside").symlink_to(folder / "data" / "zarr.json")
    with serving(folder) as server:
        yield server


def ask(server: PageServer, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def test_it_serves_the_page_and_its_data_under_the_token(served: PageServer) -> None:
    for path, content in (("", b"the page"), ("data/zarr.json", b"{}"), ("data/c/0", b"\x00\x01"), ("inside", b"{}")):
        status, found, headers = ask(served, f"/{served.token}/{path}")
        assert (status, found) == (200, content)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert ask(served, f"/{served.token}/", "HEAD")[:2] == (200, b"")
    assert served.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_a_sentence(served: PageServer, tmp_path: Path) -> None:
    taken = rf"The port {served.server_port} cannot be used \(.*Address already in use\). Choose another one"
    with pytest.raises(Refusal, match=taken), serving(tmp_path, served.server_port):
        pass


def test_without_the_token_nothing_is_found(served: PageServer) -> None:
    for path in (
        "/",
        "/index.html",
        "//",
        f"/{served.token[:-1]}/",
        f"/{served.token}x/index.html",
        f"/?{served.token}",
        f"/x/{served.token}/",
    ):
        assert ask(served, path)[:2] == (404, b"")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", "[::1]", "0.0.0.0"]
)
def test_a_foreign_host_is_refused(served: PageServer, host: str) -> None:
    assert ask(served, f"/{served.token}/", host=host)[0] == 421


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_that_names_no_host_is_refused(served: PageServer, version: str) -> None:
    with socket.create_connection(("127.0.0.1", served.server_port), timeout=30) as connection:
        connection.sendall(f"GET /{served.token}/ HTTP/{version}\r\n\r\n".encode())
        assert connection.recv(65536).split()[1] == b"421"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "PROPFIND"])
def test_other_methods_are_refused(served: PageServer, method: str) -> None:
    assert ask(served, f"/{served.token}/", method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "out",
        "up/secret.txt",
        "../secret.txt",
        "%2e%2e/secret.txt",
        "data/../../secret.txt",
        "..%2fsecret.txt",
        "%00",
        "data",
        "a\\..\\b",
        "//etc/passwd",
        "./index.html",
    ],
)
def test_nothing_outside_the_folder_is_served(served: PageServer, path: str) -> None:
    assert ask(served, f"/{served.token}/{path}")[:2] == (404, b"")


def test_a_browser_that_goes_away_leaves_nothing_on_the_terminal(served: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    for sent in (b"", f"GET /{served.token}/ HTTP/1.1\r\nHost: 127.0.0.1:{served.server_port}\r\n".encode()):
        connection = socket.create_connection(("127.0.0.1", served.server_port), timeout=30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing it now resets it
        connection.sendall(sent)
        connection.close()
    assert ask(served, f"/{served.token}/")[0] == 200  # later than both
    while any("process_request_thread" in thread.name for thread in threading.enumerate()):
        time.sleep(0.01)
    assert capfd.readouterr() == ("", "")


def test_a_request_that_makes_no_sense_is_not_quoted_back(served: PageServer) -> None:
    with socket.create_connection(("127.0.0.1", served.server_port), timeout=30) as connection:
        connection.sendall(b"<script>alert(1)</script>\r\n\r\n")
        assert b"alert" not in connection.recv(65536)
