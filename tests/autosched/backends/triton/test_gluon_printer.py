"""The Gluon printer: what it prints, that Triton compiles it without a GPU, what it refuses, and what a GPU computes.

Goldens are under goldens/triton, by test name; `pytest --update-goldens` with this file rewrites them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

import pytest
import torch

from autosched.backends.backend import Artefact, CompileError
from autosched.backends.gpu.cubin import read_cubin
from autosched.backends.gpu.kernel import kernels_from_json
from autosched.backends.triton import compile as triton_compile
from autosched.backends.triton.backend import TritonBackend
from autosched.backends.triton.source import kernel_arguments
from needed import needs_hopper
from search_spaces import target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.statements import Dot, Fill, For, Load, Map, Reduce, Split, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

BACKEND = TritonBackend()
H200 = target_named("h200")
TORCH = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}


SHARED = Launch(num_warps=8, producer_warps=1)
TURNS = replace(SHARED, alternating=True)
ONE_GROUP = replace(SHARED, num_warps=4, max_registers=128)
SQUARE = (128, 128, 64)


@dataclass(frozen=True)
class Product:
    """out = A @ B, or out = relu(A @ B + bias) + residual with `fused`; programs of it, tile by tile."""

    m: int = 512
    n: int = 512
    k: int = 256
    tile: tuple[int, int, int] = (128, 256, 64)
    layout: str = "nt"
    dtype: str = "bfloat16"
    out_dtype: str = "bfloat16"
    batch: int = 0
    swap: bool = False
    fused: bool = False
    brought: bool = False
    parts: int = 1
    store: str = "descriptor"
    doubled: bool = False
    splits: int = 1
    persistent: int | None = 2
    group: int = 1
    launch: Launch = SHARED
    stages: int = 3

    def program(self) -> TileProgram:
        out = self._shape("m", "n")
        if self.splits > 1:
            out = (self.splits, *out)
        buffers = [
            Buffer("a", self._shape(*self._a_axes), self.dtype, "input"),
            Buffer("b", self._shape(*self._b_axes), self.dtype, "input"),
        ]
        if self.fused:
            buffers += [Buffer("bias", (self.n,), self.dtype, "input"), Buffer("residual", out, self.dtype, "input")]
        buffers.append(Buffer("out", out, self.out_dtype, "output"))
        if self.doubled:
            buffers.append(Buffer("twice", out, "float32", "output"))
        kernel = Kernel("matmul", self._grid(), (*self._dots(), *self._epilogue()), self.launch)
        return TileProgram("matmul", tuple(buffers), (kernel,))

    @property
    def _a_axes(self) -> str:
        return "mk" if self.layout[0] == "n" else "km"

    @property
    def _b_axes(self) -> str:
        return "kn" if self.layout[1] == "n" else "nk"

    @property
    def _steps(self) -> int:
        return -(-self.k // (self.tile[2] * self.splits))

    def _shape(self, *axes: str) -> tuple[int, ...]:
        return (*((self.batch,) if self.batch else ()), *({"m": self.m, "n": self.n, "k": self.k}[x] for x in axes))

    def _grid(self) -> Grid:
        sizes = (GridAxis("m.0", -(-self.m // self.tile[0])), GridAxis("n.0", -(-self.n // self.tile[1])))
        outer = (GridAxis("x.0", self.batch),) if self.batch else ()
        outer += (GridAxis("k.split", self.splits),) if self.splits > 1 else ()
        return Grid((*outer, *sizes), ("m.0", self.group) if self.group > 1 else None, self.persistent)

    def _place(self, axes: str) -> tuple[Slice, ...]:
        m, n, k = self.tile
        where = {
            "m": Slice(Affine.of(("m.0", m)), m, "m"),
            "n": Slice(Affine.of(("n.0", n)), n, "n"),
            "k": Slice(Affine.of(("k.0", k), ("k.split", self._steps * k if self.splits > 1 else 0)), k, "k"),
        }
        outer = (Slice(Affine.of(("x.0", 1))),) if self.batch else ()
        return (*outer, *(where[x] for x in axes))

    def _accumulator(self) -> Tile:
        m, n, _ = self.tile
        kept = "int32" if self.dtype == "int8" else "float32"
        return Tile("acc", ("n", "m"), (n, m), kept) if self.swap else Tile("acc", ("m", "n"), (m, n), kept)

    def _dots(self) -> tuple[Statement, ...]:
        extents = dict(zip("mnk", self.tile, strict=True))
        loads = [
            Load(
                Tile(name, tuple(axes), tuple(extents[x] for x in axes), self.dtype),
                name,
                self._place(axes),
                via="descriptor",
            )
            for name, axes in (("a", self._a_axes), ("b", self._b_axes))
        ]
        precision = "tf32" if self.dtype == "float32" else "ieee"
        bound = Bound(self._place("k")[-1].start, self.k) if self.splits > 1 else None
        acc = self._accumulator()
        body = (*loads, Dot(acc, "a", "b", "k", precision))
        return Fill(acc, 0.0), For("k.0", self._steps, body, pipeline_stages=self.stages, bound=bound)

    def _epilogue(self) -> tuple[Statement, ...]:
        acc = self._accumulator()
        column, tiles = acc.axes[1], [acc]
        body: list[Statement] = []
        while len(tiles) < self.parts:
            halves = []
            for tile in tiles:
                shape = (tile.shape[0], tile.shape[1] // 2)
                first, second = (replace(tile, name=f"{tile.name}_{side}", shape=shape) for side in ("left", "right"))
                body.append(Split(first, second, tile.name, column))
                halves += [first, second]
            tiles = halves
        place = dict(zip("mn", self._place("mn")[-2:], strict=True))
        for at, tile in enumerate(tiles):
            width = tile.shape[1]
            here = {**place, column: Slice(place[column].start + Affine(offset=at * width), width, column)}
            body += self._fused(tile, here, at) if self.fused else []
            result, where = f"result{at}" if self.fused else tile.name, (here["m"], here["n"])
            body.append(self._stored(result, where))
            if self.doubled:
                twice = replace(tile, name=f"twice{at}")
                body += [Map(twice, "mul", (tile.name, 2.0)), replace(self._stored(twice.name, where), buffer="twice")]
        return tuple(body)

    def _fused(self, acc: Tile, here: dict[str, Slice], at: int) -> list[Statement]:
        m, n = (here[x].extent or 1 for x in "mn")
        biased, positive, out = (Tile(f"{name}{at}", ("m", "n"), (m, n)) for name in ("biased", "positive", "result"))
        residual = Tile(f"residual{at}", ("m", "n"), (m, n), self.dtype)
        via = "descriptor" if self.brought else "pointer"
        return [
            Load(Tile(f"bias{at}", ("n",), (n,), self.dtype), "bias", (here["n"],)),
            Map(biased, "add", (acc.name, f"bias{at}")),
            Map(positive, "maximum", (biased.name, 0.0)),
            Load(residual, "residual", (*self._place("")[:1], here["m"], here["n"]), via=via),
            Map(out, "add", (positive.name, residual.name)),
        ]

    def _stored(self, tile: str, where: tuple[Slice, ...]) -> Store:
        outer = (Slice(Affine.of(("k.split", 1))),) if self.splits > 1 else ()
        outer += (Slice(Affine.of(("x.0", 1))),) if self.batch else ()
        via = "descriptor" if self.store == "descriptor" else "pointer"
        return Store("out", (*outer, *where), tile, via=via)


# Bytes that Triton 3.9 leaves on the stack of tf32 products by way of registers; 3.6 and 3.7 leave none.
ONE_REGISTER_PAIR = 8

PRODUCTS = {
    "shared tiles": Product(),
    "turns": Product(tile=SQUARE, launch=TURNS),
    "one warp group": Product(tile=(64, 128, 64), launch=ONE_GROUP),
    "float16 nn": Product(layout="nn", dtype="float16", out_dtype="float16"),
    "tn": Product(layout="tn", tile=SQUARE),
    "tt": Product(layout="tt", tile=SQUARE, launch=TURNS),
    "edges": Product(m=500, n=328, k=200, fused=True),
    "edges by pointers": Product(m=500, n=327, k=200, tile=SQUARE, store="pointer", launch=TURNS),
    "parts": Product(parts=2, launch=TURNS, tile=SQUARE),
    "swapped and fused": Product(swap=True, fused=True, tile=SQUARE),
    "swapped by pointers": Product(swap=True, tile=SQUARE, store="pointer", launch=TURNS),
    "brought": Product(fused=True, brought=True, stages=2),
    "brought in turns": Product(m=500, fused=True, brought=True, tile=SQUARE, parts=2, launch=TURNS, persistent=3),
    "brought in a batch": Product(batch=3, fused=True, brought=True, tile=SQUARE, parts=2),
    "brought and swapped": Product(swap=True, fused=True, brought=True, tile=SQUARE, parts=2, launch=TURNS),
    "batch": Product(batch=3, layout="nn", fused=False),
    "groups of two": Product(group=2, m=1000, n=1000, tile=SQUARE, persistent=5),
    "one tile a program": Product(persistent=None),
    "one tile": Product(m=128, n=256, persistent=None),
    "one step": Product(k=64),
    "parts of the reduction": Product(splits=3, k=504, out_dtype="float32", tile=SQUARE),
    "an empty part": Product(splits=4, k=320, out_dtype="float32", tile=SQUARE),
    "tf32 nt": Product(dtype="float32", out_dtype="float32", tile=(128, 128, 32)),
    "tf32 nn": Product(
        dtype="float32", out_dtype="float32", tile=(256, 128, 32), layout="nn", swap=True, store="pointer"
    ),
    "tf32 tt": Product(dtype="float32", out_dtype="float32", tile=(128, 128, 32), layout="tt", launch=TURNS),
    "int8": Product(dtype="int8", out_dtype="int32", tile=(128, 128, 128)),
    "two outputs": Product(tile=(128, 64, 64), doubled=True, stages=2),
    "two outputs in parts and turns": Product(tile=(64, 128, 64), doubled=True, parts=2, launch=TURNS),
}
# Each kind of tile, layout, element type, grid and store once, as a compilation takes a second; tf32 is compiled at
# full size below.
COMPILED = (
    "shared tiles",
    "one warp group",
    "float16 nn",
    "tn",
    "tt",
    "edges by pointers",
    "brought in a batch",
    "brought and swapped",
    "groups of two",
    "one tile",
    "parts of the reduction",
    "tf32 tt",
    "int8",
    "two outputs in parts and turns",
)
NARROW = Product(tile=(64, 256, 64))


@functools.cache
def compiled(program: TileProgram) -> tuple[str, Artefact]:
    """The PTX of a program's only kernel, and what is made of it."""
    kept: list[str] = []
    described = triton_compile._described

    def keep(compiled, taken):  # type: ignore[no-untyped-def]  # as Triton gives them
        kept.append(compiled.asm["ptx"])
        return described(compiled, taken)

    patch = pytest.MonkeyPatch()
    patch.setattr(triton_compile, "_described", keep)
    try:
        artefact = BACKEND.compile(BACKEND.render(program, "", H200), program, H200)
    finally:
        patch.undo()
    return kept[0], artefact


