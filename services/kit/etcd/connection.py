"""The way to an etcd cluster: several endpoints, one in use, fail-over, and the token of the user if there is one."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from grpc import aio

from inferway.etcdwire.v1 import etcd_wire_pb2 as wire
from services.kit.etcd.errors import EtcdError, EtcdUnavailable, from_rpc_error, is_stale_token
from services.kit.etcd.methods import AUTHENTICATE, Method, RequestT, ResponseT

# With gRPC's own back-off (1 s growing to 120 s) a client comes back seconds after etcd did; a dead peer must show within 13 s.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Time for one attempt to connect, not a pause: a busy machine needs more than the first back-off to shake hands.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    # Two clients of one process never share a TCP connection, so that each has its own fate in tests and in fail-over.
    ("grpc.use_local_subchannel_pool", 1),
)


class Connection:
    """Calls etcd at the endpoint in use and moves to the next one when it does not answer.

    ``timeout_s`` bounds each attempt. Only idempotent methods are tried at more than one endpoint: any other call that ends in
    EtcdUnavailable may or may not have been carried out.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        credentials: grpc.ChannelCredentials | None,
        timeout_s: float,
        user: str,
        password: str,
    ) -> None:
        if not endpoints:
            raise ValueError("at least one etcd endpoint is needed")
        self._channels = [_open_channel(endpoint, credentials) for endpoint in endpoints]
        self._current = 0
        self._timeout_s = timeout_s
        self._user = user
        self._password = password
        self._token: str | None = None

    async def call(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """One unary call. Raises EtcdError."""
        for _ in range(len(self._channels) - 1 if method.idempotent else 0):
            try:
                return await self._call_authenticated(method, request)
            except EtcdUnavailable:
                continue
        return await self._call_authenticated(method, request)

    async def open_stream(self, method: Method[RequestT, ResponseT]) -> aio.StreamStreamCall[RequestT, ResponseT]:
        """Opens a bidirectional stream without a deadline; a member that lost its leader ends it. Raises EtcdError."""
        metadata = (*await self._metadata(), ("hasleader", "true"))
        channel = self._channels[self._current]
        return channel.stream_stream(method.path, method.serialize, method.parse)(metadata=metadata)

    def report_failure(self, error: EtcdError, channel_in_use: int) -> None:
        """Tells what ended a stream: the next call goes to the next endpoint, or fetches a new token."""
        if isinstance(error, EtcdUnavailable):
            self._fail_over(channel_in_use)
        elif is_stale_token(error):
            self._token = None

    @property
    def channel_in_use(self) -> int:
        """Position of the endpoint that the next call goes to."""
        return self._current

    async def close(self) -> None:
        """Closes the channels; calls in flight are cancelled."""
        for channel in self._channels:
            await channel.close()

    async def _call_authenticated(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        metadata = await self._metadata()
        try:
            return await self._call_once(method, request, metadata)
        except EtcdError as error:
            if not (self._user and is_stale_token(error)):
                raise
        if metadata and metadata[0][1] == self._token:
            self._token = None
        return await self._call_once(method, request, await self._metadata())

    async def _call_once(self, method: Method[RequestT, ResponseT], request: RequestT, metadata: tuple[tuple[str, str], ...]) -> ResponseT:
        used = self._current
        stub = self._channels[used].unary_unary(method.path, method.serialize, method.parse)
        try:
            return await stub(request, timeout=self._timeout_s, metadata=metadata)
        except aio.AioRpcError as error:
            known = from_rpc_error(error)
            if isinstance(known, EtcdUnavailable):
                self._fail_over(used)
            raise known from error

    async def _metadata(self) -> tuple[tuple[str, str], ...]:
        if not self._user:
            return ()
        if self._token is None:
            request = wire.AuthenticateRequest(name=self._user, password=self._password)
            self._token = (await self._call_once(AUTHENTICATE, request, ())).token
        return (("token", self._token),)

    def _fail_over(self, failed: int) -> None:
        if self._current == failed:
            self._current = (failed + 1) % len(self._channels)


def _open_channel(endpoint: str, credentials: grpc.ChannelCredentials | None) -> aio.Channel:
    if credentials is None:
        return aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
    return aio.secure_channel(endpoint, credentials, options=CHANNEL_OPTIONS)
