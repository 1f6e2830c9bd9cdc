"""Limits of every HTTP connection: how long a request may take, and how much may be queued."""

from typing import Final

# From the first byte of a request to the end of its head.
HEAD_MS_MAX: Final = 10_000
# Grace period after the head; then a body must arrive at this rate. A slower client only occupies
# a connection.
BODY_GRACE_MS: Final = 10_000
BODY_BYTES_PER_S: Final = 1024
# How long a client may continue to send a request that was refused for its size. If the connection
# closed at once, most clients would never see the answer: what they send after that discards it.
LINGER_MS: Final = 5000
# Pipelined requests served in one turn.
SERVED_MAX: Final = 16
# Approximate memory of a request in addition to its body.
REQUEST_WEIGHT: Final = 512
# A stream with more unsent data than this waits until all of it has left.
STREAM_MAX: Final = 256 << 10