def check_dots(ptx: str, artefact: Artefact) -> None:
    """Operands come by bulk copies, dots are those of warp groups, and next to nothing leaves the registers."""
    assert re.search(r"wgmma\.mma_async", ptx)
    assert re.search(r"cp\.async\.bulk\.tensor\.\dd\.shared", ptx)
    assert not re.search(r"mma\.sync|cp\.async\.c[ag]", ptx)
    assert read_cubin(artefact.binaries[0]).frame_bytes <= ONE_REGISTER_PAIR


class TestPrinting:
    def test_two_warp_groups_share_a_tile(self, check_golden):
        check_golden(
            "triton", BACKEND.render(Product(fused=True, group=8, m=4096, persistent=132).program(), "a schedule", H200)
        )

    def test_two_warp_groups_alternate(self, check_golden):
        program = Product(tile=SQUARE, launch=TURNS, parts=2, m=8192, persistent=132)
        check_golden("triton", BACKEND.render(program.program(), "a schedule", H200))

    def test_rows_go_through_registers_where_dots_cannot_read_them(self, check_golden):
        check_golden("triton", BACKEND.render(PRODUCTS["tf32 nn"].program(), "a schedule", H200))

    def test_a_warp_group_stores_its_rows_alone(self):
        program = Product().program()
        (stored,) = (d for d in kernel_arguments(program, program.kernels[0]).descriptors if d.buffer.name == "out")
        assert stored.block == (64, 256)

    def test_tensors_may_be_called_what_the_text_uses(self):
        program = Product(fused=True).program()
        renamed = {"bias": "ring", "residual": "gl"}
        tiles = {"bias0": "ring", "residual0": "gl"}
        kernel = program.kernels[0]
        body = tuple(
            replace(s, buffer=renamed[s.buffer], dst=replace(s.dst, name=renamed[s.buffer]))
            if isinstance(s, Load)
            else replace(s, arguments=tuple(tiles.get(a, a) for a in s.arguments))
            if isinstance(s, Map)
            else s
            for s in kernel.body
        )
        buffers = tuple(replace(b, name=renamed.get(b.name, b.name)) for b in program.buffers)
        compiled(replace(program, buffers=buffers, kernels=(replace(kernel, body=body),)))


