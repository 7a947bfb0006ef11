"""Serve a page folder on this machine only.

Decided here: the server listens on 127.0.0.1 and answers only requests whose address begins with a random token, so that another user of
the machine, or another page in the browser, cannot read a run. The `Host` header must be this server's own, which stops a foreign name
that was made to point here (DNS rebinding). GET and HEAD are the only methods. A path that leaves the folder, by dots or by links, is not
found.
"""

import secrets
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from floatlens.errors import Refusal, reason

TYPES = {".html": "text/html; charset=utf-8", ".json": "application/json"}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """A page folder behind a token."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder, self.token = folder.resolve(), secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise Refusal(f"The port {port} cannot be used ({reason(error)}). Choose another one (--port), or leave it out.") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle, as when a tab is closed, is no error; anything else is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def file_for(self, path: str) -> Path | None:
        """The file that a request may have; None for any other."""
        parts = unquote(urlsplit(path).path).split("/")
        if len(parts) < 3 or parts[0] or not secrets.compare_digest(parts[1].encode(), self.token.encode()):
            return None
        wanted = parts[2:] if parts[-1] else [*parts[2:-1], "index.html"]
        if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in wanted):
            return None
        file = self.folder.joinpath(*wanted)
        try:
            inside = file.resolve(strict=True).is_relative_to(self.folder)
        except (OSError, RuntimeError):
            return None
        return file if inside and file.is_file() else None


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version, protocol_version = "floatlens", "", "HTTP/1.1"

    @property
    def _page(self) -> PageServer:
        assert isinstance(self.server, PageServer)
        return self.server

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def _answer(self, with_content: bool) -> None:
        port = self._page.server_port
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        file = self._page.file_for(self.path)
        if file is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        content = file.read_bytes()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES.get(file.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_content:
            self.wfile.write(content)
        return None

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library calls for any other method and for what it cannot parse; it would quote the request in HTML."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code))

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not printed."""


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[PageServer]:
    """Serve a folder while the context lasts.

    Examples
    --------
    >>> import tempfile, urllib.request
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = (place / "index.html").write_text("hello")
    >>> with serving(place) as server:
    ...     urllib.request.urlopen(server.address).read()
    b'hello'
    """
    server = PageServer(folder, port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def open_browser(address: str) -> bool:
    """Open the address in the user's browser, if there is one."""
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
