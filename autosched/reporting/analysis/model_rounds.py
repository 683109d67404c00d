"""Knowledge of the cost model, round by round: the rank correlation of predictions made before each round.

A batch of a search is recognised by its seed and its share of the time of proposing, which all of its trials have. The
model is fitted to the trials before a round, and to nothing else: the search itself may have
known more, from other logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.backends import spaces
from autosched.reporting.analysis.tasks import Task
from cost_models.quality.ranking import rank_correlation
from cost_models.xgboost_model import XGBoostModel
from search_spaces import AutoschedError, Schedule, SearchSpace, Workload
from tuning_logs import TuningRecord
from tuning_logs.ranking import standing

# Successes of a round: of fewer a correlation is chance.
_LEAST = 12
# Fits of the model for one task, each some hundredths of a second.
_MOST_ROUNDS = 12
# A batch where none is told, as in logs of other tools.
_PLAIN_BATCH = 16


@dataclass(frozen=True)
class ModelRound:
    """The trials from number `first` to `last`, of which `judged` succeeded, by a model `taught` the trials before.

    `correlation` is Spearman's, of predicted and measured speed: 1 is the same order. A model taught fewer than 16
    successes is the analytic estimate.
    """

    first: int
    last: int
    judged: int
    taught: int
    correlation: float


def model_rounds(task: Task, most: int) -> list[ModelRound]:
    """The rounds of at most the first `most` trials; none for a user's own kernel, or without any space today.

    Schedules that the space no longer has are left out.
    """
    trials = standing(task.trials)[:most]
    if not isinstance(task.subject, Workload) or not trials:
        return []
    try:
        space = spaces.build(task.subject, task.target)
    except AutoschedError:
        return []
    model = XGBoostModel(trials[0].provenance.seed)
    found: list[ModelRound] = []
    before: list[TuningRecord] = []
    for batch in _rounds(trials):
        judged = [(s, r) for r in batch if r.measurement.ok and (s := _bound(space, r)) is not None]
        if len(judged) >= _LEAST:
            model.fit(space, before)
            speeds = model.predict(space, [schedule for schedule, _ in judged])
            correlation = rank_correlation(-speeds, [r.measurement.undisturbed_s for _, r in judged])
            first = len(before) + 1
            found.append(ModelRound(first, first + len(batch) - 1, len(judged), len(before), correlation))
        before += batch
    return found


def _bound(space: SearchSpace, record: TuningRecord) -> Schedule | None:
    try:
        return space.bind(record.schedule)
    except AutoschedError:
        return None


def _rounds(trials: Sequence[TuningRecord]) -> list[list[TuningRecord]]:
    """Batches, in order, joined until they have enough successes, and until they are few enough."""
    batches: dict[tuple[int, float], list[TuningRecord]] = {}
    for place, record in enumerate(trials):
        origin = record.provenance
        share = origin.propose_s or -1.0 - place // _PLAIN_BATCH
        batches.setdefault((origin.seed, share), []).append(record)
    least = max(_LEAST, -(-len(trials) // _MOST_ROUNDS))
    found: list[list[TuningRecord]] = [[]]
    for batch in batches.values():
        if sum(record.measurement.ok for record in found[-1]) >= least:
            found.append([])
        found[-1] += batch
    return found
