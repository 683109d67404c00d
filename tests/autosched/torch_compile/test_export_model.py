"""Models as files of their own: interpreted by Triton in a process that has nothing of autosched."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched.torch_compile import export_model as export_module
from isolated_python import IsolatedPython
from search_spaces import InputError, Workload
from untuned_files import tuned

WIDTH, ROWS, PLACES = 16, 3, 6
# Calls the class of a file with each state and the inputs in turn, and runs its self-test, where nothing of this
# project can be found.
_CALL = """
import sys, torch
file, name, given, made = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
module = __import__(file.rpartition("/")[2].removesuffix(".py"))
states, calls = torch.load(given)
results = []
for state in states:
    model = getattr(module, name)(state)
    results.append(([model(*inputs) for inputs in calls], calls))
torch.save((results, states), made)
assert module._self_test()
ours = {name.partition(".")[0] for name in sys.modules} & {"autosched", "search_spaces", "tuning_logs", "cost_models"}
assert not ours, ours
"""


class Layer(nn.Module):
    """A block of a transformer that decodes: it appends to its cache, and attends to that."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(PLACES, WIDTH))
        self.register_buffer("values", torch.zeros(PLACES, WIDTH), persistent=False)

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        query, key, value = self.into(self.norm(x)).chunk(3, -1)
        keys, values = (t.index_copy_(0, place, new) for t, new in ((self.keys, key), (self.values, value)))
        x = x + self.out(torch.softmax(query @ keys.t() / 4, -1) @ values)
        made: Tensor = x + self.down(F.gelu(self.up(x)))
        return made


class Decoder(nn.Module):
    """Two layers between an embedding and a product with the same table."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, WIDTH), nn.Linear(WIDTH, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, words: Tensor, place: Tensor, scaled: bool) -> dict[str, Any]:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x, place)
        return {"logits": self.head(x) * (2 if scaled else 1), "last": (x, words)}


def decoder(seed: int) -> Decoder:
    torch.manual_seed(seed)
    return Decoder().eval()


INPUTS = (torch.tensor([1, 7, 3]), torch.tensor([0, 1, 2]), True)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any kernels, in the place of a log's."""
    monkeypatch.setattr(export_module, "look_up", lambda workload, *_, **__: _kernel(workload))


@functools.cache
def _kernel(workload: Workload) -> Any:
    return tuned(workload)


@pytest.fixture(scope="module")
def isolated() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    process = IsolatedPython()
    yield lambda *arguments: process.run([*arguments])
    process.close()


def test_a_model_computes_from_a_state_of_its_own_without_autosched(isolated: Any, tmp_path: Path) -> None:
    path = autosched.export_model(decoder(0), *INPUTS, path=tmp_path / "decoder.py", target="h200")
    assert path == tmp_path / "decoder.py"
    text = path.read_text()
    compile(text, str(path), "exec")
    models = [decoder(0), decoder(1)]
    states = [m.state_dict() for m in models]
    calls = [INPUTS, (INPUTS[0] + 2, INPUTS[1] + 3, True)]
    torch.save((states, calls), tmp_path / "given")
    done = isolated("-c", _CALL, str(path), "Decoder", str(tmp_path / "given"), str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    results, written = torch.load(tmp_path / "made")
    for model, (made, _), state in zip(models, results, written, strict=True):
        with torch.no_grad():
            expected = [model(*inputs) for inputs in calls]
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(state, dict(model.state_dict()), rtol=1e-4, atol=1e-4)
    assert done.stdout.startswith("Decoder: right")
