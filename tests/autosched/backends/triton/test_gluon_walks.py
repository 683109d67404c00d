"""Chained dots in Gluon: what is printed, that Triton compiles it without a GPU, what is refused, what a GPU computes.

Goldens are under goldens/triton, by test name; `pytest --update-goldens` with this file rewrites them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch

from autosched.backends.backend import CompileError
from autosched.backends.gpu.cubin import read_cubin
from autosched.backends.triton.backend import TritonBackend
from needed import needs_hopper
from search_spaces import target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.roles.divisions import divided_by_rows
from search_spaces.programs.statements import Dot, Fill, For, Load, Map, Position, Reduce, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

BACKEND = TritonBackend()
H200 = target_named("h200")

FREE = Launch(num_warps=8, producer_warps=1, overlapped=True)
TURNS = replace(FREE, alternating=True)
IN_ORDER = replace(FREE, overlapped=False)


@dataclass(frozen=True)
class Attention:
    """out = softmax(q kᵀ / √d) v and the logarithm of its sums, of several heads; `causal`: what comes later is masked.

    Tiles of the boundary come first: there is always one.
    """

    heads: int = 4
    m: int = 512
    c: int = 512
    d: int = 64
    e: int = 64
    tile: tuple[int, int] = (128, 128)
    causal: bool = False
    logarithm: bool = False
    store: str = "descriptor"
    dtype: str = "bfloat16"
    launch: Launch = FREE
    stages: int = 2
    persistent: int | None = None

    def program(self) -> TileProgram:
        buffers = [
            Buffer("q", (self.heads, self.m, self.d), self.dtype, "input"),
            Buffer("k", (self.heads, self.c, self.d), self.dtype, "input"),
            Buffer("v", (self.heads, self.c, self.e), self.dtype, "input"),
            Buffer("out", (self.heads, self.m, self.e), self.dtype, "output"),
        ]
        if self.logarithm:
            buffers.append(Buffer("log", (self.heads, self.m), "float32", "output"))
        axes = (GridAxis("b.0", self.heads), GridAxis("m.0", -(-self.m // self.tile[0])))
        body = (*self._start(), *self._walk(), *self._end())
        kernel = Kernel("attention", Grid(axes, persistent=self.persistent), body, self.launch)
        return TileProgram("attention", tuple(buffers), (kernel,))

    @property
    def _head(self) -> Slice:
        return Slice(Affine.of(("b.0", 1)))

    @property
    def _rows(self) -> Slice:
        return Slice(Affine.of(("m.0", self.tile[0])), self.tile[0], "m")

    def _row(self, name: str) -> Tile:
        return Tile(name, ("m",), (self.tile[0],))

    def _points(self, name: str, dtype: str = "float32") -> Tile:
        return Tile(name, ("m", "c"), self.tile, dtype)

    @property
    def _sums(self) -> Tile:
        return Tile("acc", ("m", "e"), (self.tile[0], self.e))

    def _start(self) -> list[Statement]:
        q = Tile("q", ("m", "d"), (self.tile[0], self.d), self.dtype)
        return [
            Load(q, "q", (self._head, self._rows, Slice(Affine(), self.d, "d")), via="descriptor"),
            Fill(self._row("top"), -1e30),
            Fill(self._row("total"), 0.0),
            Fill(self._sums, 0.0),
        ]

    def _walk(self) -> list[Statement]:
        m, c = self.tile
        count = -(-self.c // c)
        if not self.causal:
            return [For("c.0", count, self._turn(Affine.of(("c.0", c)), False), pipeline_stages=self.stages)]
        # The tiles from the row tile's own on, of which later rows see a part, and those before.
        boundary = For("c.1", m // c, self._turn(Affine.of(("m.0", m), ("c.1", c)), True), self.stages)
        before = (Bound(Affine.of(("c.0", c), ("m.0", -m), offset=c), 1),)
        whole = For("c.0", count, self._turn(Affine.of(("c.0", c)), False), self.stages, useful=before)
        return [boundary, whole]

    def _turn(self, start: Affine, masked: bool) -> tuple[Statement, ...]:
        columns = Slice(start, self.tile[1], "c")
        k = Tile("k", ("c", "d"), (self.tile[1], self.d), self.dtype)
        v = Tile("v", ("c", "e"), (self.tile[1], self.e), self.dtype)
        s, p = self._points("s"), self._points("p")
        at, seen = Tile("at", ("c",), (self.tile[1],)), self._row("seen")
        mask = [
            Position(at, columns),
            Position(seen, self._rows),
            Map(self._points("visible"), "le", ("at", "seen")),
            Map(s, "where", ("visible", "s", -math.inf)),
        ]
        return (
            Load(k, "k", (self._head, columns, Slice(Affine(), self.d, "d")), via="descriptor"),
            Fill(s, 0.0),
            Dot(s, "q", "k", "d"),
            Map(s, "mul", ("s", math.log2(math.e) / math.sqrt(self.d))),
            *(mask if masked else []),
            Reduce(self._row("part"), "s", "c", "max"),
            Map(self._row("next"), "maximum", ("top", "part")),
            Map(self._row("rescale"), "sub", ("top", "next")),
            Map(self._row("rescale"), "exp2_normal", ("rescale",)),
            Map(p, "sub", ("s", "next")),
            Map(p, "exp2_normal", ("p",)),
            Reduce(self._row("sum"), "p", "c", "sum"),
            Map(self._row("total"), "mul", ("total", "rescale")),
            Map(self._row("total"), "add", ("total", "sum")),
            Map(self._sums, "mul", ("acc", "rescale")),
            Map(self._points("p16", self.dtype), "cast", ("p",)),
            Load(v, "v", (self._head, columns, Slice(Affine(), self.e, "e")), via="descriptor"),
            Dot(self._sums, "p16", "v", "c"),
            Map(self._row("top"), "maximum", ("top", "next")),
        )

    def _end(self) -> list[Statement]:
        place = (self._head, self._rows, Slice(Affine(), self.e, "e"))
        out = [Map(self._sums, "div", ("acc", "total")), Store("out", place, "acc", via=self.store)]
        if not self.logarithm:
            return out
        log = self._row("log")
        return [
            *out,
            Map(log, "log", ("total",)),
            Map(self._row("scaled"), "mul", ("top", math.log(2))),
            Map(log, "add", ("log", "scaled")),
            Store("log", (self._head, self._rows), "log"),
        ]


ATTENTIONS = {
    "in turns": Attention(launch=TURNS),
    "in order": Attention(launch=IN_ORDER, tile=(128, 64)),
    "in order and turns": Attention(launch=replace(IN_ORDER, alternating=True), tile=(128, 64), stages=3),
    "as they come": Attention(d=128, e=128),
    "causal": Attention(causal=True, logarithm=True),
    "causal in turns": Attention(m=1024, c=1024, causal=True, tile=(128, 64), launch=TURNS, persistent=3),
    "several tiles a program": Attention(persistent=3, stages=3, logarithm=True),
    "rows that end within a tile": Attention(m=450, store="pointer", logarithm=True),
    "one warp group": Attention(tile=(64, 64), launch=replace(FREE, num_warps=4)),
    "two programs on a multiprocessor": Attention(tile=(128, 64), launch=replace(IN_ORDER, max_registers=80)),
    "values of another size": Attention(d=64, e=128, dtype="float16"),
    "one step": Attention(c=128),
    "one tile": Attention(heads=1, m=128),
}


class TestPrinting:
    def test_dots_overlap_what_follows_on_the_last_ones(self, check_golden):
        check_golden("triton", BACKEND.render(Attention(causal=True, launch=TURNS).program(), "a schedule", H200))

    def test_dots_in_order_wait_for_each_other(self, check_golden):
        check_golden("triton", BACKEND.render(ATTENTIONS["in order and turns"].program(), "a schedule", H200))

    def test_a_boundary_of_one_tile_has_no_loop(self):
        text = BACKEND.render(Attention(causal=True).program(), "", H200)
        dots = text[text.index("def attention_dots") :]
        assert dots.count("for c_1 in") == 0
        assert dots.count("for c_0 in") == 1
        assert BACKEND.render(Attention(causal=True, tile=(128, 64)).program(), "", H200).count("for c_1 in") == 2

    def test_rows_are_divided_by_one_reciprocal_each(self):
        text = BACKEND.render(Attention().program(), "", H200)
        assert "total_inverse = 1.0 / total" in text
        assert "acc = acc * total_inverse[:, None]" in text

    def test_dots_that_follow_each_other_run_together(self):
        program = Attention(launch=IN_ORDER).program()
        kernel = program.kernels[0]
        other = Tile("other", ("m", "c"), (128, 128))
        more = (Fill(other, 0.0), Dot(other, "q", "k", "d"))
        body = tuple(
            replace(s, body=(*s.body[:3], *more, *s.body[3:])) if isinstance(s, For) else s for s in kernel.body
        )
        text = BACKEND.render(replace(program, kernels=(replace(kernel, body=body),)), "", H200)
        assert "s, other = hopper.warpgroup_mma_wait(0, deps=(s, other))" in text

    @pytest.mark.parametrize("launch", [FREE, IN_ORDER])
    def test_a_tile_that_both_dots_read_is_given_back_once(self, launch):
        program = Attention(d=64, e=64, launch=launch).program()
        kernel = program.kernels[0]
        body = tuple(self._of_keys(s) if isinstance(s, For) else s for s in kernel.body)
        text = BACKEND.render(replace(program, kernels=(replace(kernel, body=body),)), "", H200)
        dots = text[text.index("def attention_dots") : text.index("def attention(")]
        # In a loop, and where dots overlap, once more behind it.
        assert dots.count("arrive(k_empty") == (2 if launch.overlapped else 1)
        assert dots.count("arrive(k_empty.index((step - 1) % 2))") == (2 if launch.overlapped else 0)

    def _of_keys(self, loop: For) -> For:
        """The walk where what is carried is a sum of keys."""
        kept = [s for s in loop.body if not (isinstance(s, Load) and s.dst.name == "v")]
        return replace(loop, body=tuple(replace(s, b="k") if isinstance(s, Dot) and s.b == "v" else s for s in kept))

    def test_the_same_program_prints_the_same_text(self):
        first, second = (BACKEND.render(Attention(causal=True).program(), "", H200) for _ in range(2))
        assert first == second

    def test_tensors_may_be_called_what_the_text_uses(self):
        program = Attention(logarithm=True).program()
        named = {"k": "step", "v": "half", "log": "order"}
        kernel = program.kernels[0]
        body = tuple(self._renamed(s, named) for s in kernel.body)
        buffers = tuple(replace(b, name=named.get(b.name, b.name)) for b in program.buffers)
        renamed = replace(program, buffers=buffers, kernels=(replace(kernel, body=body),))
        BACKEND.compile(BACKEND.render(renamed, "", H200), renamed, H200)

    def _renamed(self, s: Statement, named: dict[str, str]) -> Statement:
        match s:
            case For(body=body):
                return replace(s, body=tuple(self._renamed(x, named) for x in body))
            case Load(dst=dst, buffer=buffer):
                return replace(s, buffer=named.get(buffer, buffer), dst=replace(dst, name=named.get(buffer, dst.name)))
            case Dot(b=b):
                return replace(s, b=named.get(b, b))
            case Store(buffer=buffer):
                return replace(s, buffer=named.get(buffer, buffer))
        return s


class TestCompiling:
    # Of every order, size of head, store and number of warps one: a compilation takes a second and more.
    @pytest.mark.parametrize(
        "name",
        [
            "in turns",
            "in order and turns",
            "as they come",
            "causal",
            "rows that end within a tile",
            "one warp group",
            "two programs on a multiprocessor",
            "values of another size",
        ],
    )
    def test_nothing_leaves_the_registers_without_a_gpu(self, name):
        program = ATTENTIONS[name].program()
        artefact = BACKEND.compile(BACKEND.render(program, "", H200), program, H200)
        assert read_cubin(artefact.binaries[0]).frame_bytes == 0
        need = BACKEND.limits.needs(program, program.kernels[0], H200)
        # What is predicted is within the barriers' bytes of what the compiler takes.
        assert 0 <= artefact.facts.shared_memory_bytes - need.shared_memory_bytes + 256 <= 512


class TestRefusing:
    @pytest.mark.parametrize(
        ("attention", "words"),
        [
            (Attention(tile=(64, 64)), "32 rows for a warp group; expected a multiple of 64"),
            (Attention(launch=replace(FREE, num_warps=2)), "num_warps=2; expected 4, 8 or 12"),
            (Attention(launch=replace(FREE, producer_warps=2)), "producer_warps=2; expected 1"),
            (Attention(tile=(64, 64), launch=replace(TURNS, num_warps=4)), "alternating with num_warps=4; expected 8"),
            (Attention(stages=1), "1 stages; expected at least 2"),
            (Attention(dtype="float32"), "dot of float32 and float32; expected 16-bit types"),
            (Attention(c=0), "c.0 may have no iteration; expected one before dots overlap"),
        ],
    )
    def test_what_has_no_words_says_what_has(self, attention, words):
        with pytest.raises(CompileError, match=words):
            BACKEND.render(attention.program(), "", H200)

    def test_columns_that_are_computed_are_refused(self):
        twice = Map(Tile("k", ("c", "d"), (128, 64), "bfloat16"), "mul", ("k", 2.0))
        self._refuses((1, twice), "k is loaded by descriptor and read by a Map")

    def test_points_that_need_the_sums_are_refused_where_dots_overlap(self):
        read = Reduce(Tile("sum", ("m",), (128,)), "acc", "e", "sum")
        self._refuses((3, read), "what is computed needs the sums of the dots that follow")

    def _refuses(self, added: tuple[int, Statement], words: str) -> None:
        program = Attention().program()
        kernel, (at, statement) = program.kernels[0], added
        body = tuple(
            replace(s, body=(*s.body[:at], statement, *s.body[at:])) if isinstance(s, For) else s for s in kernel.body
        )
        with pytest.raises(CompileError, match=words):
            BACKEND.render(replace(program, kernels=(replace(kernel, body=body),)), "", H200)


@pytest.mark.gpu
@needs_hopper
class TestOnGpu:
    @pytest.mark.parametrize("name", ATTENTIONS)
    def test_it_computes_the_attention(self, name):
        attention = ATTENTIONS[name]
        program = attention.program()
        launcher = BACKEND.load(BACKEND.compile(BACKEND.render(program, "", H200), program, H200), program)
        inputs = [self._random(b) for b in program.buffers if b.role == "input"]
        out, log = self._expected(attention, inputs)
        for _ in range(2):
            got = torch.full_like(out, math.nan, dtype=inputs[0].dtype)
            got_log = [torch.full_like(log, math.nan, dtype=torch.float32)] if attention.logarithm else []
            launcher([*inputs, got, *got_log])
            # Weights and results are rounded to 8 or 11 bits; exponents of 2 are of 24.
            torch.testing.assert_close(got.double(), out, rtol=2**-6, atol=2**-8)
            for other in got_log:
                torch.testing.assert_close(other.double(), log, rtol=2**-16, atol=2**-16)
        launcher.unload()

    def _random(self, buffer: Buffer) -> torch.Tensor:
        generator = torch.Generator("cuda").manual_seed(ord(buffer.name))
        return torch.randn(buffer.shape, generator=generator, device="cuda").to(getattr(torch, buffer.dtype))

    def _expected(self, attention: Attention, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (x.double() for x in inputs)
        scores = q @ k.transpose(-1, -2) / math.sqrt(attention.d)
        if attention.causal:
            later = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        return scores.softmax(-1) @ v, scores.logsumexp(-1)


def test_only_sums_of_exponentials_are_divided_by_through_their_reciprocals() -> None:
    """The reciprocal of a denormal number is infinite, and a divisor of the user's may be one."""
    rows, points = Tile("given", ("m",), (64,)), Tile("part", ("m",), (64,))
    total, acc = Tile("total", ("m",), (64,)), Tile("acc", ("m", "e"), (64, 32))
    weights = Tile("weights", ("m", "c"), (64, 32))
    walk = (
        Map(weights, "exp2", ("scores",)),
        Reduce(points, "weights", "c", "sum"),
        Map(total, "add", ("total", "part")),
    )
    tiles = {t.name: t for t in (rows, points, total, acc, weights)}
    divided = {n: divided_by_rows([Map(acc, "div", ("acc", n))], walk, tiles, "m") for n in ("given", "total")}
    assert [s.operator for s in divided["given"] if isinstance(s, Map)] == ["div"]
    assert [s.operator for s in divided["total"] if isinstance(s, Map)] == ["div", "mul"]
