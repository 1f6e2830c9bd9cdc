"""Every verb of the engine with queues that are topics among the others, drawn from a seed.

Adds to `RandomVerbs` what only clients of topics do. Nothing here knows the expected result.
"""

from typing import Final

from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.removal import NO_SEQ, Removal
from jobyard.engine.topics.topic_queue import NewRecord
from jobyard.errors import NotFound
from jobyard.model.family import TOPICS
from jobyard.model.job import LEASED
from jobyard.model.topic.key_table import KEY_MEMORY
from jobyard.model.topic.log import TopicFull
from tests.support.engine.record_keys import produce_keyed
from tests.support.engine.topics import config
from tests.support.random.verbs import QUEUES, RandomVerbs
from tests.support.site.yard import OpenYard

TAGS: Final = ("", "x:1", "x:2", "y \N{SNOWMAN}")


class RandomTopics(RandomVerbs):
    """Clients of topics besides all others."""

    def __init__(self, site: OpenYard, seed: int) -> None:
        super().__init__(site, seed)
        self._deeds += [
            *[self.write] * 5,
            *[self.write_keyed] * 2,
            *[self.claim] * 5,
            *[self.settle] * 5,
            self.configure,
            self.delete,
            self.redrive,
            self.drop,
        ]

    def step(self) -> None:
        """Let some time pass, then do one thing, unless it is refused."""
        try:
            super().step()
        except (TopicFull, NotFound):
            return

    def write(self) -> None:
        """Write some jobs."""
        draw = self.random
        records = []
        for _ in range(draw.randrange(1, 4)):
            meta = draw.choice((b"", b'{"a":1}'))
            one = NewRecord(b'"%s"' % self._body(), meta, draw.choice(TAGS), draw.choice(("", "n")))
            one.priority = draw.randrange(-2, 2)
            one.delay_ms = draw.choice((0, 0, 50, 2000))
            records.append(one)
        queue = self.site.queue(draw.choice(QUEUES))
        key = draw.choice(("", "", "k1", "k2"))
        if queue.config is None:
            key = ""
        topic_queue.produce(self.site.yard, queue, records, key, self.site.now_ms)

    def write_keyed(self) -> None:
        """Write some jobs with keys, most of which were used before."""
        draw = self.random
        records = [(at, f"k{draw.randrange(200)}") for at in range(draw.randrange(1, 6))]
        queue = draw.choice(QUEUES)
        # Keys cannot leave memory; some yards have no room for any.
        if self.site.bodies.admits_pinned(KEY_MEMORY * len(records)):
            produce_keyed(self.site, self.site.queue(queue), *records)

    def claim(self) -> None:
        """Claim some jobs."""
        draw = self.random
        yard = self.site.yard
        node = draw.choice(("a", "b"))
        queue = yard.queues.get(draw.choice(QUEUES))
        if queue is not None:
            lease_set = topic_queue.node_leases(yard, node)
            lease_ms = draw.choice((500, 5000))
            topic_queue.claim(
                yard, queue, node, draw.randrange(4), lease_ms, lease_set, self.site.now_ms
            )

    def settle(self) -> None:
        """End some claims, or renew them."""
        draw = self.random
        yard, now_ms = self.site.yard, self.site.now_ms
        held = [
            job
            for job in self._jobs(LEASED)
            if job.lease is not None and job.lease.terms.door == TOPICS
        ]
        if not held:
            return
        queue = draw.choice(held).queue
        seqs = [int(job.key) for job in held if job.queue is queue]
        seqs = draw.sample(seqs, draw.randrange(len(seqs)) + 1)
        node = draw.choice(("a", "b"))
        choice = draw.randrange(4)
        if choice < 2:
            topic_queue.ack(yard, queue, node, seqs, None, now_ms)
        elif choice == 2:
            topic_queue.nack(yard, queue, node, seqs, None, draw.choice((-1, 0, 700)), now_ms)
        else:
            topic_queue.extend(yard, queue, node, seqs, None, 3000, now_ms)

    def configure(self) -> None:
        """Make a topic of a queue, or configure it again."""
        draw = self.random
        given = config(
            cap_records=draw.choice((0, 0, 30)),
            cap_bytes=draw.choice((0, 0, 20_000)),
            discard=draw.choice(("old", "old", "reject")),
            ttl_ms=draw.choice((0, 0, 5000)),
            max_deliveries=draw.choice((0, 2)),
            dead_letter=draw.choice((None, "letters")),
            idempotency_window_ms=draw.choice((3000, 120_000)),
            leases_durable=draw.random() < 0.5,
        )
        topic_queue.open_topic_queue(self.site.yard, draw.choice(QUEUES), given, self.site.now_ms)

    def delete(self) -> None:
        """Delete some jobs by seq or by tag."""
        draw = self.random
        queue = self.site.yard.queues.get(draw.choice(QUEUES))
        if queue is not None:
            has_match = draw.random() < 0.7
            removal = Removal(
                self.site.yard,
                queue,
                NO_SEQ if has_match else int(queue.next_seq) - 20,
                draw.choice(("x:", "y")),
                is_prefix=draw.random() < 0.5,
                has_match=has_match,
            )
            removal.step(1 << 40, self.site.now_ms)

    def redrive(self) -> None:
        """Revive dead jobs or dead letters."""
        queue = self.site.yard.queues.get(self.random.choice(QUEUES))
        if queue is not None:
            topic_queue.redrive(self.site.yard, queue, 3, self.site.now_ms)

    def drop(self) -> None:
        """Remove a topic, rarely."""
        draw = self.random
        queue = self.site.yard.queues.get(draw.choice(QUEUES))
        if queue is not None and queue.config is not None and draw.random() < 0.3:
            topic_queue.drop_topic_queue(self.site.yard, queue, self.site.now_ms)
