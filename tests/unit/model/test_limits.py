from jobyard.journal.format.segment import BATCH_HEADER_SIZE, SEAL_SIZE, SEGMENT_HEADER_SIZE
from jobyard.model import limits


def test_the_longest_line_is_a_pause_of_the_longest_name_for_the_longest_time() -> None:
    longest = b"pause-tube %s %d\r\n" % (b"n" * limits.TUBE_NAME_SIZE_MAX, limits.U32_MAX)
    assert len(longest) == limits.LINE_SIZE_MAX


def test_the_largest_job_fits_the_offsets_of_a_segment() -> None:
    overhead = SEGMENT_HEADER_SIZE + BATCH_HEADER_SIZE + SEAL_SIZE
    assert limits.JOB_SIZE_MAX + overhead + 4096 < 1 << 32


def test_no_timer_of_the_protocol_reaches_never() -> None:
    assert limits.NEVER_MS > (1 << 41) + limits.U32_MAX * 1000
