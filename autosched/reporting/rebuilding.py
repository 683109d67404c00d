"""Records of which this version and machine can rebuild the kernels."""

from __future__ import annotations

from autosched import backends
from autosched.backends.reproduction import Reproduction
from autosched.machine.policies import check_timing
from search_spaces import InputError, TargetUnavailableError
from tuning_logs import OwnKernel, TuningRecord
from tuning_logs.several.verdicts import Verdict


def why_not_verifiable(record: TuningRecord) -> tuple[Verdict, str] | None:
    """The verdict on a record of which this machine and version can make no kernel, and the reason; None if they can.

    A kernel whose schedule this version cannot print is broken; one for which this machine lacks something is unfit.
    """
    if isinstance(record.subject, OwnKernel):
        return "unfit", "a kernel of your own: only a call of it makes or runs it"
    try:
        check_timing(record.provenance.policy, record.target)
        backends.usable(record.target, record.backend)
    except (InputError, TargetUnavailableError) as error:
        return "unfit", str(error)
    made = Reproduction()
    return None if made.is_legal(record) else ("broken", made.why_stale(record) or "its schedule is not legal")
