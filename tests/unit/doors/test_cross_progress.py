"""Progress stored at one door never keeps another from showing the job."""

import json

import pytest

from jobyard.protocols.bunqueue.webhooks import LOOK_MS
from tests.support.doors.crossing import QUEUE, Crossing


@pytest.mark.parametrize(
    ("noted", "number", "message"),
    [
        ("40", 40, None),
        ("12.5", 12.5, None),
        ('{"step":"two"}', 0, '{"step":"two"}'),
        ("half", 0, "half"),
        ("nan", 0, "nan"),
        ("1e999", 0, "1e999"),
    ],
)
@pytest.mark.parametrize("family", ["bunqueue", "glide-mq"])
def test_any_progress_of_glide_mq_is_shown_by_bunqueue(
    family: str, noted: str, number: object, message: str | None
) -> None:
    doors = Crossing()
    doors.bun.ok("AddWebhook", url="http://1.2.3.4/", events=["job.progress"])
    if family == "bunqueue":
        doors.bun.push(QUEUE, 1)
    else:
        doors.glide.add()
    [(job_id, _)] = doors.glide.read()
    doors.glide.client.ask("HSET", doors.glide.key(f"job:{job_id}"), "progress", noted)
    assert doors.glide.job(job_id)["progress"] == noted
    (job,) = doors.bun.ok("GetJobs", queue=QUEUE)["jobs"]
    assert (job["progress"], job["progressMessage"]) == (number, message)
    told = doors.bun.ok("GetProgress", id=job["id"])
    assert (told["progress"], told["message"]) == (number, message)
    doors.tick(LOOK_MS)
    [(_, _, _, _, body)] = doors.others.life.posts
    assert json.loads(body)["progress"] == number
    doors.check()
