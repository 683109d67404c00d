"""Evolutionary search steered by a cost model: a population evolves under predicted scores, and its best are measured.

Source: Ansor (OSDI 2020, section 5.1). Different here: crossover by knobs; part of each batch are neighbours of the
best measured schedules; a batch is spread over the space instead of crowding around one point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from autosched.strategies.prior_guard import PriorGuard, Transfer
from autosched.strategies.strategy import Family, Stopped, draw, family_of, schedules_of
from autosched.strategies.transfer import transferred
from cost_models import CostModel
from search_spaces import InputError, Schedule, SearchSpace
from tuning_logs import TuningRecord

# Candidates per schedule asked for and generation, within bounds. Twice as many double the time and gain 2 % at most:
# within the scatter of 24 searches of a simulated device.
_CANDIDATES_PER_ASKED = 2
_POPULATION = (48, 128)
_GENERATIONS = 4
_MUTATION = 0.85
# The starting population: this part from the best measured, the rest drawn at random. With half of it drawn at random,
# searches of a simulated CPU ended 7 % slower (24 seeds).
_FROM_BEST = 0.8
_PARENTS = 24
# Parts of a batch: random schedules (which keep the model honest where it never looked), and neighbours of the best.
_RANDOM = 0.08
_NEIGHBOURS = 0.25
# Centres of such neighbourhoods, one for so many schedules asked for.
_ASKED_PER_CENTRE = 16
# In a batch, at most so many schedules differ from one already chosen in a single knob.
_CROWD = 2
# Parents of one family, schedules with equal tiles: others have their turn, though they are slower so far. Without this
# bound four of five trials went to the family that was fastest first (matrix products on an H200, 250 trials each).
_PER_FAMILY = 4
# At most this part of a batch is of one family.
_FAMILY_PART = 0.2
# At most this part of the first batch is what was best elsewhere; up to the second part it, and the batches after it,
# are filled with the points that sketches propose to start from, until all of these were asked for.
_TRANSFER_PART = 0.4
_START_PART = 0.6
# Before there is data, this part of the rest is what the prior ranks first among so many draws each.
_PRIOR_PART = 0.5
_PRIOR_DRAWS = 8
# Candidates whose chance to fail is greater are not proposed, but for the random part of a batch. What is let through
# wrongly costs a trial, what is stopped wrongly may be the best: so only where failures are four to one.
_HOPELESS = 0.8
# Of what earlier runs measured here, so many trials show what the prior is worth.
_MOST_TRIED = 64
# The cost model is refitted when this part more is known here: at every batch at first, at every second one from 512
# records on, where one batch more changes little and a fit takes longer.
_GROWTH = 1 / 8


class Evolutionary:
    """The default strategy. What was told is learnt at the next ask."""

    def __init__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> None:
        self._space = space
        self._model = cost_model
        self._rng = rng
        self._known: set[Schedule] = set()
        self._records: list[TuningRecord] = []
        self._history: list[TuningRecord] = []
        self._heard: list[TuningRecord] = []
        self._guard = PriorGuard()
        self._misled = False
        self._elite: list[Schedule] = []
        self._infeasible: set[Schedule] = set()
        self._rejected_before = space.rejected
        self._learnt = 0, 0
        self._fitted = 0
        self._asked = False
        self._seeds: list[Schedule] = []

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        if elsewhere:
            # What is heard while it goes on was measured in the same session: that is not in question.
            (self._heard if self._asked else self._history).extend(records)
            return
        self._records.extend(records)
        self._guard.told(records)
        self._known |= schedules_of(self._space, records)

    @property
    def stopped(self) -> Stopped:
        return Stopped(self._space.rejected - self._rejected_before, len(self._infeasible))

    @property
    def transfer(self) -> Transfer | None:
        return self._guard.seen

    def ask(self, count: int) -> list[Schedule]:
        if not self._asked and self._history and self._records:
            self._try_prior()
        self._learn()
        batch = _Selection(self._known, per_family=max(_CROWD, round(_FAMILY_PART * count)))
        explored = int(_RANDOM * count + self._rng.random())
        if not self._asked:
            batch.take(self._elite, round(_TRANSFER_PART * count))
            self._seeds = self._space.seeds()
        self._asked = True
        transferred_first = set(batch.chosen)
        batch.take(self._seeds, round(_START_PART * count))
        started = batch.chosen.keys() - transferred_first
        self._seeds = [s for s in self._seeds if s not in self._known and s not in batch.chosen]
        if self._elite and not self._begins_anew():
            near = self._neighbours(-(-count // _ASKED_PER_CENTRE))
            batch.take(self._ranked(near), len(batch.chosen) + round(_NEIGHBOURS * count))
            batch.take(self._ranked(self._evolved(count)), count - explored)
        else:
            pool = draw(self._space, _PRIOR_DRAWS * count, self._known, self._rng)
            free = count - len(batch.chosen)
            batch.take(self._ranked(pool), len(batch.chosen) + round(_PRIOR_PART * free))
        rest = draw(self._space, count - len(batch.chosen), self._known | batch.chosen.keys(), self._rng)
        asked = [*batch.chosen, *rest]
        self._known.update(asked)
        if self._history and not self._records:
            self._guard.predicted(asked, self._model.predict(self._space, asked), batch.chosen.keys() - started)
        return asked

    def _begins_anew(self) -> bool:
        """Whether this batch is drawn as the first one of a cold search: once, when the first trials were misled."""
        first = not self._misled and not self._guard.trust
        self._misled |= first
        return first

    def _try_prior(self) -> None:
        """Compare what is known of elsewhere with what earlier runs have measured here."""
        known = list(_bound(dict.fromkeys(r.schedule for r in self._records[:_MOST_TRIED]), self._space.bind))
        self._model.fit(self._space, self._history)
        self._guard.predicted(known, self._model.predict(self._space, known), set())
        self._guard.told(self._records)
        # What those trials were led by is not known.
        self._misled = True

    def _learn(self) -> None:
        believed = self._history[: round(self._guard.trust * len(self._history))]
        records = [*believed, *self._heard, *self._records]
        if self._learnt == (len(believed), len(records)):
            return
        self._learnt = len(believed), len(records)
        self._elite = _elite(self._space, self._records) or _transferred(self._space, records)
        if len(self._records) >= (1 + _GROWTH) * self._fitted:
            self._fitted = len(self._records)
            self._model.fit(self._space, records)

    def _neighbours(self, centres: int) -> list[Schedule]:
        best_of_family = dict.fromkeys(family_of(s) for s in self._elite)
        first = [next(s for s in self._elite if family_of(s) == family) for family in islice(best_of_family, centres)]
        found = (n for centre in first for n in self._space.neighbours(centre))
        return list(dict.fromkeys(n for n in found if n not in self._known))

    def _evolved(self, count: int) -> list[Schedule]:
        """Every new schedule that came up in the generations, in order."""
        size = int(np.clip(_CANDIDATES_PER_ASKED * count, *_POPULATION))
        population = self._first_population(size)
        seen = dict.fromkeys(population)
        for _ in range(_GENERATIONS - 1):
            population = self._next_population(population)
            seen.update(dict.fromkeys(population))
        return [s for s in seen if s not in self._known]

    def _first_population(self, size: int) -> list[Schedule]:
        parents = self._elite[:_PARENTS]
        from_best = max(len(parents), int(_FROM_BEST * size))
        mutated = [self._mutated(parents[i % len(parents)]) for i in range(from_best - len(parents))]
        return [*parents, *mutated, *(self._space.sample(self._rng) for _ in range(size - from_best))]

    def _next_population(self, population: list[Schedule]) -> list[Schedule]:
        """Children of parents drawn with probability proportional to their predicted score."""
        scores = np.maximum(self._model.predict(self._space, population), 1e-6)
        parents = self._rng.choice(len(population), size=(len(population), 2), p=scores / scores.sum())
        mutates = self._rng.random(len(population)) < _MUTATION
        return [
            self._mutated(population[a]) if mutate else self._space.crossover(population[a], population[b], self._rng)
            for (a, b), mutate in zip(parents, mutates, strict=True)
        ]

    def _mutated(self, schedule: Schedule) -> Schedule:
        return self._space.mutate(schedule, self._rng)

    def _ranked(self, schedules: Sequence[Schedule]) -> list[Schedule]:
        """Highest predicted score first, without what is predicted to fail; equal scores in the given order."""
        hopeless = self._model.failure_chance(self._space, schedules) > _HOPELESS
        self._infeasible.update(s.unbound for s, stop in zip(schedules, hopeless, strict=True) if stop)
        scores = self._model.predict(self._space, schedules)
        return [schedules[i] for i in np.argsort(-scores, kind="stable") if not hopeless[i]]


class _Selection:
    """The schedules chosen so far for one ask, in order."""

    def __init__(self, known: set[Schedule], per_family: int) -> None:
        self._known = known
        self._per_family = per_family
        self._families: Counter[Family] = Counter()
        self.chosen: dict[Schedule, None] = {}

    def take(self, ranked: Iterable[Schedule], until: int) -> None:
        """Choose from the front of `ranked` until there are `until`: first what does not crowd, then the rest."""
        crowding: list[Schedule] = []
        for schedule in ranked:
            if len(self.chosen) >= until:
                return
            if schedule in self._known or schedule in self.chosen:
                continue
            if self._crowds(schedule):
                crowding.append(schedule)
            else:
                self._choose(schedule)
        for schedule in crowding[: max(0, until - len(self.chosen))]:
            self._choose(schedule)

    def _crowds(self, schedule: Schedule) -> bool:
        if self._families[family_of(schedule)] >= self._per_family:
            return True
        return sum(_differences(schedule, other) <= 1 for other in self.chosen) >= _CROWD

    def _choose(self, schedule: Schedule) -> None:
        self.chosen[schedule] = None
        self._families[family_of(schedule)] += 1


def _differences(a: Schedule, b: Schedule) -> int:
    """Knobs in which two schedules differ, the backend being one more; all of them when their sketches do."""
    if a.sketch != b.sketch:
        return len(a.values)
    return (a.backend != b.backend) + sum(x != y for x, y in zip(a.values, b.values, strict=True))


def _elite(space: SearchSpace, records: Sequence[TuningRecord]) -> list[Schedule]:
    """The fastest schedules of this space, best first, not too many of one family."""
    key = (space.workload.key, space.target.key)
    ok = sorted((r for r in records if r.measurement.ok and r.key == key), key=lambda r: r.measurement.undisturbed_s)
    own = dict.fromkeys(r.schedule for r in ok)
    return list(islice(_bound(_spread(own), space.bind), _PARENTS))


def _spread(schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """The schedules in order, but of every family only the first few."""
    families: Counter[Family] = Counter()
    for schedule in schedules:
        families[family_of(schedule)] += 1
        if families[family_of(schedule)] <= _PER_FAMILY:
            yield schedule


def _transferred(space: SearchSpace, records: Sequence[TuningRecord]) -> list[Schedule]:
    """While nothing has succeeded here: what did elsewhere. Several of these may come to one schedule of this space."""
    return transferred(space, [r for r in records if r.measurement.ok], 2 * _PARENTS)


def _bound(schedules: Iterable[Schedule], bind: Callable[[Schedule], Schedule]) -> Iterator[Schedule]:
    """The schedules bound to the space; those that it no longer has are left out."""
    for schedule in schedules:
        try:
            yield bind(schedule)
        except InputError:
            continue
