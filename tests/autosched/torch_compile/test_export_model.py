"""Models as files of their own: interpreted by Triton in a process that has nothing of autosched."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched.torch_compile import export_model as export_module
from autosched.tracing import TracedFunction
from isolated_python import isolated
from needed import needs_gpu
from search_spaces import InputError, Workload
from untuned_files import by_pointers, tuned

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
    results.append([model(*inputs) for inputs in calls])
torch.save((results, states), made)
assert module._self_test()
ours = {name.partition(".")[0] for name in sys.modules} & {"autosched", "search_spaces", "tuning_logs", "cost_models"}
assert not ours, ours
"""

# Calls a model before and after its weight has changed, and checks that what is prepared stays in between.
_PREPARED = """
import sys, torch
file, given, made, name, known = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
module = __import__(file.rpartition("/")[2].removesuffix(".py"))
state, x = torch.load(given)
model, results, states = getattr(module, name)(state), [], []
for factor in (1, 1, 2):
    if factor > 1:
        for tensor in state.values():
            tensor.mul_(factor)
    results.append(model(x))
    states.append([state for state, _ in getattr(module, known).values()])
assert len(states[0]) == 1
assert states[0] == states[1] != states[2]
torch.save(results, made)
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


def exported(model: Any, inputs: tuple[Any, ...], folder: Path) -> Path:
    return autosched.export_model(model, *inputs, path=folder / "standing_alone.py", target="h200")


def run(path: Path, name: str, states: list[Any], calls: list[Any]) -> tuple[list[Any], list[Any], str]:
    """The results of every state's calls, the states afterwards, and what the self-test prints."""
    torch.save((states, calls), path.with_name("given"))
    done = isolated("-c", _CALL, str(path), name, str(path.with_name("given")), str(path.with_name("made")))
    assert done.returncode == 0, done.stderr
    results, after = torch.load(path.with_name("made"))
    return results, after, done.stdout