class TestCompiling:
    @pytest.mark.parametrize("name", COMPILED)
    def test_it_becomes_bulk_copies_and_warp_group_dots_without_a_gpu(self, name):
        ptx, artefact = compiled(PRODUCTS[name].program())
        check_dots(ptx, artefact)
        if PRODUCTS[name].store == "descriptor":
            assert "cp.async.bulk.tensor" in ptx.split("stmatrix")[-1]

    def test_operands_in_registers_spill_next_to_nothing_at_full_size(self):
        product = Product(2048, 2048, 2048, (256, 128, 32), "nn", "float32", "float32", swap=True, store="pointer")
        ptx, artefact = compiled(replace(product, stages=4).program())
        assert "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32" in ptx
        check_dots(ptx, artefact)

    def test_the_launch_counts_the_warps_of_every_part(self):
        _, artefact = compiled(Product().program())
        (kernel,) = kernels_from_json(artefact.launch)
        # Two warp groups, and a third, of which one warp brings operands.
        assert kernel.num_warps == 12

    def test_a_device_without_warp_group_dots_is_refused(self):
        program = Product().program()
        with pytest.raises(
            CompileError, match="producer_warps=1 on a100; expected a GPU with Hopper's dots of warp groups"
        ):
            BACKEND.compile(BACKEND.render(program, "", target_named("a100")), program, target_named("a100"))


