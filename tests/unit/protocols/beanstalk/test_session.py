from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobyard.model.limits import LINE_SIZE_MAX, READ_AHEAD_MAX, U64_MAX
from jobyard.protocols.session import OUTPUT_MAX
from tests.support.clients.beanstalk import BeanstalkClient
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

BAD = b"BAD_FORMAT\r\n"
UNKNOWN = b"UNKNOWN_COMMAND\r\n"
SIZE_MAX = 40

# -- the two ways of reading agree -------------------------------------------------------------

NUMBERS = st.sampled_from(
    (
        *(b"0", b"1", b"2", b"007", b"4294967295", b"4294967296", b"-1", b"", b"x", b"1x", b"+1"),
        *(b"18446744073709551615", b"18446744073709551616", b"0" * 230, b"9" * 5000),
    )
)
SPACES = st.sampled_from([b" ", b" ", b" ", b"  ", b"", b"\t", b" " * 230])
ENDS = st.sampled_from(
    [b"\r\n", b"\r\n", b"\r\n", b"\r\n", b" \r\n", b"x\r\n", b"\n", b"\r", b"\0\r\n"]
)
SIZES = st.one_of(st.integers(0, SIZE_MAX), st.sampled_from([SIZE_MAX + 1, 300]))


def join(parts: tuple[bytes, ...]) -> bytes:
    return b"".join(parts)


WORDS = st.sampled_from([b"put", b"delete", b"reserve", b"deletx", b"pus", b"Put", b"reservf", b""])
ODD_PUTS = st.tuples(
    st.just(b"put"), *([SPACES, NUMBERS] * 4), ENDS, st.binary(max_size=6), st.just(b"\r\n")
).map(join)


@st.composite
def puts(draw: st.DrawFn) -> bytes:
    size = draw(SIZES)
    body = draw(st.binary(min_size=size, max_size=size))
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r", b"xx"]))
    return b"put %d 0 60 %d\r\n" % (draw(st.integers(0, 3)), size) + body + end


COMMANDS = st.one_of(
    puts(),
    ODD_PUTS,
    st.tuples(st.just(b"delete"), SPACES, NUMBERS, ENDS).map(join),
    st.tuples(WORDS, SPACES, NUMBERS, ENDS).map(join),
    st.sampled_from([b"reserve-with-timeout 0\r\n", b"reserve-job 1\r\n", b"stats-job 1\r\n"]),
    st.sampled_from([b"release 1 0 0\r\n", b"bury 1 0\r\n", b"kick 5\r\n", b"peek 2\r\n"]),
    st.sampled_from([b"reserve\r\n", b"quit\r\n", b"list-tube-used\r\n"]),
    st.binary(max_size=12),
    st.integers(218, 232).map(lambda size: b"u" * size + b"\r\n"),
    st.just(b"z" * 700),
)


def run(stream: bytes, cuts: list[int]) -> tuple[bytes, bool, object]:
    """Give a stream to a session in pieces; return all that came of it."""
    site = OpenYard(job_size_max=SIZE_MAX)
    client = site.connect()
    heard = []
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, end in pairwise(places):
        if not client.session.is_finished:
            heard.append(client.say(stream[start:end]))
    client.session.end_input(site.now_ms)
    heard.append(client.hear())
    recount(site.yard)
    return b"".join(heard), client.session.is_finished, (snapshot(site.yard), site.door.counts)


