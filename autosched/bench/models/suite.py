"""The reader of suites of models: Python files that define `MODELS`.

MODELS = {"bert": bert, …}, each a function without arguments that returns a callable and a sequence of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosched.bench.suites.function_suite import executed
from autosched.torch_compile.user_models import Model, model_and_inputs
from search_spaces import InputError
from search_spaces.errors import unknown_name


@dataclass(frozen=True)
class ModelCase:
    """A model of a suite; `make` returns it with its inputs."""

    name: str
    make: Callable[[], object]

    def made(self) -> tuple[Model, list[Any]]:
        """The model and its inputs.

        Raises:
            InputError: the function returned something else. And what it raises.
        """
        return model_and_inputs(self.name, self.make())


def read_model_suite(path: Path, only: Sequence[str] = ()) -> tuple[ModelCase, ...]:
    """The models of a suite file, which is executed; `only` those of these names, all without any.

    Raises:
        InputError: the file cannot be read or fails, is no suite, or has no model of a name.
    """
    found = getattr(executed(path), "MODELS", None)
    if not isinstance(found, Mapping) or not found or not all(map(callable, found.values())):
        raise InputError(f"{path}: expected MODELS = {{name: function without arguments, …}}")
    for name in only:
        if name not in found:
            raise unknown_name("model", name, list(found))
    return tuple(ModelCase(str(name), make) for name, make in found.items() if not only or name in only)
