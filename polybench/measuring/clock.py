"""How long each part of a study takes, and how long the rest of it is going to."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Literal, NamedTuple

from polybench.core.document.circumstances import Took
from polybench.measuring.progress import Progress
from polybench.planning.estimate import NOTHING_EXPECTED, Estimate

Part = Literal["data", "parity", "starts", "rounds", "counting", "native", "trainings"]
_REPEATED: tuple[Part, ...] = ("starts", "rounds", "counting")
"""What each group of cells does in each replicate; it counts in the first one only."""


class _Time(NamedTuple):
    group: int
    seconds: float


class Clock:
    """Of one study; a part may be done several times, as rounds are in each process.

    Args:
        progress: told how long the rest takes, whenever a part begins that takes long.

    Attributes:
        expected: seconds of each part, all its times that are to come together.
        group: of cells, the one whose starts and rounds are timed now.
    """

    def __init__(self, progress: Progress) -> None:
        self.group = 0
        self._progress = progress
        self.expected = NOTHING_EXPECTED
        self._took: dict[str, list[_Time]] = {part: [] for part in Estimate._fields}
        self.expect(1, 1)

    def expect(self, replicates: int, groups: int) -> None:
        """Say how many replicates are to come, and how many groups take turns in each."""
        self._replicates, self._groups = replicates, groups
        self._alive = set(range(groups))

    def all_failed(self, group: int) -> None:
        """Expect no more of this group."""
        self._alive.discard(group)

    @contextlib.contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """What is done in this block; what breaks off does not count."""
        if part not in ("rounds", "counting"):  # they follow the starts at once
            self._progress.remaining(self.left(part))
        start = time.monotonic()
        yield
        self._took[part].append(_Time(self.group, time.monotonic() - start))

    def left(self, now: Part) -> float:
        """Seconds from the beginning of a part to the end of the study.

        Of what a group did before, one more time takes as long as it took the last time; but its first start
        is not like the others: it uses no code that was compiled before.
        """
        parts = list(Estimate._fields)
        begun = parts.index("starts" if now in (*_REPEATED, "native") else now)
        return sum(self._rest(part) for part in parts[begun:])

    def expect_the_rest(self, done: Mapping[Part, float]) -> None:
        """Expect that much less: shares of parts that an earlier process of this study has done."""
        rest = {part: (1 - share) * getattr(self.expected, part) for part, share in done.items()}
        self.expected = self.expected._replace(**rest)

    def _rest(self, part: str) -> float:
        if part in _REPEATED:
            return sum(self._rest_of(group, part) for group in self._alive)
        return max(0.0, float(getattr(self.expected, part)) - sum(self._seconds(part)))

    def _rest_of(self, group: int, part: str) -> float:
        """Of a part that follows this group's starts, or is one."""
        replicates = 1 if part == "counting" else self._replicates
        to_come = replicates - len(self._seconds("starts", group))
        if to_come <= 0:
            return 0.0
        warm = int(part == "starts")
        if seen := self._seconds(part, group)[warm:]:
            return to_come * seen[-1]
        others = [seconds for other in self._alive for seconds in self._seconds(part, other)[warm:][-1:]]
        expected = float(getattr(self.expected, part)) / (replicates * self._groups)
        return to_come * (fmean(others) if others else expected)

    def _seconds(self, part: str, group: int | None = None) -> list[float]:
        """Of each time, of all groups or of one."""
        return [one.seconds for one in self._took[part] if group in (None, one.group)]

    def took(self) -> Took:
        """So far."""
        total = {part: sum(self._seconds(part), 0.0) for part in self._took}
        return Took(
            data=total["data"],
            parity=total["parity"],
            starts=self._by_replicate("starts"),
            rounds=self._by_replicate("rounds"),
            counting=total["counting"],
            native=total["native"],
            trainings=total["trainings"],
        )

    def _by_replicate(self, part: Part) -> list[float]:
        """All groups of cells together."""
        groups = [self._seconds(part, group) for group in {one.group: None for one in self._took[part]}]
        return [sum(times, 0.0) for times in itertools.zip_longest(*groups, fillvalue=0.0)]