class TestRefusing:
    @pytest.mark.parametrize(
        ("product", "words"),
        [
            (replace(NARROW, launch=TURNS, persistent=None), "alternating with a program for each of 16 tiles"),
            (Product(launch=replace(TURNS, num_warps=4)), "alternating with num_warps=4; expected 8"),
            (
                Product(launch=TURNS, splits=3, k=504, tile=SQUARE),
                "alternating with tiles of different numbers of steps in k.0; expected equal ones",
            ),
            (NARROW, "32 rows for a warp group; expected a multiple of 64"),
            (Product(tile=(256, 256, 64)), "128 x 256 sums for a warp group; expected at most 16384"),
            (Product(stages=1), "1 stages; expected at least 2"),
            (Product(launch=Launch(num_warps=2, producer_warps=1)), "num_warps=2; expected 4 or 8"),
            (Product(launch=Launch(num_warps=8, producer_warps=2)), "producer_warps=2; expected 1"),
            (Product(launch=Launch(num_warps=8, producer_warps=1, num_ctas=2)), "num_ctas=2; expected 1"),
            (Product(launch=replace(Launch(8), producer_warps=1, max_registers=168)), "max_registers=168; expected 0"),
            (
                Product(dtype="float32", layout="nn", tile=(128, 128, 32)),
                "b has to run along k where it is the dot's columns; swap makes it the rows",
            ),
            (Product(dtype="int8", layout="tt", tile=(128, 128, 128)), "a has to run along k for 8-bit types"),
            (Product(dtype="int8", tile=(128, 256, 128)), "256 columns of sums of int8; expected at most 128"),
            (
                Product(dtype="float32", layout="tt", tile=(128, 128, 32), splits=4, k=160),
                "a part of the reduction over k is empty",
            ),
        ],
    )
    def test_what_has_no_words_says_what_has(self, product, words):
        with pytest.raises(CompileError, match=words):
            BACKEND.render(product.program(), "", H200)

    def test_loads_by_pointers_are_refused(self):
        fill, loop, *rest = Product().program().kernels[0].body
        loads = tuple(replace(s, via="pointer") if isinstance(s, Load) else s for s in loop.body)
        self._refuses((fill, replace(loop, body=loads), *rest), "a is loaded by pointers; expected descriptors")

    def test_atomic_stores_are_refused(self):
        *rest, store = Product(store="pointer").program().kernels[0].body
        self._refuses((*rest, replace(store, atomic=True)), "adds to out atomically; expected plain stores")

    def test_an_epilogue_that_reduces_is_refused(self):
        *rest, store = Product().program().kernels[0].body
        reduce = Reduce(Tile("row", ("m",), (128,)), "acc", "n", "sum")
        self._refuses((*rest, reduce, store), "its epilogue has a Reduce; expected Load, Map, Split or Store")

    def test_a_body_of_another_form_is_refused(self):
        self._refuses((), "expected an accumulator filled with 0, one loop, and an epilogue")

    def _refuses(self, body: tuple[Statement, ...], words: str) -> None:
        program = Product().program()
        with pytest.raises(CompileError, match=words):
            BACKEND.render(replace(program, kernels=(replace(program.kernels[0], body=body),)), "", H200)