def test_a_model_computes_with_any_state_and_writes_its_caches(tmp_path: Path) -> None:
    path = exported(decoder(0), INPUTS, tmp_path)
    models, calls = [decoder(0), decoder(1)], [INPUTS, (INPUTS[0] + 2, INPUTS[1] + 3, True)]
    results, states, printed = run(path, "Decoder", [m.state_dict() for m in models], calls)
    for model, made, state in zip(models, results, states, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(made, [model(*inputs) for inputs in calls], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(state, dict(model.state_dict()), rtol=1e-4, atol=1e-4)
    assert printed.startswith("Decoder: right")
    # Both layers are one function.
    assert path.read_text().count("def launch_Decoder_") == 3
    # Of empty caches there is one element.
    assert all(t.untyped_storage().nbytes() == 4 for t in torch.load(path.with_suffix(".pt")).values())


class Attending(nn.Module):
    """A layer of a transformer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = (t.view(1, -1, 2, WIDTH // 2).transpose(1, 2) for t in self.into(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape))
        made: Tensor = x + self.down(F.gelu(self.up(x)))
        return made


def test_segments_without_kernels_are_left_to_pytorchs_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(workload: Workload, *_: Any, **__: Any) -> Any:
        if any(80 in t.shape for t in workload.inputs):
            raise InputError("it was never tuned")
        return _kernel(workload)

    monkeypatch.setattr(export_module, "look_up", look_up)
    model, x = nn.Sequential(*map(Attending, (80, 80, 32, 32))).eval(), torch.randn(ROWS, WIDTH)
    path = exported(model, (x,), tmp_path)
    ((made,),), _, _ = run(path, "Sequential", [model.state_dict()], [(x,)])
    torch.testing.assert_close(made, model(x).detach(), rtol=1e-4, atol=1e-4)
    text = path.read_text()
    assert "operators: it was never tuned" in text
    assert "= _attention(" in text


def test_weights_in_layouts_of_kernels_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(workload: Workload, *_: Any, **__: Any) -> Any:
        return tuned(workload, lambda s: bool(s.program.prepared) and by_pointers(s))

    monkeypatch.setattr(export_module, "look_up", look_up)
    model, x = nn.Linear(21, 20, bias=False, dtype=torch.float16), torch.randn(32, 21).half()
    path = exported(model, (x,), tmp_path)
    torch.save((model.state_dict(), x), tmp_path / "given")
    given = [str(path), str(tmp_path / "given"), str(tmp_path / "made")]
    done = isolated("-c", _PREPARED, *given, "Linear", "_KNOWN")
    assert done.returncode == 0, done.stderr
    for made, factor in zip(torch.load(tmp_path / "made"), (1, 1, 2), strict=True):
        torch.testing.assert_close(made, factor * model(x).detach(), rtol=1e-2, atol=1e-2)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.gate(x) * self.up(x),)


def test_values_of_weights_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TracedFunction, "latency_s", lambda cut, _: float(not cut.rewrites))
    model, x = Gated().half().eval(), torch.randn(16, 32).half()
    path = exported(model, (x,), tmp_path)
    torch.save((model.state_dict(), x), tmp_path / "given")
    given = [str(path), str(tmp_path / "given"), str(tmp_path / "made")]
    done = isolated("-c", _PREPARED, *given, "Gated", "_COMPUTED")
    assert done.returncode == 0, done.stderr
    for made, factor in zip(torch.load(tmp_path / "made"), (1, 1, 4), strict=True):
        for got, expected in zip(made, model(x), strict=True):
            torch.testing.assert_close(got, factor * expected.detach(), rtol=1e-2, atol=1e-2)


def loaded(path: Path) -> Any:
    """The module of a file, in this process."""
    found = importlib.util.spec_from_file_location("standing_alone", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_other_states_and_inputs_than_the_models_are_refused(tmp_path: Path) -> None:
    module, state = loaded(exported(decoder(0), INPUTS, tmp_path)), decoder(0).state_dict()
    without = {name: t for name, t in state.items() if name != "layers.1.up.bias"}
    for wrong, why in (
        (without, r"layers\.1\.up\.bias is missing"),
        ({**state, "layers.0.keys": torch.zeros(4, WIDTH)}, r"layers\.0\.keys: got \[4, 16\]"),
        ({**state, "head.weight": state["head.weight"] + 1}, "embedding.weight and head.weight differ"),
        ({**state, "layers.0.keys": torch.zeros(WIDTH, PLACES).t()}, "is written in place; expected a tensor of its"),
    ):
        with pytest.raises(ValueError, match=why):
            module.Decoder(wrong)
    # Tied weights may be there once.
    model = module.Decoder({name: t for name, t in state.items() if name != "embedding.weight"})
    words, place, _ = INPUTS
    for inputs, why in (
        ((words, place, False), "scaled: got False; expected True"),
        ((words, place), "inputs of the structure"),
        ((words[:2], place, True), r"words: got \[2\]"),
    ):
        with pytest.raises(ValueError, match=why):
            model(*inputs)


def test_a_compiled_model_is_exported_for_a_gpu_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    log = tmp_path / "log.jsonl"
    with torch.no_grad():
        compiled = autosched.compile(nn.Linear(8, 8), torch.randn(4, 8), options={"log": log})
    text = compiled.export(tmp_path / "linear.py", "h200").read_text()
    assert "class Linear:" in text
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"no part of Linear can be exported with kernels: .* expected a GPU"):
        compiled.export(tmp_path / "other.py")
    assert not (tmp_path / "other.py").exists()


def test_a_function_has_no_state_and_returns_dicts(tmp_path: Path) -> None:
    def scaled(x: Tensor, y: Tensor) -> dict[str, Any]:
        y.mul_(2)
        made = torch.softmax(x, -1) * y * torch.tensor([1.0, 2.0])
        return OrderedDict(made=made, others=[None, y[1:], 3, y])

    x, y = torch.randn(4, 2), torch.randn(4, 2)
    path = exported(scaled, (x, y), tmp_path)
    ((made,),), _, _ = run(path, "scaled", [{}], [(x, y)])
    assert type(made) is dict
    torch.testing.assert_close(made, scaled(x, y.clone()))


def test_a_file_with_cubins_needs_no_compiler(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
    path = tmp_path / "standing_alone.py"
    autosched.export_model(model, torch.randn(ROWS, WIDTH), path=path, target="h200", cubins=True)
    text = path.read_text(encoding="utf-8")
    assert "Needs PyTorch and cuda-bindings." in text
    assert "_Kernels(_cubin(90, " in text
    assert not any(line.startswith(("import triton", "from triton")) for line in text.split("\n"))


# Calls a model on a GPU, then within a CUDA graph, each on a state of its own, and runs its self-test.
_ON_GPU = """
import sys, torch
file, given, made = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
module = __import__(file.rpartition("/")[2].removesuffix(".py"))
state, (words, place, scaled) = torch.load(given, map_location="cuda")
first = {name: t.clone() for name, t in state.items()}
made_now = module.Decoder(first)(words, place, scaled)["logits"]
model, graph = module.Decoder(state), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = model(words, place, scaled)["logits"]
graph.replay()
torch.cuda.synchronize()
torch.save([(made_now.cpu(), first["layers.1.keys"].cpu()), (captured.cpu(), state["layers.1.keys"].cpu())], made)
assert module._self_test()
"""


@pytest.mark.gpu
@needs_gpu
def test_a_file_runs_on_a_gpu_and_in_a_cuda_graph(tmp_path: Path) -> None:
    model = decoder(0)
    path = exported(model, INPUTS, tmp_path)
    torch.save((model.state_dict(), INPUTS), tmp_path / "given")
    arguments = [str(path), str(tmp_path / "given"), str(tmp_path / "made")]
    done = subprocess.run([sys.executable, "-I", "-c", _ON_GPU, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "us with hot caches" in done.stdout
    with torch.no_grad():
        expected = model(*INPUTS)["logits"], model.layers[1].keys
    for made in torch.load(tmp_path / "made"):
        torch.testing.assert_close(made, expected, rtol=1e-3, atol=1e-3)


def test_what_no_file_can_have_is_refused(tmp_path: Path) -> None:
    @dataclass
    class Both:
        x: Tensor

    for function, why in (
        (lambda x: Both(x + 1), "cannot be written to a stand-alone file"),
        (lambda x: x.t_() + 1, "changes shapes or strides of its inputs"),
        (lambda x: torch.rand(3) + x, "it draws random numbers"),
    ):
        with pytest.raises(InputError, match=why):
            exported(function, (torch.randn(4, 3),), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_values_between_kernels_share_one_allocation_and_results_do_not(tmp_path: Path) -> None:
    model, x = nn.Sequential(*map(Attending, (32, 32, 32, 32))).eval(), torch.randn(ROWS, WIDTH)
    path = exported(model, (x,), tmp_path)
    ((made, again),), _, _ = run(path, "Sequential", [model.state_dict()], [(x,), (2 * x,)])
    # The second call leaves the results of the first one as they are.
    torch.testing.assert_close(made, model(x).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(again, model(2 * x).detach(), rtol=1e-4, atol=1e-4)
    assert made.untyped_storage().nbytes() == made.nbytes
    assert path.read_text().count("arena = torch.empty(") == 1
