"""Calls of a server's curator, with the messages that the server describes."""

from __future__ import annotations

import secrets
import time
from importlib.resources import files
from pathlib import Path
from typing import Any, Callable, TypeVar
from urllib.parse import urlsplit

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Pauses before a question is asked again whose answer was lost, in seconds.
PAUSES = (0.25, 1.0, 3.0)

# A synthetic table may be large.
ANSWER_BYTES_MAX = 64 << 20

LOCAL = ("localhost", "127.0.0.1", "::1")

# How the server says that nothing was taken. Any other status may come from elsewhere, after the price was
# taken: from a proxy, or from gRPC here, for an answer that it can't read, or that is too large.
DECLINED = (
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "UNIMPLEMENTED",
)

Read = TypeVar("Read")


class QueryError(Exception):
    """The server declined a question, or can't be reached. The text says what to do.

    ``code`` is the name of the gRPC status, such as ``"INVALID_ARGUMENT"``. ``question_id`` is there if the
    question may have been paid for: ask the same with it, within a day, to get the answer at no further
    price. Whoever interrupts a question is told its id in the text of the ``KeyboardInterrupt``.
    """

    def __init__(self, text: str, code: str, question_id: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.question_id = question_id


def _again(question_id: str) -> str:
    return f"; to get the answer and not pay again, ask the same with question_id={question_id!r}"


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    described = descriptor_pb2.FileDescriptorSet.FromString(
        (files(__package__) / "bandana.v1.binpb").read_bytes()
    )
    for file in described.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()


def message(kind: str, /, **fields: Any) -> Any:
    """A message of this name."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"bandana.v1.{kind}"))(**fields)


class Calls:
    """The calls to one server."""

    def __init__(
        self,
        url: str,
        token: str | None,
        ca: Path | None,
        certificate: tuple[Path, Path] | None,
        timeout: float,
    ) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname or address.path.strip("/"):
            raise ValueError(f"{url!r} is no address; give one like https://bandana.example.org:7302")
        if address.scheme == "http" and address.hostname not in LOCAL:
            raise ValueError(f"{url!r} is not encrypted: everybody on the way could read the token; give https")
        host = f"[{address.hostname}]" if ":" in address.hostname else address.hostname
        target = f"{host}:{address.port or (443 if address.scheme == 'https' else 80)}"
        options = [("grpc.max_receive_message_length", ANSWER_BYTES_MAX), ("grpc.enable_http_proxy", 0)]
        if address.scheme == "https":
            chain, key = [path.read_bytes() for path in certificate] if certificate else [None, None]
            credentials = grpc.ssl_channel_credentials(ca.read_bytes() if ca else None, key, chain)
            self._channel = grpc.secure_channel(target, credentials, options)
        else:
            self._channel = grpc.insecure_channel(target, options)
        self._url, self._timeout = url, timeout
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        described = _POOL.FindServiceByName("bandana.v1.Curator")
        self._methods: dict[str, Callable[..., Any]] = {
            method.name: self._channel.unary_unary(
                f"/bandana.v1.Curator/{method.name}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
            )
            for method in described.methods
        }

    def call(self, method: str, request: Any, if_lost: str = "") -> Any:
        """Calls once. ``if_lost`` says what to do if that may have been done, and its outcome is lost."""
        try:
            return self._call(method, request)
        except grpc.RpcError as error:
            hint = if_lost if error.code().name not in DECLINED else ""
            raise self._declined(error, None, hint) from None

    def ask(
        self, method: str, request: Any, question_id: str | None, read: Callable[[Any], Read]
    ) -> Read:
        """Asks a question, again with the same id while its outcome is unknown, and reads the answer.

        Whatever fails once the question may have been paid for, the error says its id.
        """
        name = question_id or secrets.token_hex(16)
        request.question_id = bytes.fromhex(name)
        try:
            answer = self._answer(method, request, name)
            try:
                return read(answer)
            except Exception as error:
                text = f"the question was paid for, and this version can't read its answer ({error!r})"
                raise QueryError(text + _again(name), "INTERNAL", name) from error
        except KeyboardInterrupt:
            # The server answers all the same, and takes the price.
            raise KeyboardInterrupt(f"the question may have been paid for{_again(name)}") from None

    def _answer(self, method: str, request: Any, name: str) -> Any:
        may_be_paid = False
        for pause in (*PAUSES, None):
            try:
                return self._call(method, request)
            except grpc.RpcError as error:
                is_lost = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                # Also if it was declined at last: an earlier attempt may have been answered.
                may_be_paid = may_be_paid or error.code().name not in DECLINED
                if pause is None or not is_lost:
                    raise self._declined(error, name if may_be_paid else None) from None
            time.sleep(pause)
        raise AssertionError("the last pause is none")

    def _call(self, method: str, request: Any) -> Any:
        return self._methods[method](
            request, timeout=self._timeout, metadata=self._metadata, wait_for_ready=False
        )

    def _declined(self, error: grpc.RpcError, question_id: str | None, hint: str = "") -> QueryError:
        code, text = error.code().name, error.details() or "no reason was given"
        hints = {
            "UNAUTHENTICATED": "; give token=...",
            "UNAVAILABLE": f" (at {self._url}; is the server there, and is this its operators' address?)",
        }
        text += hints.get(code, "") + hint
        if question_id is not None:
            text += _again(question_id)
        return QueryError(text, code, question_id)

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()
