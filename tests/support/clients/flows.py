"""Flows as a bunqueue client puts them, on the door without a socket.

Children are in the queue `c`, parents in `q`; the parent of a flow is called `p`.
"""

from typing import Any

from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage


def family(*children: str, queue: str = "q", parent: str = "p", **options: object) -> list[Any]:
    """Plan a parent in one queue and its children in another."""
    jobs: list[Any] = [
        {
            "id": name,
            "queue": "c",
            "input": {
                "data": {"__parentId": parent, "__parentQueue": queue},
                "parentId": parent,
                "maxAttempts": 1,
                **options,
            },
        }
        for name in children
    ]
    names = list(children)
    given = {"data": {"__childrenIds": names}, "childrenIds": names, "dependsOn": names}
    return [*jobs, {"id": parent, "queue": queue, "input": given}]


def stage(*children: str, **options: bool) -> tuple[BareBunqueue, BunqueueClient]:
    """Return a site with a flow in it."""
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.ok("PUSHF", jobs=family(*children, queue="q", parent="p", **options))
    return site, client


def again(site: BareBunqueue) -> tuple[BareBunqueue, BunqueueClient]:
    """Kill the site and start it again."""
    site.check()
    site = site.reboot()
    site.check()
    return site, site.connect()


def end_child(client: BunqueueClient, result: object = None, error: str = "") -> str:
    """Take the next child and end it; return its id."""
    job_id = str(client.pull("c")["id"])
    if error:
        client.ok("FAIL", id=job_id, error=error)
    else:
        client.ok("ACK", id=job_id, result=result)
    return job_id


def values(client: BunqueueClient, job_id: str = "p") -> Answer:
    """Return the results of the children of a job."""
    found: Answer = client.ok("GetChildrenValues", id=job_id)["data"]["values"]
    return found


def failures(client: BunqueueClient, job_id: str = "p") -> Answer:
    """Return why children of a job failed."""
    found: Answer = client.ok("GetFailedChildrenValues", id=job_id)["values"]
    return found


def late(parent: str, queue: str = "q", **fields: object) -> Answer:
    """Return the fields of a PUSH that links a child to a parent."""
    data = {"__parentId": parent, "__parentQueue": queue}
    return {"queue": "c", "data": data, "parentId": parent, **fields}
