"""Tile programs as loop nests: the text of `print(schedule)`, and the head of every generated source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from search_spaces.programs.statements import (
    Combination,
    Deinterleave,
    Dot,
    Fill,
    For,
    Gather,
    If,
    Interleave,
    Let,
    Load,
    Map,
    Position,
    Prefetch,
    Reduce,
    Regroup,
    Scan,
    Split,
    Statement,
    Store,
    View,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile


def to_text(program: TileProgram) -> str:
    """The program as a loop nest, one statement a line."""
    lines = [f"zero {', '.join(program.zeroed)}"] if program.zeroed else []
    for kernel, prepared in zip(program.kernels, program.preparing, strict=True):
        tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
        grid = kernel.grid
        order = ", ".join(f"{a.variable} in {a.extent}" for a in grid.axes)
        extra = f", {grid.group[0]} in groups of {grid.group[1]}" if grid.group else ""
        extra += f", persistent on {grid.programs} programs" if grid.persistent else ""
        extra += f", of use below {grid.live}" if grid.live else ""
        extra += f", {grid.stream[0]} streamed" if grid.stream else ""
        lines += [f"once for a constant, {prepared}:"] if prepared else []
        lines.append(f"kernel {kernel.name}: grid {order}{extra}  [{_launch_text(kernel.launch)}]")
        lines.extend(_body_text(kernel.body, tiles, "  "))
    return "\n".join(lines)


def _launch_text(launch: Launch) -> str:
    if launch.lanes > 1:
        ahead = f", prefetching {launch.prefetch_bytes} bytes ahead" if launch.prefetch_bytes else ""
        return f"lanes {launch.lanes}, vectors {launch.vectors}{ahead}"
    text = f"warps {launch.num_warps}, stages {launch.num_stages}"
    text += f", cluster {launch.num_ctas}" if launch.num_ctas > 1 else ""
    text += f", {launch.producer_warps} more to load" if launch.producer_warps else ""
    text += ", dots overlapped" if launch.overlapped else ""
    text += ", launched ahead" if launch.dependent else ""
    return text + (f", registers ≤ {launch.max_registers}" if launch.max_registers else "")


def _body_text(body: tuple[Statement, ...], tiles: Mapping[str, Tile], indent: str) -> Iterator[str]:
    for s in body:
        yield indent + _statement_text(s, tiles)
        if isinstance(s, For):
            yield from _body_text(s.body, tiles, indent + "  ")
        if isinstance(s, If):
            yield from _body_text(s.then, tiles, indent + "  ")
            if s.then and s.otherwise:
                yield indent + "else:"
            yield from _body_text(s.otherwise, tiles, indent + "  ")


def _statement_text(s: Statement, tiles: Mapping[str, Tile]) -> str:
    match s:
        case Load():
            how: list[str] = [w for w in (s.via if s.via != "pointer" else "", s.eviction) if w]
            if s.panels:
                kind = "panels" if s.panels.interleaved else "padded rows, panels"
                how.append(f"packed in {kind} of {s.panels.width} along {s.panels.axis}")
            return f"{s.dst} = load {s.buffer}[{_slices(s.slices)}]{_else(s.fill if s.guarded else None)}{_note(how)}"
        case Gather():
            return f"{s.dst} = gather {s.buffer}[{', '.join(map(str, s.index))}]{_else(s.fill)}"
        case Position():
            return f"{s.dst} = {s.piece}"
        case View():
            return f"{s.dst} = {s.src}[{_slices(s.slices)}]"
        case Fill():
            return f"{s.dst} = {_number(s.value)}"
        case Dot():
            how = [f"unrolled {s.unroll}"] if s.unroll > 1 else []
            how += [f"{s.b} prefetched {s.prefetch_b} ahead"] if s.prefetch_b else []
            how += ["from memory"] if s.from_memory else []
            return f"{s.dst.name} += dot({s.a}, {s.b}) over {s.axis}{_note(how)}"
        case Map():
            shown = ", ".join(a if isinstance(a, str) else _number(a) for a in s.arguments)
            return f"{s.dst} = {s.operator}({shown})"
        case Reduce():
            return f"{s.dst} = {s.operator} of {s.src} over {s.axis}"
        case Regroup():
            return f"{s.dst} = {s.src} regrouped along {s.axis}"
        case Scan():
            made = ", ".join([str(s.dsts[0]), *(t.name for t in s.dsts[1:])])
            order = f"{s.axis} backwards" if s.reverse else s.axis
            return f"{made} = scan of {', '.join(s.srcs)} along {order} by {_combination(s.combine)}"
        case Split():
            return f"{s.first}, {s.second.name} = halves of {s.src} along {s.axis}"
        case Deinterleave():
            return f"{', '.join([str(s.dst[0]), *(t.name for t in s.dst[1:])])} = {s.src} in turn along {s.axis}"
        case Interleave():
            return f"{s.dst} = {', '.join(s.src)} in turn along {s.axis}{_note([f'by {s.run}'] if s.run > 1 else [])}"
        case Store():
            how = [w for w in (s.via if s.via != "pointer" else "", "atomic add" if s.atomic else "") if w]
            how += ["streaming"] if s.streaming else []
            how += [f"as {', '.join(s.axes)}"] if _turned(s.axes, tiles[s.src].axes) else []
            chosen = f" where {s.where}" if s.where else ""
            return f"store {s.buffer}[{_slices(s.slices)}] = {s.src}{chosen}{_note(how)}"
        case Prefetch():
            return f"prefetch {s.buffer}[{_slices(s.slices)}]"
        case For():
            marks = [f"{s.pipeline_stages} stages"] if s.pipeline_stages else []
            marks += ["flattened"] if s.flatten else []
            marks += [f"while {s.bound.start} < {s.bound.size}"] if s.bound else []
            marks += [f"until not {b.start} < {b.size}" for b in s.until]
            marks += [f"since not all {', '.join(f'{b.start} < {b.size}' for b in group)}" for group in s.since]
            marks += [f"of use where {b.start} < {b.size}" for b in s.useful]
            marks += [f"where {s.marks}"] if s.marks else []
            fused = ", ".join(f"{name} in {extent}" for name, extent in s.digits.radix) if s.digits else ""
            marks += [f"{s.digits.number} counts {fused}"] if s.digits else []
            return f"for {s.variable} in {s.extent}:" + (f"  # {', '.join(marks)}" if marks else "")
        case Let():
            return f"let {s.variable} in {s.extent} = {s.src}" + (f"  # {s.usual:.2g} on average" if s.usual else "")
        case If():
            return f"if {s.variable} {'==' if s.then else '!='} {s.value}:"


def _turned(stored: tuple[str, ...], axes: tuple[str, ...]) -> bool:
    """True if the axes of a tile are stored in another order."""
    return {*stored} == {*axes} and stored != axes


def _combination(combine: Combination) -> str:
    """The results of a combination, each as an expression of both values."""
    made: dict[str, str] = {}
    for s in combine.body:
        shown = (made.get(a, a) if isinstance(a, str) else _number(a) for a in s.arguments)
        made[s.dst.name] = f"{s.operator}({', '.join(shown)})"
    return ", ".join(made.get(name, name) for name in combine.results)


def _number(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _else(fill: float | int | None) -> str:
    return "" if fill is None else f" else {_number(fill)}"


def _note(how: list[str]) -> str:
    return f"  ({', '.join(how)})" if how else ""


def _slices(slices: tuple[Slice, ...]) -> str:
    return ", ".join(map(str, slices))
