"""Posts the calls of a client, by the standard library."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Protocol

# Longer answers are no answers of an aggregator.
BYTES_MAX = 1 << 20

# Seconds that a call may take.
PATIENCE = 30.0

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


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A call goes where the app has said, or nowhere."""

    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        return None


class Posts:
    """A transport to an address. Each call has a connection of its own, so that none is linked to
    another by it."""

    def __init__(
        self, url: str, *, context: Optional[ssl.SSLContext] = None, in_the_clear: bool = False
    ) -> None:
        address = urllib.parse.urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"{url!r} is no address; give one like https://bandana.example.org")
        if address.path.strip("/") or address.query or address.fragment or address.username:
            raise ValueError(f"{url!r} has more than a host and a port; give these alone")
        if address.scheme == "http" and address.hostname not in LOCAL and not in_the_clear:
            raise ValueError(
                f"{url!r} is not encrypted: everybody on the way can forge answers. Give https, "
                "or in_the_clear=True in a network of your own"
            )
        self._url = f"{address.scheme}://{address.netloc}"
        self._opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.HTTPSHandler(context=context)
        )
        # One text for all installations: that of the library tells the version of Python.
        self._opener.addheaders = [("user-agent", "bandana")]

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> Optional[Answer]:
        request = urllib.request.Request(self._url + path, body, dict(headers), method="POST")
        try:
            with self._opener.open(request, timeout=PATIENCE) as response:
                return _answer(response)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error)
        except (OSError, http.client.HTTPException, ValueError):
            return None


def _answer(response: Any) -> Optional[Answer]:
    try:
        body = response.read(BYTES_MAX + 1)
    except (OSError, http.client.HTTPException):
        return None
    if len(body) > BYTES_MAX:
        return None
    headers = response.headers
    return Answer(response.status, headers["content-type"], headers["retry-after"], body)
