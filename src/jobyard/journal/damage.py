"""The damage found on disk since the start, for logs, health checks and metrics.

Code that reads back something other than what was written registers it here and continues without
it. The log reports each damaged place once; health and metrics show all that are known. A place is
forgotten when its job is gone or has a new body, or when its segment is gone. All of it is bounded:
a disk that loses everything must not fill the memory or the log as well.
"""

from typing import Final, final

from mypy_extensions import i64

# The error that every door returns for a job with a damaged body.
CORRUPT_TEXT: Final = "corrupt: the data of this job is damaged on disk"

# The same for a damaged result.
CORRUPT_RESULT: Final = "corrupt: the result of this job is damaged on disk"

# The most places stored of each kind, and the most messages that wait to be logged.
PLACES_MAX: Final = 10_000
STORIES_MAX: Final = 100


@final
class Damages:
    """A register of damage: bodies of jobs, texts of logs, and segments that are not compacted."""

    def __init__(self) -> None:
        # Failed reads, including repeated ones of the same place.
        self.reads_count: i64 = 0
        # Bodies by the id of the job.
        self.jobs: set[int] = set()
        # Texts of logs: offsets by segment number.
        self.texts: dict[int, set[int]] = {}
        self.texts_count: i64 = 0
        # Segments that compaction cannot read, with a message that says where it stopped.
        self.segments: dict[int, str] = {}
        self._stories: list[str] = []
        self._unlisted_count: i64 = 0

    def note_body(self, job_id: i64, where: str, what: str = "body") -> None:
        """Count a failed read of a job's body or result; logged once per job."""
        self.reads_count += 1
        number = int(job_id)
        if number not in self.jobs and len(self.jobs) < PLACES_MAX:
            self.jobs.add(number)
            self._add_story(f"the {what} of job {number} is damaged: {where}")

    def note_text(self, segment: i64, offset: i64, story: str) -> None:
        """Count a failed read of a log's text; logged once per place."""
        self.reads_count += 1
        offsets = self.texts.get(int(segment))
        if offsets is None:
            offsets = set()
            self.texts[int(segment)] = offsets
        if int(offset) not in offsets and self.texts_count < PLACES_MAX:
            offsets.add(int(offset))
            self.texts_count += 1
            self._add_story(story)

    def note_segment(self, segment: i64, story: str) -> None:
        """Register a segment that compaction cannot read and skips."""
        self.reads_count += 1
        if int(segment) not in self.segments:
            self.segments[int(segment)] = story
            self._add_story(f"{story}; the segment is not compacted")

    def forget_body(self, job_id: i64) -> None:
        """Forget a body that is no longer needed: the job is gone or has a new one."""
        self.jobs.discard(int(job_id))

    def forget_segment(self, segment: i64) -> None:
        """Forget a removed segment and the damage in it."""
        self.segments.pop(int(segment), None)
        self.texts_count -= len(self.texts.pop(int(segment), ()))

    def _add_story(self, story: str) -> None:
        if len(self._stories) < STORIES_MAX:
            self._stories.append(story)
        else:
            self._unlisted_count += 1

    def take_stories(self) -> list[str]:
        """Return the messages about damage found since the last call."""
        if not self._stories:
            return []
        stories = self._stories
        self._stories = []
        if self._unlisted_count > 0:
            stories.append(f"{self._unlisted_count} more places are damaged")
            self._unlisted_count = 0
        return stories

    def count(self) -> i64:
        """Return the number of known damaged places."""
        return len(self.jobs) + self.texts_count + len(self.segments)

    def summary(self) -> str:
        """Return a one-line summary of the damage, or an empty string."""
        parts: list[str] = []
        for count, what in (
            (len(self.jobs), "jobs with a damaged body"),
            (int(self.texts_count), "damaged log records"),
            (len(self.segments), "damaged segments that are not compacted"),
        ):
            if count > 0:
                parts.append(f"{count} {what}")
        return ", ".join(parts)
