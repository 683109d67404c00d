"""The difference of a record's key to a wanted one, member by member: `m: 512, wanted 500`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autosched.machine.policies import policy_text
from search_spaces import Target, Workload
from tuning_logs import OwnKernel, Subject, TuningRecord

# What is compared of two workloads, by name, and of two devices.
_Members = Mapping[str, object]
_LAYOUT = "layout"


def key_difference(record: TuningRecord, wanted: Subject, target: Target, policy: str) -> tuple[str, ...]:
    """The members by which a record's key is another one; none where it is the same."""
    found = _of_subjects(record.subject, wanted)
    devices = _differing(_device(record.target), _device(target))
    policies = _differing({"timing": policy_text(record.provenance.policy)}, {"timing": policy_text(policy)})
    return (*found, *devices, *policies)


def version_difference(record: TuningRecord, generator: str, versions: Mapping[str, str]) -> tuple[str, ...]:
    """The versions by which a record was made by another autosched, or elsewhere; only those that both tell."""
    then = dict(record.provenance.versions)
    told = {name: version for name, version in versions.items() if name in then}
    return (
        *_differing({"generator": record.provenance.generator}, {"generator": generator}),
        *_differing({name: then[name] for name in told}, told),
    )


def _of_subjects(there: Subject, wanted: Subject) -> tuple[str, ...]:
    if there.key == wanted.key:
        return ()
    if there.family != wanted.family:
        return (f"operator: {there.label}, wanted {wanted.label}",)
    if isinstance(there, OwnKernel) or isinstance(wanted, OwnKernel):
        kernels = [{**dict(k.values), **dict(k.types)} for k in (there, wanted) if isinstance(k, OwnKernel)]
        return tuple(_differing(*kernels))
    named = [dict(w.arguments) for w in (there, wanted)]
    # Of one constructor, arguments are what its users know; of others, the canonical form has all there is to know.
    if there.name == wanted.name and named[0].keys() == named[1].keys() and named[0] != named[1]:
        return tuple(_differing(*named))
    found = _differing(_form(there), _form(wanted))
    layouts = _differing({_LAYOUT: _layout(there)}, {_LAYOUT: _layout(wanted)})
    # Strides follow from sizes: with other sizes they tell nothing.
    return tuple(found) or tuple(layouts) or (f"computation: {there.label}, wanted {wanted.label}",)


def _form(op: Workload) -> _Members:
    inputs = [op.inputs[n] for n in op.canonical.inputs]
    return {
        "shape": ", ".join("×".join(map(str, shape)) for shape in op.canonical.shapes),
        "dtype": " to ".join(", ".join(t.dtype for t in tensors) for tensors in (inputs, op.outputs)),
        "accuracy": op.precision,
        "constants": [n for n, t in enumerate(inputs) if t.constant],
    }


def _layout(op: Workload) -> str:
    tensors = [*(op.inputs[n] for n in op.canonical.inputs), *op.outputs]
    return ", ".join(str(t.effective_strides) for t in tensors)


def _device(target: Target) -> _Members:
    if target.kind == "cpu":
        return {"device": target.device, "threads": target.threads}
    return {"device": target.device, "compute capability": target.capability}


def _differing(there: _Members, wanted: _Members) -> Iterator[str]:
    """`name: there, wanted that`; a missing member is none."""
    for name in dict.fromkeys([*there, *wanted]):
        got, asked = there.get(name), wanted.get(name)
        if got != asked:
            yield f"{name}: {_text(got)}, wanted {_text(asked)}"


def _text(value: object) -> str:
    return "none" if value in (None, "", []) else str(value)
