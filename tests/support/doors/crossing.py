"""One client of each door over one yard, without a socket, all using one queue."""

import json
from typing import Any, Final

from jobyard.journal.storage import Storage
from tests.support.clients.beanstalk import BeanstalkClient
from tests.support.doors.doors import BareDoors
from tests.support.servers.sockets import stat
from tests.support.site.site import NOW_MS

QUEUE: Final = "tasks"


class Bean:
    """A beanstalk client that uses and watches one tube."""

    def __init__(self, doors: BareDoors, client: BeanstalkClient, tube: str) -> None:
        self._doors = doors
        self.client = client
        self.tube = tube
        client.say(b"use %b\r\nwatch %b\r\nignore default\r\n" % ((tube.encode(),) * 2))

    def ask(self, line: str) -> str:
        """Send a line; return the immediate answer without its line end."""
        answer = self.client.say(line.encode() + b"\r\n")
        # It may have served other clients.
        self._doors.settle()
        return answer.decode().removesuffix("\r\n")

    def put(self, body: str = "b", rank: int = 0, delay_s: int = 0, ttr_s: int = 60) -> int:
        """Put a job; return its id."""
        word, number = self.ask(f"put {rank} {delay_s} {ttr_s} {len(body)}\r\n{body}").split()
        assert word == "INSERTED"
        return int(number)

    def reserve(self) -> tuple[int, str]:
        """Take a job, which must exist; return its id and its body."""
        head, _, body = self.ask("reserve-with-timeout 0").partition("\r\n")
        assert head.startswith("RESERVED "), head
        return int(head.split()[1]), body

    def is_empty(self) -> bool:
        """Return whether there is nothing to take."""
        answer = self.ask("reserve-with-timeout 0")
        assert answer == "TIMED_OUT" or answer.startswith("RESERVED"), answer
        return answer == "TIMED_OUT"

    def heard(self) -> str:
        """Return the answers since the last call."""
        return self.client.hear().decode().removesuffix("\r\n")

    def of_job(self, number: int, key: str) -> str:
        """Return a value of the statistics of a job."""
        return stat(self.ask(f"stats-job {number}").encode(), key)

    def of_tube(self, key: str) -> str:
        """Return a value of the statistics of the tube."""
        return stat(self.ask(f"stats-tube {self.tube}").encode(), key)


class Waiting:
    """A client that waits for a job at one door, on its own connection."""

    def __init__(self, doors: "Crossing", how: str) -> None:
        self.how = how
        if how == "reserve":
            self._bean = doors.another_bean()
            self._bean.client.session.receive(b"reserve\r\n", doors.now_ms)
        elif how == "PULL":
            self._bun = doors.bunqueue()
            self._number = self._bun.send("PULL", queue=QUEUE, timeout=60_000)
        elif how == "XREADGROUP":
            self._glide = doors.library(QUEUE)
            self._glide.client.send(
                "XREADGROUP", "GROUP", "workers", "w9", "COUNT", 1, "BLOCK", 0,
                "STREAMS", self._glide.key("stream"), ">",
            )  # fmt: skip
        else:
            self._caller = doors.connect()
            if how == "claim":
                body = {"node": "w9", "wait_ms": 30_000}
                self._caller.send("POST", f"/v0/topics/{QUEUE}/claim", body)
            else:
                self._caller.listen(f"/v0/topics/{QUEUE}/work?node=w8&max=1")

    def heard(self) -> Any:
        """Return the data of the job that came, or None."""
        if self.how == "reserve":
            _, _, body = self._bean.heard().partition("\r\n")
            return json.loads(body) if body else None
        if self.how == "PULL":
            answer = self._bun.hear(self._number)
            return None if answer is None else answer["job"]["data"]
        if self.how == "XREADGROUP":
            answers = self._glide.client.hear()
            if not answers:
                return None
            ((_, fields),) = answers[0][0][1]
            return json.loads(self._glide.job(fields[1].decode())["data"])
        if self.how == "claim":
            came = self._caller.hear()
            return None if came is None else came.json["claimed"][0]["data"]
        jobs = [event.json for event in self._caller.events() if event.name == "job"]
        return jobs[0]["data"] if jobs else None

    def vanish(self) -> None:
        """Disconnect abruptly."""
        if self.how == "reserve":
            self._bean.client.leave()
        elif self.how == "PULL":
            self._bun.close()
        elif self.how == "XREADGROUP":
            self._glide.client.close()
        else:
            self._caller.close()


WAITS: Final = ("reserve", "PULL", "XREADGROUP", "claim", "work")
DOORS: Final = ("beanstalk", "bunqueue", "glide-mq", "topics")


class Crossing(BareDoors):
    """The doors of one boot, and a client of each."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(storage, now_ms, window=window)
        self.bean = self.another_bean()
        self.bun = self.bunqueue()
        self.glide = self.library(QUEUE)

    def another_bean(self, tube: str = QUEUE) -> Bean:
        """Open a connection to the beanstalk door."""
        return Bean(self, self.beanstalk(), tube)

    def wait(self, how: str) -> Waiting:
        """Make a client wait at an existing queue."""
        return Waiting(self, how)

    def put_at(self, door: str, data: int, delay_ms: int = 0) -> None:
        """Put a job at a door."""
        if door == "beanstalk":
            self.bean.put(str(data), delay_s=delay_ms // 1000)
        elif door == "bunqueue":
            self.bun.push(QUEUE, data, delay=delay_ms)
        elif door == "glide-mq":
            self.glide.add(data=str(data), delay=delay_ms)
        else:
            self.api.ok(QUEUE, {"records": [{"data": data, "delay_ms": delay_ms}]}, status=200)

    def take_at(self, door: str) -> Any:
        """Take a job at a door at once; return its data, or None."""
        if door == "beanstalk":
            _, _, body = self.bean.ask("reserve-with-timeout 0").partition("\r\n")
            return json.loads(body) if body else None
        if door == "bunqueue":
            job = self.bun.ok("PULL", queue=QUEUE)["job"]
            return None if job is None else job["data"]
        if door == "glide-mq":
            jobs = self.glide.read()
            return json.loads(self.glide.job(jobs[0][0])["data"]) if jobs else None
        claimed = self.api.claim(QUEUE)["claimed"]
        return claimed[0]["data"] if claimed else None

    def make(self) -> None:
        """Make the queue a topic, so that all doors have it."""
        self.api.put(QUEUE, type="queue")
