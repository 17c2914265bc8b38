"""Posts the calls of a client, by the standard library."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.parse
from dataclasses import dataclass
from typing import Mapping, Optional, Protocol

# Longer answers are no answers of an aggregator.
BYTES_MAX = 1 << 20

# Seconds that a call may take.
PATIENCE = 30.0

# The headers of an answer that count.
HEADERS = ("content-type", "retry-after")

LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Answer:
    """The answer to a call, as HTTP has it."""

    status: int
    content_type: Optional[str]
    retry_after: Optional[str]
    body: bytes


class Transport(Protocol):
    """Posts the body to the path at the aggregator's address, with these headers and no cookies.

    ``None``, or an ``OSError``, is no answer. It is called on the client's own thread.
    """

    def __call__(
        self, path: str, headers: Mapping[str, str], body: bytes
    ) -> Optional[Answer]: ...


class Posts:
    """A transport to an address. Each call has a connection of its own, so that none is linked to
    another by it; no redirect is followed, and no proxy of the environment is used."""

    def __init__(
        self, url: str, *, context: Optional[ssl.SSLContext] = None, in_the_clear: bool = False
    ) -> None:
        address = urllib.parse.urlsplit(url)
        readable = all(33 <= ord(letter) < 127 for letter in url)
        if address.scheme not in ("http", "https") or not address.hostname or not readable:
            raise ValueError(f"{url!r} is no address; give one like https://bandana.example.org")
        if address.path.strip("/") or address.query or address.fragment or address.username:
            raise ValueError(f"{url!r} has more than a host and a port; give these alone")
        if address.scheme == "http" and address.hostname not in LOCAL and not in_the_clear:
            raise ValueError(
                f"{url!r} is not encrypted: everybody on the way can forge answers. Give https, "
                "or in_the_clear=True in a network of your own"
            )
        self._host, is_secure = address.hostname, address.scheme == "https"
        self._port = address.port or (443 if is_secure else 80)
        self._context = (context or ssl.create_default_context()) if is_secure else None

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> Optional[Answer]:
        try:
            line = socket.create_connection((self._host, self._port), PATIENCE)
        except OSError:
            return None
        # The limit of a socket is one for each piece: whoever sends a byte now and then would hold the
        # client for ever.
        is_over = threading.Event()
        try:
            if self._context is not None:
                line = self._context.wrap_socket(
                    line, server_hostname=self._host, do_handshake_on_connect=False
                )
            limit = threading.Timer(PATIENCE, _cut, (line, is_over))
            limit.daemon = True
            limit.start()
            try:
                answer = self._post(line, path, headers, body)
            finally:
                limit.cancel()
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            line.close()
        # What was cut off looks like an answer that ends.
        return None if is_over.is_set() or len(answer.body) > BYTES_MAX else answer

    def _post(
        self, line: socket.socket, path: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        if isinstance(line, ssl.SSLSocket):
            line.do_handshake()
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.sock = line
        connection.default_port = 443 if self._context is not None else 80
        # One text for all installations: no version of Python or of the system.
        sent = {"user-agent": "bandana", "connection": "close", **headers}
        connection.request("POST", path, body, sent)
        response = connection.getresponse()
        content = response.read(BYTES_MAX + 1)
        if response.length:
            raise http.client.IncompleteRead(content)
        content_type, retry_after = (response.headers[name] for name in HEADERS)
        return Answer(response.status, content_type, retry_after, content)


def _cut(line: socket.socket, is_over: threading.Event) -> None:
    """Ends a connection under its reader."""
    is_over.set()
    with contextlib.suppress(OSError):
        # Not that of TLS, which would wait for the other end.
        socket.socket.shutdown(line, socket.SHUT_RDWR)
