"""Serves files by byte range over HTTP to whoever knows the key, and nothing else.

A request names one of the files on offer, which are looked up as they are: no path is
made of what a stranger says. Standard library only; `rollout.vllm.places` asks.
"""

import hmac
import http.server
import itertools
import logging
import os
import pathlib
import re
import socket
import socketserver
import threading

_BLOCK = 1 << 24  # bytes, between two looks at whether a file is still on offer
log = logging.getLogger(__name__)


class FileServer(socketserver.ThreadingTCPServer):
    """Listens from the start, on threads of its own, until `close`."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, key: str):
        """Binds.

        Args:
          host: an address or name of this machine.
          port: 0 picks a free one.
          key: asked of every request, as `Authorization: Bearer KEY`.

        Raises:
          OSError: the address is taken, or is not this machine's.
        """
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.expected = f"Bearer {key}".encode()
        self.offers: dict[str, str] = {}
        self._numbers = itertools.count()
        super().__init__((host, port), _Handler)
        name = f"[{host}]" if ":" in host else host
        self._url = f"http://{name}:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def offer(self, path: str) -> str:
        """A URL, like no other, at which a file can be had until it is withdrawn."""
        name = f"/{next(self._numbers)}/{pathlib.Path(path).name}"
        self.offers[name] = path
        return self._url + name

    def withdraw(self, url: str) -> None:
        """Whoever is reading is cut off, at the next block."""
        del self.offers[url.removeprefix(self._url)]

    def close(self) -> None:
        self.offers.clear()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address) -> None:
        log.debug("%s broke off", client_address[0], exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 30.0  # seconds of silence

    def do_GET(self):
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, self.server.expected):
            return self._refuse(401, "wrong API key")
        try:
            with open(self.server.offers[self.path], "rb") as file:
                self._send(file, os.fstat(file.fileno()).st_size)
        except (KeyError, FileNotFoundError):
            self._refuse(404, "not on offer, or superseded by a later version")

    def _send(self, file, size):
        asked = self.headers.get("Range", "")
        found = re.fullmatch(r"bytes=(\d{1,18})-(\d{1,18})", asked)
        start, stop = (int(found[1]), int(found[2]) + 1) if found else (0, 0)
        if not start < stop <= size:
            return self._refuse(416, f"the file has {size} bytes, asked for {asked!r}")
        self.send_response_only(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        while start < stop and self.path in self.server.offers:
            sent = self.connection.sendfile(file, start, min(_BLOCK, stop - start))
            if not sent:
                break
            start += sent
        if start < stop:
            self.close_connection = True

    def _refuse(self, status, words):
        body = words.encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        log.debug(format, *args)
