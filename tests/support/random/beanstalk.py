"""Clients that do anything the protocol allows, drawn from a seed.

They favour commands that move jobs: a client mostly ends one of the jobs it holds, and tubes are
few, so that jobs, waiters and pauses interact. Nothing here knows the expected result.
"""

from random import Random
from typing import Final

from tests.support.clients.beanstalk import BeanstalkClient
from tests.support.site.yard import OpenYard

TUBES: Final = (b"default", b"a", b"b")
CLIENTS: Final = 4


class RandomRun:
    """Some clients of one yard and their random generator."""

    def __init__(
        self, site: OpenYard, seed: int, sizes: tuple[int, ...] = (0, 10, 300, 5000)
    ) -> None:
        self.site = site
        self._random = Random(seed)
        self._sizes = sizes
        self._clients = [site.connect() for _ in range(CLIENTS)]
        self._puts = 0

    def step(self) -> None:
        """Let some time pass, then let one client do one thing."""
        draw = self._random
        self.site.jump(draw.choice((0, 0, 1, 5, 100, 1000)))
        at = draw.randrange(CLIENTS)
        client = self._clients[at]
        client.hear()
        if draw.random() < 0.02:
            client.leave()
            self._clients[at] = self.site.connect()
        elif client.session._waiter is None:
            client.say(self._command(client))
            client.hear()

    def leave(self) -> None:
        """Close every connection."""
        for client in self._clients:
            client.leave()

    def _command(self, client: BeanstalkClient) -> bytes:
        draw = self._random
        held = [int(lease.job.id) for lease in client.lease_set.leases.items]  # type: ignore[attr-defined]
        if held and draw.random() < 0.6:
            return self._end(draw.choice(held))
        choice = draw.random()
        if choice < 0.4:
            return self._put()
        if choice < 0.7:
            return draw.choice((b"reserve-with-timeout 0", b"reserve-with-timeout 3")) + b"\r\n"
        jobs = self.site.yard.jobs.all()
        job_id = int(draw.choice(jobs).id) if jobs else 1
        tube = draw.choice(TUBES)
        return draw.choice(
            (
                b"use %s\r\n" % tube,
                b"watch %s\r\n" % tube,
                b"ignore %s\r\n" % tube,
                b"kick %d\r\n" % draw.randrange(4),
                b"kick-job %d\r\n" % job_id,
                b"delete %d\r\n" % job_id,
                b"reserve-job %d\r\n" % job_id,
                b"pause-tube %s %d\r\n" % (tube, draw.randrange(3)),
            )
        )

    def _put(self) -> bytes:
        draw = self._random
        self._puts += 1
        size = draw.choice(self._sizes)
        body = (b"%d;" % self._puts * (size // 2 + 1))[:size]
        rank = draw.choice((0, 1, 1023, 1024, 5000))
        delay = draw.choice((0, 0, 0, 2, 30))
        return b"put %d %d %d %d\r\n%s\r\n" % (rank, delay, draw.choice((1, 5, 60)), size, body)

    def _end(self, job_id: int) -> bytes:
        draw = self._random
        return draw.choices(
            (
                b"delete %d\r\n" % job_id,
                b"release %d %d %d\r\n" % (job_id, draw.randrange(2000), draw.choice((0, 0, 5))),
                b"bury %d %d\r\n" % (job_id, draw.randrange(2000)),
                b"touch %d\r\n" % job_id,
            ),
            (5, 3, 2, 1),
        )[0]
