"""A bunqueue client without a socket: sends whole commands, finds answers by their number."""

from typing import TYPE_CHECKING, Any, Final

from jobyard.protocols.session import Entrance
from tests.support.servers.bunqueue import frame, pack, unpack
from tests.support.site.connection import Connection

if TYPE_CHECKING:
    from tests.support.site.site import Site

# Tests know the types of the values in an answer.
Answer = dict[str, Any]

EMPTY: Final[Answer] = {}


class BunqueueClient(Connection):
    """One connection. The answer to a command is found by its number."""

    def __init__(self, site: "Site", entrance: Entrance) -> None:
        super().__init__(site, entrance)
        self._asked = 0
        self._answers: dict[str, Answer] = {}
        self.events: list[Answer] = []

    def send(self, cmd: str, **fields: object) -> str:
        """Send a command; return the number of its answer."""
        self._asked += 1
        number = str(self._asked)
        command = pack({"cmd": cmd, **fields, "reqId": number})
        self.feed(frame(command))
        return number

    def collect(self) -> None:
        """Parse the session's output."""
        super().collect()
        while len(self.unread) >= 4:
            end = 4 + int.from_bytes(self.unread[:4], "big")
            answer = unpack(self.unread[4:end])
            self.unread = self.unread[end:]
            assert isinstance(answer, dict)
            if "ok" in answer:
                self._answers[str(answer.pop("reqId"))] = answer
            else:
                self.events.append(answer["event"])

    def hear(self, number: str) -> Answer | None:
        """Return an answer if it has come."""
        return self._answers.pop(number, None)

    def ask(self, cmd: str, **fields: object) -> Answer:
        """Send a command that is answered at once; return the answer."""
        answer = self.hear(self.send(cmd, **fields))
        assert answer is not None, f"no answer to {cmd} {fields}"
        return answer

    def ok(self, cmd: str, **fields: object) -> Answer:
        """Send a request that must succeed; return the answer without `ok`."""
        answer = self.ask(cmd, **fields)
        assert answer.pop("ok") is True, f"{cmd} {fields}: {answer}"
        return answer

    def refused(self, cmd: str, **fields: object) -> str:
        """Send a command that must be refused; return the reason."""
        answer = self.ask(cmd, **fields)
        assert answer.pop("ok") is False, f"{cmd} {fields}: {answer}"
        error = answer.pop("error")
        assert answer == EMPTY
        assert isinstance(error, str)
        return error

    def push(self, queue: str = "q", data: object = None, **fields: object) -> str:
        """Add a job; return its id."""
        return str(self.ok("PUSH", queue=queue, data=data, **fields)["id"])

    def pull(self, queue: str = "q", **fields: object) -> Answer:
        """Take a job that must be there."""
        job: Answer | None = self.ok("PULL", queue=queue, **fields)["job"]
        assert job is not None, f"{queue} has no job to give"
        return job

    def lock(self, queue: str = "q", **fields: object) -> tuple[str, str]:
        """Take a job with a lock; return its id and the token."""
        answer = self.ok("PULL", queue=queue, owner="me", **fields)
        assert answer["job"] is not None, f"{queue} has no job to give"
        return answer["job"]["id"], answer["token"]

    def finish(self, queue: str = "q", data: object = None, **fields: object) -> str:
        """Add a job to an empty queue and complete it; return its id."""
        result = {"result": fields.pop("result")} if "result" in fields else {}
        job_id = self.push(queue, data, **fields)
        assert self.pull(queue)["id"] == job_id
        self.ok("ACK", id=job_id, **result)
        return job_id

    def bury(self, queue: str = "q", data: object = None, **fields: object) -> str:
        """Add a job to an empty queue and fail it for good; return its id."""
        job_id = self.push(queue, data, **fields)
        assert self.pull(queue)["id"] == job_id
        self.ok("FAIL", id=job_id, error="no", unrecoverable=True)
        return job_id

    def state(self, job_id: str) -> str:
        """Return the state of a job."""
        return str(self.ok("GetState", id=job_id)["state"])
