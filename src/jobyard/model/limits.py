"""Limits that several packages share, each with its reason.

A limit that one module enforces is in that module; docs/limits.md lists all of them.
"""

from typing import Final

# beanstalkd: `pause-tube` + a 200-byte name + the greatest delay + CRLF.
LINE_SIZE_MAX: Final = 224
TUBE_NAME_SIZE_MAX: Final = 200
# Internally a name may be longer than beanstalk allows: other doors take up to 256 characters.
QUEUE_NAME_SIZE_MAX: Final = 256
PORT_MAX: Final = 65535

JOB_SIZE_DEFAULT: Final = 65535
JOB_SIZE_MAX: Final = 1 << 30

U32_MAX: Final = (1 << 32) - 1
U64_MAX: Final = (1 << 64) - 1
# Internally ids are signed: a larger id was never issued, so it is simply not found.
ID_MAX: Final = (1 << 63) - 1

# beanstalkd counts a ready job below this rank as urgent.
URGENT_RANK: Final = 1024

# Later than any timer; also means "no timer".
NEVER_MS: Final = 1 << 62

# The longest name of a worker in the history, in bytes; longer ones are cut.
WORKER_NAME_MAX: Final = 256

# Bodies up to this size are inside part 1 of a batch, which recovery reads whole.
INLINE_BODY_MAX: Final = 4096
# The default limit of a result, the same as for the data of a bunqueue job.
RESULT_DEFAULT: Final = 10 << 20
RESULT_MAX: Final = 256 << 20

# Input that a waiting connection may send ahead before its socket is no longer read.
READ_AHEAD_MAX: Final = 64 * 1024

# Unread output of a peer before its connection is closed: events are sent without a request.
BACKLOG_MAX: Final = 64 << 20

# Timers fired per turn: about 2 ms of work, so that no burst of timers starves the sockets.
FIRINGS_PER_TURN: Final = 2000

# The least number of topic seqs reserved ahead where a reply may precede the sync; a crash skips
# at most twice as many.
SEQ_BLOCK: Final = 4096

# How long something that found no room on the disk waits before it is tried again.
FULL_WAIT_MS: Final = 1000
