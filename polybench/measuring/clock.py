"""How long each part of a study takes, and how long the rest of it is going to."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Literal

from polybench.core.document.circumstances import Took
from polybench.measuring.progress import Progress
from polybench.planning.estimate import NOTHING_EXPECTED, Estimate

Part = Literal["data", "parity", "starts", "rounds", "counting", "native", "trainings"]


class Clock:
    """Of one study; a part may be done several times, as rounds are in each process.

    Args:
        progress: told how long the rest takes, whenever a part begins that takes long.

    Attributes:
        expected: seconds of each part, all its times that are to come together.
        replicates: how many are to come when they begin.
        groups: of cells, whose starts and rounds come one after the other in each replicate; in the first
            one each counts.
    """

    def __init__(self, progress: Progress) -> None:
        self.replicates = self.groups = 1
        self._progress = progress
        self.expected = NOTHING_EXPECTED
        self._took: dict[str, list[float]] = {part: [] for part in Estimate._fields}

    @contextlib.contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """What is done in this block; what breaks off does not count."""
        if part not in ("rounds", "counting"):  # they follow the starts at once
            self._progress.remaining(self.left(part))
        start = time.monotonic()
        yield
        self._took[part].append(time.monotonic() - start)

    def left(self, now: Part) -> float:
        """Seconds from the beginning of a part to the end of the study.

        Of what was done before, one more time takes as long as it took the last time; but the first start is
        not like the others: it uses no code that was compiled before.
        """
        parts = list(Estimate._fields)
        repeated = ("starts", "rounds", "counting", "native")
        begun = parts.index("starts" if now in repeated else now)
        return sum(self._rest(part) for part in parts[begun:])

    def expect_the_rest(self, done: Mapping[Part, float]) -> None:
        """Expect that much less: shares of parts that an earlier process of this study has done."""
        rest = {part: (1 - share) * getattr(self.expected, part) for part, share in done.items()}
        self.expected = self.expected._replace(**rest)

    def _rest(self, part: str) -> float:
        took, expected = self._took[part], float(getattr(self.expected, part))
        if part not in ("starts", "rounds", "counting"):
            return max(0.0, expected - sum(took))
        times = self.groups * (1 if part == "counting" else self.replicates)
        to_come = max(0, times - len(self._took["starts"]))  # the others follow each of these
        seen = took[self.groups :] if part == "starts" else took
        return to_come * (fmean(seen[-self.groups :]) if seen else expected / times)

    def took(self) -> Took:
        """So far."""
        total = {part: sum(times, 0.0) for part, times in self._took.items()}
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
        took, groups = self._took[part], self.groups
        return [sum(took[first : first + groups], 0.0) for first in range(0, len(took), groups)]
