"""A reverse proxy that puts a server below a path, and asks for a password of its own."""

from __future__ import annotations

import base64
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PASSED_ON = ("X-Trainprobe-Token", "Accept-Encoding", "Accept")
_SECRET = "Basic " + base64.b64encode(b"ann:secret").decode()


@contextmanager
def proxy(target: str, path: str) -> Iterator[str]:
    """Its address; name ``ann``, password ``secret``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != _SECRET:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="proxy"')
                self.end_headers()
                return
            if not self.path.startswith(path + "/"):
                self.send_error(404)
                return
            headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
            request = urllib.request.Request(target + self.path.removeprefix(path), headers=headers)
            try:
                answer = urllib.request.urlopen(request, timeout=10)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                body = answer.read()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name not in ("Connection", "Server", "Date"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet: the test says what it needs."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
