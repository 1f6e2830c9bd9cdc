"""Every limit of the yard, with its reason. One place per number."""

from typing import Final

# beanstalkd: `pause-tube` + a 200-byte name + the greatest delay + CRLF.
LINE_SIZE_MAX: Final = 224
TUBE_NAME_SIZE_MAX: Final = 200
# Inside, a name may be longer than beanstalk allows: the other doors take up to 256 characters.
QUEUE_NAME_SIZE_MAX: Final = 256

JOB_SIZE_DEFAULT: Final = 65535
JOB_SIZE_MAX: Final = 1 << 30

U32_MAX: Final = (1 << 32) - 1
U64_MAX: Final = (1 << 64) - 1
# Inside, ids are signed: an id past this cannot have been issued, so it is simply not found.
ID_MAX: Final = (1 << 63) - 1

# beanstalkd counts a ready job below this rank as urgent.
URGENT_RANK: Final = 1024

# A later moment than any timer; also "no timer".
NEVER_MS: Final = 1 << 62

# Bodies up to this size lie inside part 1 of a batch, which recovery reads whole.
INLINE_BODY_MAX: Final = 4096
# The longest result of a job, unless another is set; as long as the data of a bunqueue job may be.
RESULT_DEFAULT: Final = 10 << 20
RESULT_MAX: Final = 256 << 20

# Input a waiting connection may send ahead before its socket is left unread.
READ_AHEAD_MAX: Final = 64 * 1024

# Output a peer that does not read may pile up before the connection is cut: events come unasked.
BACKLOG_MAX: Final = 64 << 20

# Firings of timers per turn: about 2 ms of work, so that no burst of timers starves the sockets.
FIRINGS_PER_TURN: Final = 2000

# Seqs of a topic that are reserved ahead at the least where an answer may precede the sync; a crash
# leaves out no more than twice as many.
SEQ_BLOCK: Final = 4096
