"""Service level objectives: how often each was met, and what is left of its budget."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobyard.lake.report.gold import MINUTE_US, Slice, texts
from jobyard.lake.schemas import SLO

_NAMED: Final = ("yard", "queue", "objective")
_NUMBERS: Final = ("good", "bad", "target", "burn_1h", "burn_6h", "budget_left")


class ObjectiveState(NamedTuple):
    """One objective of one queue, over the period."""

    yard: str
    queue: str
    name: str
    good: int
    bad: int
    # As it was in the newest hour.
    target: float
    budget_left: float
    # The greatest of the period.
    burn_1h: float
    burn_6h: float
    # Hour (a minute since 1970), burn of six hours, budget left.
    hours: tuple[tuple[int, float, float], ...]

    def ratio(self) -> float:
        """Return how often it was met, of all."""
        return self.good / (self.good + self.bad) if self.good + self.bad else float("nan")


def read_objectives(part: Slice) -> list[ObjectiveState]:
    """Read the table of objectives; the one with the least budget left is first."""
    # An hour that began before the period has minutes in it.
    part = part._replace(since=part.since // 60 * 60)
    batches = list(part.scan(SLO, [*_NAMED, "hour_at", *_NUMBERS], "hour_at"))
    if not batches:
        return []
    rows = pa.Table.from_batches(batches).sort_by("hour_at").combine_chunks()
    names = zip(*(texts(rows[name]) for name in _NAMED), strict=True)
    groups: dict[tuple[str, ...], list[int]] = {}
    for at, name in enumerate(names):
        groups.setdefault(name, []).append(at)
    hours = np.asarray(rows["hour_at"].cast(pa.int64())) // MINUTE_US
    numbers = {
        name: np.asarray(
            rows[name].cast(pa.float64()).combine_chunks().to_numpy(zero_copy_only=False)
        )
        for name in _NUMBERS
    }
    found = []
    for (yard, queue, objective), group in groups.items():
        of = {key: column[group] for key, column in numbers.items()}
        series = zip(
            hours[group].tolist(), of["burn_6h"].tolist(), of["budget_left"].tolist(), strict=True
        )
        found.append(
            ObjectiveState(
                *(yard, queue, objective),
                *(int(np.nansum(of["good"])), int(np.nansum(of["bad"]))),
                *(float(of["target"][-1]), float(of["budget_left"][-1])),
                *(_greatest(of["burn_1h"]), _greatest(of["burn_6h"])),
                hours=tuple(series),
            )
        )
    return sorted(found, key=lambda each: (np.nan_to_num(each.budget_left, nan=1e9), each[:3]))


def time_of(minute: int) -> datetime:
    """Return a minute since 1970 as a time."""
    return datetime.fromtimestamp(minute * 60, UTC)


def _greatest(numbers: "np.typing.NDArray[np.float64]") -> float:
    known = numbers[~np.isnan(numbers)]
    return float(known.max()) if len(known) else float("nan")