@settings(max_examples=400)
@given(st.lists(COMMANDS, max_size=8), st.lists(st.integers(0, 1 << 30), max_size=12))
@example([b"put 0 0 60 1\r\nx\r\n", b"delete " + b" " * 230 + b"1\r\n"], [5])
@example([b"put 0 0 60 1\r\nx\r\n", b"delete " + b"0" * 230 + b"1\r\n"], [30])
@example([b"delete " + b"9" * 5000 + b"\r\n"], [9])
@example([b"put" + b" " * 230 + b"0 0 60 1\r\nx\r\n"], [300])
def test_a_stream_is_answered_the_same_however_it_is_cut(
    commands: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(commands)
    assert run(stream, cuts) == run(stream, [])


@settings(max_examples=60)
@given(st.lists(COMMANDS, max_size=5))
def test_a_stream_is_answered_the_same_byte_by_byte(commands: list[bytes]) -> None:
    stream = b"".join(commands)
    assert run(stream, list(range(len(stream)))) == run(stream, [])


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_any_bytes_at_all_are_survived(stream: bytes) -> None:
    answers, _, _ = run(stream, [7, 50, 51])
    assert answers == b"" or answers.endswith(b"\r\n")


def talk(data: bytes, *, site: OpenYard | None = None) -> bytes:
    return (site or OpenYard(job_size_max=SIZE_MAX)).connect().say(data)


# -- lines -------------------------------------------------------------------------------------


def test_the_longest_line_is_read_and_a_longer_one_is_thrown_away_whole() -> None:
    longest = b"u" * (LINE_SIZE_MAX - 2) + b"\r\n"
    assert talk(longest) == UNKNOWN
    for details in (1, 2, 3, 100, 224, 5000):
        for follow in (b"list-tube-used\r\n", b""):
            line = b"u" * (LINE_SIZE_MAX - 2 + details) + b"\r\n"
            wanted = BAD + (b"USING default\r\n" if follow else b"")
            assert talk(line + follow) == wanted
            client = OpenYard().connect()
            heard = b"".join(client.say(bytes([byte])) for byte in line + follow)
            assert heard == wanted


def test_usual_commands_have_no_longer_lines_than_others() -> None:
    put, delete = b"put 0 0 60 1", b"delete 1"
    for line in (put, delete):
        word, _, rest = line.partition(b" ")
        for filler in (b" ", b"0"):
            for size in (LINE_SIZE_MAX - 2, LINE_SIZE_MAX - 1, 3 * LINE_SIZE_MAX):
                padded = word + b" " + filler * (size - len(line)) + rest
                assert len(padded) == size
                is_short = size <= LINE_SIZE_MAX - 2
                site = OpenYard(job_size_max=SIZE_MAX)
                site.put()
                heard = talk(padded + b"\r\nx\r\n", site=site)
                if is_short:
                    assert heard == (b"INSERTED 2\r\n" if line is put else b"DELETED\r\n" + UNKNOWN)
                else:
                    assert heard == BAD + UNKNOWN


def test_a_long_line_may_end_between_its_last_two_bytes() -> None:
    client = OpenYard().connect()
    assert client.say(b"u" * 300 + b"\r") == b""
    assert client.say(b"\n") == BAD
    assert client.say(b"u" * 300 + b"\r") == b""
    assert client.say(b"u\r\nlist-tube-used\r\n") == BAD + b"USING default\r\n"
    assert client.say(b"u" * 223 + b"\r") == b""
    assert client.say(b"\r") == b""
    assert client.say(b"\n") == BAD


def test_a_line_without_an_end_takes_no_memory() -> None:
    client = OpenYard().connect()
    for _ in range(50):
        assert client.say(b"u" * 65536) == b""
        assert client.session.unread_size() <= LINE_SIZE_MAX
    assert client.say(b"\r\nlist-tube-used\r\n") == BAD + b"USING default\r\n"


def test_what_only_looks_like_a_usual_command_is_none() -> None:
    for line in (b"reservf", b"rrrrrrr", b"pus 0 0 60 1", b"deletx 1", b"deletes 1", b"put0 0 0 1"):
        assert talk(line + b"\r\n") == UNKNOWN


def test_a_bare_carriage_return_or_line_feed_ends_no_line() -> None:
    assert talk(b"stats\n\r\n") == BAD
    assert talk(b"st\rats\r\n") == UNKNOWN
    assert talk(b"\n\r\n\r\n") == UNKNOWN * 2


def test_a_nul_anywhere_is_a_bad_line() -> None:
    for line in (b"\0", b"stats\0", b"\0put 0 0 1 1", b"delete 1\0", b"put 0 0 1 1\0"):
        assert talk(line + b"\r\n") == BAD


# -- put ---------------------------------------------------------------------------------------


def test_a_body_may_hold_anything() -> None:
    for body in (b"", b"\r\n", b"\0" * 5, b"put 0 0 1 1\r\n", bytes(range(40))):
        client = OpenYard(job_size_max=SIZE_MAX).connect()
        assert client.say(b"put 0 0 1 %d\r\n%s\r\n" % (len(body), body)) == b"INSERTED 1\r\n"
        assert client.say(b"peek 1\r\n") == b"FOUND 1 %d\r\n%s\r\n" % (len(body), body)


def test_a_body_too_big_is_swallowed_and_then_refused() -> None:
    client = OpenYard(job_size_max=SIZE_MAX).connect()
    assert client.say(b"put 0 0 1 41 junk\r\n" + b"x" * 42) == b""
    assert client.say(b"x") == b"JOB_TOO_BIG\r\n"
    assert client.say(b"put 0 0 1 40\r\n" + b"x" * 40 + b"\r\n") == b"INSERTED 1\r\n"
    assert len(client.session._body) == 0


def test_a_body_too_big_takes_no_memory() -> None:
    client = OpenYard(job_size_max=SIZE_MAX).connect()
    client.say(b"put 0 0 1 4294967295\r\n")
    for _ in range(20):
        client.say(b"x" * 65536)
    assert len(client.session._body) == 0
    assert client.session.unread_size() == 0


def test_a_body_without_its_end_is_refused_and_exactly_it_is_gone() -> None:
    client = OpenYard(job_size_max=SIZE_MAX).connect()
    wanted = b"EXPECTED_CRLF\r\nUSING default\r\n"
    assert client.say(b"put 0 0 1 3\r\nabcdelist-tube-used\r\n") == wanted
    assert client.say(b"put 0 0 1 3\r\nab") == b""
    assert client.say(b"c\rXlist-tube-used\r\n") == wanted


def test_a_bad_put_line_leaves_its_body_to_be_read_as_commands() -> None:
    assert talk(b"put 0 0 1 1 junk\r\nx\r\n") == BAD + UNKNOWN
    assert talk(b"put 0 0 1\r\nx\r\n") == BAD + UNKNOWN
    assert talk(b"put a 0 1 1\r\nx\r\n") == BAD + UNKNOWN


def test_drain_mode_refuses_a_job_after_its_body_was_read() -> None:
    site = OpenYard(job_size_max=SIZE_MAX)
    site.door.is_draining = True
    client = site.connect()
    assert client.say(b"put 0 0 1 1\r\nx\r\nput 0 0 1 1\r\nxyz") == b"DRAINING\r\nEXPECTED_CRLF\r\n"
    assert client.say(b"list-tube-used\r\n") == b"USING default\r\n"


def test_a_time_to_run_of_nothing_is_a_second() -> None:
    site = OpenYard()
    site.connect().say(b"put 0 0 0 1\r\nx\r\n")
    assert site.yard.jobs.all()[0].own_ms == 1000


def test_a_connection_lost_within_a_body_puts_no_job() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 0 1 100\r\nabc")
    client.leave()
    assert site.yard.jobs.count == 0


# -- reserve -----------------------------------------------------------------------------------


def test_what_is_sent_ahead_waits_for_the_reserve() -> None:
    site = OpenYard()
    client = site.connect()
    assert client.say(b"reserve\r\nlist-tube-used\r\n") == b""
    assert client.say(b"list-tube-used\r\n") == b""
    assert client.session.unread_size() == 2 * len(b"list-tube-used\r\n")
    site.put(b"x")
    assert client.hear() == b"RESERVED 1 1\r\nx\r\n"
    client.session.resume(site.now_ms)
    assert client.hear() == b"USING default\r\n" * 2
    client.session.resume(site.now_ms)
    assert client.hear() == b""


def test_the_warning_comes_at_once_in_the_last_second_of_a_lease() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 0 1 1\r\nx\r\nreserve\r\n")
    assert client.say(b"reserve\r\n") == b"DEADLINE_SOON\r\n"
    assert client.say(b"reserve-with-timeout 0\r\n") == b"DEADLINE_SOON\r\n"
    site.put(b"y")
    assert client.say(b"reserve\r\n") == b"RESERVED 2 1\r\ny\r\n"


def test_the_warning_comes_to_who_waits_a_second_before_the_soonest_deadline() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 0 9 1\r\nx\r\nput 0 0 5 1\r\nx\r\nreserve\r\nreserve\r\n")
    assert client.say(b"reserve\r\n") == b""
    site.jump(3999)
    assert client.hear() == b""
    site.jump(1)
    assert client.hear() == b"DEADLINE_SOON\r\n"
    assert client.say(b"touch 2\r\ntouch 1\r\nreserve\r\n") == b"TOUCHED\r\n" * 2
    site.jump(4000)
    assert client.hear() == b"DEADLINE_SOON\r\n"
    assert client.say(b"delete 1\r\ndelete 2\r\n") == b"DELETED\r\n" * 2


def test_the_warning_is_for_the_holder_alone() -> None:
    site = OpenYard()
    holder, other = site.connect(), site.connect()
    holder.say(b"put 0 0 1 1\r\nx\r\nreserve\r\n")
    assert other.say(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"


def test_the_wait_ends_first_when_its_time_is_over_before_the_warning() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 0 60 1\r\nx\r\nreserve\r\n")
    assert client.say(b"reserve-with-timeout 2\r\n") == b""
    site.jump(2000)
    assert client.hear() == b"TIMED_OUT\r\n"


# -- the ends of a connection ------------------------------------------------------------------


def test_a_half_closed_client_is_answered_and_finished() -> None:
    site = OpenYard()
    client = site.connect()
    assert client.say(b"reserve\r\nlist-tube-used\r\nreserve\r\nput 0 0 1 5\r\nab") == b""
    client.session.end_input(site.now_ms)
    assert client.hear() == b"TIMED_OUT\r\nUSING default\r\nTIMED_OUT\r\n"
    assert client.session.is_finished
    client.leave()
    assert site.door.waiting_count == 0
    recount(site.yard)


def test_quit_ends_the_session_and_what_follows_is_not_read() -> None:
    site = OpenYard()
    client = site.connect()
    assert client.say(b"quitter\r\nput 0 0 1 1\r\nx\r\n") == b""
    assert client.session.is_finished
    assert client.session.unread_size() == 0
    assert client.say(b"put 0 0 1 1\r\nx\r\n") == b""
    assert site.yard.jobs.count == 0


def test_a_client_that_leaves_gives_back_jobs_tubes_and_its_place_in_line() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"use a\r\nput 0 0 9 1\r\nx\r\nwatch a\r\nwatch b\r\nreserve\r\nreserve\r\n")
    client.leave()
    assert list(site.yard.queues) == ["default", "a"]
    assert site.yard.ready_count == 1
    assert site.queue("a").waiting_count == 0
    recount(site.yard)


# -- at most as much output as the peer reads --------------------------------------------------


def big_job(size: int = 60_000) -> tuple[OpenYard, BeanstalkClient]:
    site = OpenYard()
    client = site.connect()
    site.put(b"b" * size)
    return site, client


def test_one_read_of_small_commands_cannot_make_output_without_bound() -> None:
    site, client = big_job()
    answer = b"FOUND 1 60000\r\n" + b"b" * 60_000 + b"\r\n"
    commands = 65536 // len(b"peek 1\r\n")
    client.session.receive(b"peek 1\r\n" * commands, site.now_ms)
    rounds = 0
    heard = 0
    while client.session.is_stalled:
        assert len(client.session.out) <= OUTPUT_MAX + len(answer)
        output = client.hear()
        assert output == answer * (len(output) // len(answer))
        heard += len(output)
        rounds += 1
        client.session.resume(site.now_ms)
    heard += len(client.hear())
    assert heard == commands * len(answer)
    assert rounds > 400
    assert client.session.unread_size() == 0


def test_a_session_whose_output_is_not_taken_stays_stalled() -> None:
    site, client = big_job()
    client.session.receive(b"peek 1\r\n" * 100, site.now_ms)
    size, unread = len(client.session.out), client.session.unread_size()
    assert client.session.is_stalled
    client.session.resume(site.now_ms)
    client.session.receive(b"", site.now_ms)
    assert (len(client.session.out), client.session.unread_size()) == (size, unread)
    assert client.session.is_stalled


def test_a_half_closed_client_gets_all_its_answers_before_the_end() -> None:
    site, client = big_job()
    client.session.receive(b"peek 1\r\n" * 100, site.now_ms)
    client.session.end_input(site.now_ms)
    heard = 0
    while not client.session.is_finished:
        assert client.session.is_stalled
        heard += client.hear().count(b"FOUND")
        client.session.resume(site.now_ms)
    assert heard + client.hear().count(b"FOUND") == 100


def test_a_waiting_session_keeps_what_is_sent_ahead_for_the_server_to_limit() -> None:
    _, client = big_job()
    client.say(b"reserve\r\nreserve\r\n")
    for _ in range(4):
        client.say(b"list-tube-used\r\n" * 2000)
    assert client.session.unread_size() > READ_AHEAD_MAX
    assert client.hear() == b""


# -- what an answer waits for ------------------------------------------------------------------


def test_an_answer_waits_for_the_records_it_discloses_and_no_more() -> None:
    site = OpenYard(MemoryStorage())
    writer, reader = site.connect(), site.connect()
    journal = site.journal
    writer.say(b"put 0 0 60 1\r\nx\r\n")
    assert writer.session.awaits == journal.open_number
    reader.say(b"peek 1\r\n")
    assert reader.session.awaits == journal.open_number
    asker = site.connect()
    asker.say(b"list-tube-used\r\n")
    assert asker.session.awaits <= journal.durable, "it tells of nobody but the asker"
    site.commit()
    fresh = site.connect()
    fresh.say(b"reserve\r\n")
    assert fresh.session.awaits <= journal.durable, "nobody waits for the record of a lease"
    fresh.say(b"stats\r\n")
    assert fresh.session.awaits == journal.open_number, "counts may show any record"
    site.commit()
    fresh.say(b"delete 1\r\n")
    assert fresh.session.awaits == journal.open_number
    other = site.connect()
    other.say(b"delete 1\r\n")
    assert other.session.awaits == journal.open_number, "not found, because of a delete to come"


def test_every_command_that_changes_a_job_is_waited_for() -> None:
    site = OpenYard(MemoryStorage())
    client = site.connect()
    client.say(b"put 0 0 60 1\r\nx\r\n")
    for command in (
        *(b"reserve\r\nrelease 1 0 9\r\n", b"kick-job 1\r\n", b"reserve\r\nbury 1 0\r\n"),
        *(b"kick 1\r\n", b"delete 1\r\n"),
    ):
        site.commit()
        assert client.session.awaits <= site.journal.durable
        client.say(command)
        assert client.session.awaits == site.journal.open_number


# -- commands that transcripts cannot reach -----------------------------------------------------


def test_ids_that_were_never_issued_are_not_found() -> None:
    client = OpenYard().connect()
    for word in (b"delete", b"peek", b"touch", b"kick-job", b"reserve-job", b"stats-job"):
        for number in (0, 1, U64_MAX):
            assert client.say(b"%s %d\r\n" % (word, number)) == b"NOT_FOUND\r\n"
    for number in (0, 1, U64_MAX):
        assert client.say(b"release %d 0 0\r\nbury %d 0\r\n" % (number, number)) == (
            b"NOT_FOUND\r\n" * 2
        )


def test_a_full_disk_is_answered_in_the_words_of_the_protocol() -> None:
    storage = MemoryStorage()
    storage.capacity = 300_000
    site = OpenYard(storage)
    client = site.connect()
    put = b"put 0 0 60 5000\r\n" + b"x" * 5000 + b"\r\n"
    heard = b"".join(client.say(put) for _ in range(60))
    assert heard.endswith(b"OUT_OF_MEMORY\r\n")
    assert client.say(b"delete 1\r\n") == b"DELETED\r\n"


def test_a_change_that_finds_no_room_at_all_is_refused_and_may_be_tried_again() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=4096)
    client, other = site.connect(), site.connect()
    client.say(b"put 0 0 60 1\r\na\r\nput 0 0 60 1\r\nb\r\n")
    storage.capacity = 0
    heard = b""
    while not heard.endswith(b"OUT_OF_MEMORY\r\n"):
        assert site.journal.hot.number < 100
        heard = client.say(b"reserve-job 1\r\nbury 1 0\r\n")
        site.commit()
    # Handed over without a record, and held still.
    assert heard.startswith(b"RESERVED 1 1\r\n")
    assert client.say(b"bury 1 0\r\nkick 1\r\n") == b"OUT_OF_MEMORY\r\nKICKED 0\r\n"
    assert other.say(b"delete 1\r\ndelete 3\r\n") == b"NOT_FOUND\r\n" * 2
    storage.capacity = None
    assert client.say(b"bury 1 0\r\nkick 1\r\n") == b"BURIED\r\nKICKED 1\r\n"
    site.commit()
    assert snapshot(OpenYard(storage.cut_off(), segment_size=4096).yard) == snapshot(site.yard)


def test_nobody_is_shown_the_bytes_of_another_client() -> None:
    site = OpenYard()
    writer, reader = site.connect(), site.connect()
    writer.say(b"put 0 0 60 100\r\nsecret")
    assert reader.say(b"peek 1\r\nstats-job 1\r\nreserve-job 1\r\n") == b"NOT_FOUND\r\n" * 3


def test_ten_thousand_tubes_cost_one_look_each() -> None:
    site = OpenYard()
    client = site.connect()
    for number in range(10_000):
        client.session.receive(b"use t%d\r\nput 0 0 60 1\r\nx\r\n" % number, site.now_ms)
    client.hear()
    assert len(site.yard.queues) == 10_001
    assert client.say(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert client.say(b"watch t9999\r\nreserve\r\n").startswith(b"WATCHING 2\r\nRESERVED 10000 1")


def test_every_command_has_its_answer() -> None:
    site = OpenYard()
    client = site.connect()
    for command, answer in (
        (b"peek-ready", b"NOT_FOUND"),
        (b"peek-delayed", b"NOT_FOUND"),
        (b"peek-buried", b"NOT_FOUND"),
        (b"put 5 0 60 1\r\na", b"INSERTED 1"),
        (b"put 4 9 60 1\r\nb", b"INSERTED 2"),
        (b"peek-ready", b"FOUND 1 1\r\na"),
        (b"peek-delayed", b"FOUND 2 1\r\nb"),
        (b"reserve-with-timeout 1junk", b"RESERVED 1 1\r\na"),
        (b"touch 1", b"TOUCHED"),
        (b"bury 1 7", b"BURIED"),
        (b"peek-buried", b"FOUND 1 1\r\na"),
        (b"kick 1x", b"KICKED 1"),
        (b"kick-job 2", b"KICKED"),
        (b"reserve-job 2", b"RESERVED 2 1\r\nb"),
        (b"release 2 0 0", b"RELEASED"),
        (b"delete 2", b"DELETED"),
        (b"use a", b"USING a"),
        (b"list-tube-used", b"USING a"),
        (b"watch b", b"WATCHING 2"),
        (b"watch b", b"WATCHING 2"),
        (b"watch c", b"WATCHING 3"),
        (b"list-tubes", b"OK 26\r\n---\n- default\n- a\n- b\n- c\n"),
        (b"ignore default", b"WATCHING 2"),
        (b"list-tubes-watched", b"OK 12\r\n---\n- c\n- b\n"),
        (b"ignore b", b"WATCHING 1"),
        (b"ignore nobody", b"WATCHING 1"),
        (b"ignore c", b"NOT_IGNORED"),
        (b"pause-tube a 1", b"PAUSED"),
        (b"pause-tubea 0", b"PAUSED"),
        (b"pause-tube nobody 1", b"NOT_FOUND"),
        (b"stats-tube nobody", b"NOT_FOUND"),
    ):
        wanted = answer + b"\r\n"
        assert client.say(command + b"\r\n") == wanted, command
    for command in (b"stats", b"stats-tube a", b"stats-job 1"):
        assert client.say(command + b"\r\n").startswith(b"OK ")
    recount(site.yard)


def test_every_command_refuses_what_is_no_argument_of_it() -> None:
    client = OpenYard().connect()
    for line in (
        *(b"delete x", b"delete ", b"delete 1 2", b"peek -1", b"touch 1x", b"kick-job \t1"),
        *(
            b"release 1",
            b"release 1 2",
            b"release 1 2 x",
            b"release 1 2 3 4",
            b"bury 1",
            b"bury x 1",
        ),
        *(b"kick x", b"kick ", b"kick 18446744073709551616"),
        *(b"reserve-with-timeout x", b"reserve-with-timeout 2147483648", b"reserve x", b"statsx"),
        *(b"use -a", b"use a b", b"use ", b"watch \xe9", b"ignore " + b"n" * 201, b"stats-tube !"),
        *(b"pause-tube a", b"pause-tube a x", b"pause-tube a 1x", b"pause-tube !a 1"),
        *(b"pause-tube  -a 1", b"peek-ready ", b"list-tubes 1", b"quick-job 1"[1:]),
    ):
        wanted = UNKNOWN if line.startswith(b"uick") else BAD
        assert client.say(line + b"\r\n") == wanted, line
    assert client.say(b"list-tube-used\r\n") == b"USING default\r\n"