@pytest.mark.gpu
@needs_hopper
class TestOnGpu:
    @pytest.mark.parametrize("name", PRODUCTS)
    def test_it_computes_the_product(self, name):
        product = PRODUCTS[name]
        program = product.program()
        launcher = BACKEND.load(BACKEND.compile(BACKEND.render(program, "", H200), program, H200), program)
        inputs = [self._random(b) for b in program.buffers if b.role == "input"]
        shape = program.buffer("out").shape
        out_type = torch.int32 if product.out_dtype == "int32" else TORCH[product.out_dtype]
        expected = self._expected(product, inputs)
        # Rounded once at the end; products of 11 bits of tf32, each wrong by 2^-10 of it at most.
        tolerance = {"bfloat16": 2**-7, "float16": 2**-9, "float32": 2e-3 * product.k**0.5, "int32": 0.0}
        bar = tolerance[product.out_dtype]
        for _ in range(2):
            out = torch.full(shape, -7, dtype=out_type, device="cuda")
            twice = [torch.full(shape, -7.0, device="cuda")] if product.doubled else []
            launcher([*inputs, out, *twice])
            got = out.double().sum(0) if product.splits > 1 else out.double()
            torch.testing.assert_close(got, expected, rtol=bar, atol=bar)
            for other in twice:
                torch.testing.assert_close(other.double(), 2 * expected, rtol=bar, atol=bar)
        launcher.unload()

    def _random(self, buffer: Buffer) -> torch.Tensor:
        generator = torch.Generator("cuda").manual_seed(len(buffer.name) + sum(buffer.shape))
        if buffer.dtype == "int8":
            return torch.randint(-8, 8, buffer.shape, generator=generator, device="cuda", dtype=torch.int8)
        return torch.randn(buffer.shape, generator=generator, device="cuda").to(TORCH[buffer.dtype])

    def _expected(self, product: Product, inputs: list[torch.Tensor]) -> torch.Tensor:
        a, b, *rest = (x.double() for x in inputs)
        a = a if product.layout[0] == "n" else a.transpose(-1, -2)
        b = b if product.layout[1] == "n" else b.transpose(-1, -2)
        out = a @ b
        return (out + rest[0]).clamp(min=0.0) + rest[1] if product.fused else out
