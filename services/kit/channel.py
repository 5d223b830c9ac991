"""Channels to other services: keep-alive, quick reconnects, no message limit below ours."""

import grpc

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    # Without it an unanswered ping ends the connection only after gRPC's own 60 s, whatever the keep-alive timeout says. It also bounds
    # the pings that gRPC sends while data flows: a peer that falls silent in mid-stream shows after 5 s, a busy one has time to answer.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Time for one attempt to connect, not a pause: a busy machine needs more than the first back-off to shake hands.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
)


def connect(address: str, *, credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
    """A lazily connected channel to host:port; the caller closes it. Every call on it still needs its own deadline."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    return grpc.aio.secure_channel(address, credentials, options=OPTIONS)
