"""What was found damaged on the disk since the start, for those who tell of it.

Whoever reads back something else than was written, or nothing, notes it here and goes on without
it. The log tells each place once, health and metrics show what is known. A place is forgotten when
its job, its new body or its segment makes it irrelevant. All of it is bounded: a disk that loses
everything must not fill the memory or the log too.
"""

from typing import Final, final

from mypy_extensions import i64

# What clients are told of a job whose body is damaged, wherever they ask.
CORRUPT: Final = "corrupt: the data of this job is damaged on disk"

# The same of what it came to.
CORRUPT_RESULT: Final = "corrupt: the result of this job is damaged on disk"

# Places that are remembered of each kind, and stories that wait to be logged.
PLACES_MAX: Final = 10_000
STORIES_MAX: Final = 100


@final
class Damages:
    """A register of damage: bodies of jobs, texts of logs, and segments left uncompacted."""

    def __init__(self) -> None:
        # Reads that failed, also those of a place that was known.
        self.reads_count: i64 = 0
        # Bodies by the id of the job.
        self.jobs: set[int] = set()
        # Texts of logs: their offsets by the number of the segment.
        self.texts: dict[int, set[int]] = {}
        self.texts_count: i64 = 0
        # Segments that compaction cannot read, and where it stopped.
        self.segments: dict[int, str] = {}
        self._stories: list[str] = []
        self._untold: i64 = 0

    def note_body(self, job_id: i64, where: str, what: str = "body") -> None:
        """Count a read of a job's body or result that failed; told once a job."""
        self.reads_count += 1
        number = int(job_id)
        if number not in self.jobs and len(self.jobs) < PLACES_MAX:
            self.jobs.add(number)
            self._tell(f"the {what} of job {number} is damaged: {where}")

    def note_text(self, segment: i64, offset: i64, story: str) -> None:
        """Count a read of a log's text that failed; told once a place."""
        self.reads_count += 1
        offsets = self.texts.get(int(segment))
        if offsets is None:
            offsets = set()
            self.texts[int(segment)] = offsets
        if int(offset) not in offsets and self.texts_count < PLACES_MAX:
            offsets.add(int(offset))
            self.texts_count += 1
            self._tell(story)

    def note_segment(self, segment: i64, story: str) -> None:
        """Note a segment that compaction leaves as it is."""
        self.reads_count += 1
        if int(segment) not in self.segments:
            self.segments[int(segment)] = story
            self._tell(f"{story}; the segment is not compacted")

    def forget_body(self, job_id: i64) -> None:
        """Forget a body that is no longer wanted: the job is gone, or has another."""
        self.jobs.discard(int(job_id))

    def forget_segment(self, segment: i64) -> None:
        """Forget a segment that is gone, and what was damaged in it."""
        self.segments.pop(int(segment), None)
        self.texts_count -= len(self.texts.pop(int(segment), ()))

    def _tell(self, story: str) -> None:
        if len(self._stories) < STORIES_MAX:
            self._stories.append(story)
        else:
            self._untold += 1

    def take_stories(self) -> list[str]:
        """Return what was found since the last call."""
        if not self._stories:
            return []
        stories = self._stories
        self._stories = []
        if self._untold > 0:
            stories.append(f"{self._untold} more places are damaged")
            self._untold = 0
        return stories

    def count(self) -> i64:
        """Return how many damaged places are known."""
        return len(self.jobs) + self.texts_count + len(self.segments)

    def summary(self) -> str:
        """Return what is damaged in one line, or nothing."""
        parts: list[str] = []
        for count, what in (
            (len(self.jobs), "jobs with a damaged body"),
            (int(self.texts_count), "damaged records of logs"),
            (len(self.segments), "damaged segments that are not compacted"),
        ):
            if count > 0:
                parts.append(f"{count} {what}")
        return ", ".join(parts)
