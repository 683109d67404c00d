"""Finals: candidates timed in interleaved rounds until the winner is clear; clearly slower ones drop out.

16 candidates, 15 rounds -> 5 are not clearly slower than the fastest -> 15 more rounds among these -> 2 -> …
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autosched.measuring.local.jobs import Standings
from tuning_logs.ranking import still_in, undecided, winner

# Largest number of contests: eight times 15 rounds tell apart latencies that differ by 1 % where single ones scatter by
# 2 %. Closer candidates tie.
_MOST_CONTESTS = 8

# Times the candidates of these numbers in so many interleaved rounds.
HoldContest = Callable[[Sequence[int], int], Standings]


@dataclass
class Finals:
    """The latencies of every candidate, by number; one that dropped out has those of the first rounds only.

    `failures`: reason why a candidate could not compete.
    """

    latencies_s: dict[int, tuple[float, ...]] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, numbers: Sequence[int], standings: Standings) -> None:
        for number, latencies in zip(numbers, standings.latencies_s, strict=True):
            self.latencies_s[number] = self.latencies_s.get(number, ()) + latencies

    @property
    def winner(self) -> int:
        """The number of the winner; the first one of a tie."""
        most = max(map(len, self.latencies_s.values()))
        last = [number for number, taken in self.latencies_s.items() if len(taken) == most]
        return last[winner([self.latencies_s[number] for number in last])]

    @property
    def runner_up(self) -> int | None:
        """The number of the fastest of the others that took part longest; None without others."""
        won = self.winner
        others = {n: (-len(taken), statistics.median(taken)) for n, taken in self.latencies_s.items() if n != won}
        return min(others, key=others.__getitem__, default=None)


def hold(candidates: Sequence[int], rounds: int, contest: HoldContest) -> Finals:
    """Repeat contests of `rounds` until the winner is clear. No latencies if none could take place."""
    finals = Finals()
    standings = contest(candidates, rounds) if candidates else Standings(())
    if candidates and not standings.latencies_s:
        # One candidate spoils the contest: find it by running each alone.
        alone = {number: contest([number], rounds) for number in candidates}
        finals.failures = {number: a.detail for number, a in alone.items() if not a.latencies_s}
        candidates = [number for number in candidates if number not in finals.failures]
        standings = contest(candidates, rounds) if candidates else Standings(())
    left, held = list(candidates), 0
    while standings.latencies_s:
        finals.add(left, standings)
        latencies = [finals.latencies_s[number] for number in left]
        held += 1
        if held == _MOST_CONTESTS or not undecided(latencies):
            break
        left = [left[place] for place in still_in(latencies)]
        standings = contest(left, rounds)
    return finals
