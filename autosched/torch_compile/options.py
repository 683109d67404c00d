"""Options of `torch.compile(model, backend="autosched", mode=…, options={…})`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, cast, get_args

from autosched.kernels.strict import is_strict
from autosched.measuring.measurer import Measurer, Measurers
from autosched.torch_compile.graphs import Allowed
from autosched.torch_compile.tuning.background import BackgroundTuning
from autosched.tracing.capture.capture import DEFAULT_NUMERICS, Numerics, check_numerics
from autosched.tuning.searching.preparation import Trials, check_trials
from autosched.tuning.searching.time_limit import check_seconds
from search_spaces import InputError
from search_spaces.errors import unknown_name
from search_spaces.plug_ins import lacking

# Those of torch.compile.
Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
MODES: tuple[Mode, ...] = get_args(Mode)
TUNING_MODES: tuple[Mode, ...] = ("max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Options:
    """The choices of a user.

    `mode`: "default" takes the kernels that logs have, "reduce-overhead" launches these as CUDA graphs, "max-autotune"
    tunes the others first and then does the same. `log`: the path of the tuning log, by default the user's. `trials`:
    schedules that are tried of every kernel while tuning. `seconds`: time of tuning and comparing for every graph,
    None without a limit. `strict`: refuses what no kernel of an exact record computes, instead of leaving it to
    PyTorch. `background`: tunes the kernels while the model is used. `numerics`: the algebra that may be used, as for
    `trace`. `share_weights`: weights that kernels read joined are moved into one memory, instead of a copy. `measurer`:
    tunes on something else than this process's measurer, as for `tune`.
    """

    mode: Mode = "default"
    log: str | os.PathLike[str] | None = None
    trials: Trials = 64
    seconds: float | None = 60.0
    strict: bool = False
    background: BackgroundTuning | None = None
    numerics: Numerics = DEFAULT_NUMERICS
    share_weights: bool = False
    measurer: Measurer | Measurers | None = None

    @property
    def allowed(self) -> Allowed:
        """Limits of tracing."""
        return Allowed(self.strict, self.numerics)

    @property
    def tunes(self) -> bool:
        """True if kernels that logs lack are tuned."""
        return self.mode in TUNING_MODES

    @property
    def graphs(self) -> bool:
        """True if kernels are launched as CUDA graphs, where they can be."""
        return self.mode in ("reduce-overhead", "max-autotune")

    @staticmethod
    def of(mode: str | None, given: Mapping[str, object] | None) -> Options:
        """The options from what torch.compile passes on.

        Raises:
            InputError: an option is not known, has another type, or is a mode other than `mode`.
        """
        usual = Options()
        chosen = dict(given or {})
        if mode is not None and chosen.setdefault("mode", mode) != mode:
            raise InputError(f"mode={mode!r} and the option mode={chosen['mode']!r}; expected one of them")
        kinds: Mapping[str, type | tuple[type, ...]] = {
            "mode": str,
            "log": (str, os.PathLike, type(None)),
            "trials": (int, str),
            "seconds": (int, float, type(None)),
            "strict": bool,
            "numerics": str,
            "share_weights": bool,
            "background": (BackgroundTuning, type(None)),
            "measurer": object,
        }
        for name, value in chosen.items():
            if name not in kinds:
                raise unknown_name("option of torch.compile", name, [f.name for f in fields(Options)])
            if not isinstance(value, kinds[name]) or (name in ("trials", "seconds") and isinstance(value, bool)):
                raise InputError(f"option {name}={value!r} is {type(value).__name__}; expected {_text(kinds[name])}")
        found = {f.name: chosen.get(f.name, getattr(usual, f.name)) for f in fields(Options)}
        if found["mode"] not in MODES:
            raise unknown_name("mode", str(found["mode"]), MODES)
        check_numerics(str(found["numerics"]))
        _check_measurer(found["measurer"], found["mode"] in TUNING_MODES)
        if found["background"] is not None and found["mode"] not in ("default", "reduce-overhead"):
            raise InputError(f"mode={found['mode']!r} tunes first; with background expected default or reduce-overhead")
        tuned = found["background"] is not None or found["mode"] in TUNING_MODES
        _check_place(cast(str | os.PathLike[str] | None, found["log"]), tuned)
        check_trials(found["trials"])
        check_seconds(found["seconds"])
        # Their types were checked above.
        return Options(
            mode=found["mode"],
            log=cast(str | os.PathLike[str] | None, found["log"]),
            trials=cast(Trials, found["trials"]),
            seconds=cast(float | None, found["seconds"]),
            strict=is_strict(cast(bool, found["strict"])),
            numerics=cast(Numerics, found["numerics"]),
            share_weights=cast(bool, found["share_weights"]),
            background=cast(BackgroundTuning | None, found["background"]),
            measurer=cast(Measurer | Measurers | None, found["measurer"]),
        )


def _check_measurer(measurer: object, used: bool) -> None:
    """Raise InputError unless it is None, or a measurer, or several, in a mode in which it is `used`."""
    if measurer is None:
        return
    if not isinstance(measurer, Measurers) and lacking(measurer, ("submit(workload, schedules, policy=…, seed=…)",)):
        raise InputError(f"option measurer={measurer!r}; expected a measurer, such as autosched.fleet()")
    if not used:
        raise InputError(
            f"option measurer: only {' and '.join(TUNING_MODES)} measure with it; expected one of these modes"
        )


def _check_place(log: str | os.PathLike[str] | None, made: bool) -> None:
    """Raise InputError for a log in a folder that does not exist, and warn of one that is not `made`, and is not there.

    With a misspelt one all would be left to others.
    """
    if log is None:
        return
    path = Path(log).expanduser()
    if not path.parent.is_dir():
        raise InputError(f"log={os.fspath(log)!r}: there is no folder {path.parent}; expected one that exists")
    if not made and not path.exists():
        warnings.warn(f"log={os.fspath(log)!r}: there is no such file, and so no kernel of it", stacklevel=2)


def _text(kind: type | tuple[type, ...]) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
