"""Evolutionary search guided by a cost model: a population evolves under predicted scores, and its best are measured.

Bayesian optimisation (`autosched.strategies.bayesian`) chooses among the evolved candidates: a Gaussian process over
the knobs learns the residuals of the cost model in this space, and their uncertainty. Source of the evolution: Ansor
(OSDI 2020, section 5.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from autosched.strategies.bayesian import BayesianSearch
from autosched.strategies.bayesian.candidates import Candidates
from autosched.strategies.evolution.knob_columns import KnobColumns
from autosched.strategies.evolution.model_prior import ModelPrior
from autosched.strategies.evolution.population import PARENTS, Evolution
from autosched.strategies.evolution.prior_guard import PriorGuard
from autosched.strategies.evolution.transfer import transferred, winners
from autosched.strategies.strategy import Family, Stopped, Transfer, draw, family_of, own_trials
from cost_models import CostModel
from search_spaces import InputError, Schedule, SearchSpace
from tuning_logs import TuningRecord

# Diversity of a batch that the Gaussian process did not choose: at most so many schedules differ from a chosen one in a
# single knob, and at most this part is of one family.
_CROWD = 2
_FAMILY_PART = 0.2
# What wins at similar workloads that are searched at the same time is measured here, too: of so many of them.
_MOST_WINNERS = 2
# Exploration: this part of a batch is drawn at random, so that the model sees regions that it would not choose.
_RANDOM = 0.08
# Warm start: at most this part of the first batch is the best of elsewhere. Up to the second part, the first batch and
# the ones after it are filled with the sketches' starting points, until all of these were asked for.
_TRANSFER_PART = 0.4
_START_PART = 0.6
# Before there is data, this part of the rest is the best of so many random draws each, as the prior ranks them.
_PRIOR_PART = 0.5
_PRIOR_DRAWS = 8
# Candidates that the process keeps while it chooses a batch: the most promising of some hundred.
_SHORT_LIST = 200
# So many trials of earlier runs here are enough to judge the prior by.
_MOST_TRIED = 64
# The cost model is refitted when the records have grown by this part since its last fit: one batch among many changes
# little, and a fit takes longer.
_GROWTH = 1 / 8


class Evolutionary:
    """The default strategy. Observed records are learnt from when the next batch is asked for."""

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
        self._rejected_before = space.rejected
        self._learnt = 0
        self._fitted = 0
        self._asked = False
        # Schedules that succeeded here.
        self._found: list[Schedule] = []
        self._seeds: list[Schedule] = []
        self._evolution = Evolution(space, cost_model, rng)
        self._candidates = Candidates(self._evolution, KnobColumns(space), rng)
        self._prior = ModelPrior(space, cost_model, self._candidates)
        self._search = BayesianSearch(self._candidates, self._prior, (), rng, _SHORT_LIST)

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        if elsewhere:
            # Records from elsewhere that arrive later were measured in the same session: they are trusted.
            (self._heard if self._asked else self._history).extend(records)
            return
        self._records.extend(records)
        self._guard.observe(records)
        own = own_trials(self._space, records)
        self._known |= {schedule for schedule, _ in own}
        seconds = [r.measurement.undisturbed_s if r.measurement.ok else None for _, r in own]
        self._search.tell([schedule for schedule, _ in own], seconds)
        self._found += [schedule for schedule, r in own if r.measurement.ok]

    @property
    def stopped(self) -> Stopped:
        return Stopped(self._space.rejected - self._rejected_before, len(self._evolution.infeasible))

    @property
    def transfer(self) -> Transfer | None:
        return self._guard.seen

    def ask(self, count: int) -> list[Schedule]:
        if not self._asked and self._history and self._records:
            self._try_prior()
        self._learn()
        batch = _Batch(self._known, per_family=max(_CROWD, round(_FAMILY_PART * count)))
        elite = [] if self._found else self._transferred()
        started = self._start(batch, elite, count)
        batch.take(winners(self._space, self._heard, _MOST_WINNERS), min(count, len(batch.chosen) + _MOST_WINNERS))
        self._fill(batch, elite, count)
        rest = draw(self._space, count - len(batch.chosen), self._known | batch.chosen.keys(), self._rng)
        asked = [*batch.chosen, *rest]
        self._known.update(asked)
        self._search.measures([s.unbound for s in asked])
        if self._history and not self._records:
            self._guard.predicted(asked, self._model.predict(self._space, asked), batch.chosen.keys() - started)
        return asked

    def _start(self, batch: _Batch, elite: Sequence[Schedule], count: int) -> set[Schedule]:
        """Warm start: the elite of elsewhere into the first batch, starting points (returned) into every one."""
        if not self._asked:
            batch.take(elite, round(_TRANSFER_PART * count))
            self._seeds = self._space.seeds()
        self._asked = True
        transferred_first = set(batch.chosen)
        batch.take(self._seeds, round(_START_PART * count))
        self._seeds = [s for s in self._seeds if s not in self._known and s not in batch.chosen]
        return batch.chosen.keys() - transferred_first

    def _fill(self, batch: _Batch, elite: Sequence[Schedule], count: int) -> None:
        """All but the random part: by the Gaussian process, or by the cost model alone while nothing has succeeded
        here.
        """
        explored = int(_RANDOM * count + self._rng.random())
        self._evolution.wanted = count
        anew = self._begins_anew()
        if self._found and not anew:
            batch.add(self._by_the_process(batch.chosen, count - explored))
        elif elite and not anew:
            evolved = [self._space.bind(s) for s in self._evolution.fresh(elite)]
            batch.take(self._ranked(evolved), count - explored)
        else:
            pool = draw(self._space, _PRIOR_DRAWS * count, self._known, self._rng)
            free = count - len(batch.chosen)
            batch.take(self._ranked(pool), len(batch.chosen) + round(_PRIOR_PART * free))

    def _by_the_process(self, chosen: Iterable[Schedule], until: int) -> list[Schedule]:
        """Schedules of the Gaussian process up to `until` in all; those in `chosen` count as pending."""
        chosen = list(chosen)
        self._search.measures([s.unbound for s in chosen])
        self._prior.compared_with(self._candidates.rows(self._found))
        self._search.look_anew()
        missing = until - len(chosen)
        return [self._space.bind(s) for s in self._search.ask(missing, least=missing)] if missing > 0 else []

    def _begins_anew(self) -> bool:
        """True once, when the first trials were misled: this batch is drawn as the first one of a cold search."""
        first = not self._misled and not self._guard.trust
        self._misled |= first
        return first

    def _try_prior(self) -> None:
        """Compare the prior's predictions with measurements of earlier runs here."""
        known = list(_bound(dict.fromkeys(r.schedule for r in self._records[:_MOST_TRIED]), self._space.bind))
        self._model.fit(self._space, self._history)
        self._guard.predicted(known, self._model.predict(self._space, known), set())
        self._guard.observe(self._records)
        # It is unknown which prior guided those trials.
        self._misled = True

    def _learn(self) -> None:
        records = self._believed()
        if self._learnt == len(records):
            return
        self._learnt = len(records)
        if len(self._records) >= (1 + _GROWTH) * self._fitted:
            self._fitted = len(self._records)
            self._model.fit(self._space, records)
            self._prior.learnt()

    def _believed(self) -> list[TuningRecord]:
        """Training records: those from elsewhere as far as they are trusted, then all others."""
        return [*self._history[: round(self._guard.trust * len(self._history))], *self._heard, *self._records]

    def _transferred(self) -> list[Schedule]:
        """Starting points from elsewhere, while nothing has succeeded here. Several may map to one schedule of this
        space.
        """
        return transferred(self._space, [r for r in self._believed() if r.measurement.ok], 2 * PARENTS)

    def _ranked(self, schedules: Sequence[Schedule]) -> list[Schedule]:
        """Highest predicted score first, without schedules predicted to fail; equal scores keep the given order."""
        hopeful = self._evolution.hopeful(schedules)
        scores = self._model.predict(self._space, hopeful)
        return [hopeful[i] for i in np.argsort(-scores, kind="stable")]


class _Batch:
    """The schedules chosen so far for one ask, in order."""

    def __init__(self, known: set[Schedule], per_family: int) -> None:
        self._known = known
        self._per_family = per_family
        self._families: Counter[Family] = Counter()
        self.chosen: dict[Schedule, None] = {}

    def add(self, schedules: Iterable[Schedule]) -> None:
        """Choose all of these."""
        for schedule in schedules:
            self._choose(schedule)

    def take(self, ranked: Iterable[Schedule], until: int) -> None:
        """Choose from the front of `ranked` until there are `until`: those that do not crowd first, then the rest."""
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
    """Number of knobs in which two schedules differ, counting the backend; all of them if the sketches differ."""
    if a.sketch != b.sketch:
        return len(a.values)
    return (a.backend != b.backend) + sum(x != y for x, y in zip(a.values, b.values, strict=True))


def _bound(schedules: Iterable[Schedule], bind: Callable[[Schedule], Schedule]) -> Iterator[Schedule]:
    """The schedules bound to the space; those that it no longer contains are left out."""
    for schedule in schedules:
        try:
            yield bind(schedule)
        except InputError:
            continue
