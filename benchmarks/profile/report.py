"""A profile as Markdown."""

import tomllib
from collections.abc import Sequence

from benchmarks import rig
from benchmarks.profile.phases import KINDS
from benchmarks.profile.recording import Recording
from benchmarks.profile.tally import Cost, Profile

_HEADINGS = {
    "compiled": "compiled code",
    "runtime": "Python and libraries",
    "kernel": "kernel",
    "waiting": "waiting",
}
WAITS = 8


def compiled_modules(form: rig.Form) -> list[str]:
    """The modules whose functions are C functions, as "package.module" below `taskyard`."""
    if form != "compiled":
        return []
    settings = tomllib.loads((rig.ROOT / "pyproject.toml").read_text())
    source = rig.ROOT / "src"
    patterns = settings["tool"]["taskyard"]["compiled"]
    found = {path for pattern in patterns for path in source.glob(pattern)}
    return sorted(".".join(path.relative_to(source).with_suffix("").parts[1:]) for path in found)


def text(recording: Recording, profile: Profile, top: int) -> str:
    ask, plain = recording.ask, recording.plain
    rates = (
        f"{plain.cycles_per_s:,.0f} cycles/s, under perf {recording.profiled.cycles_per_s:,.0f}; "
        f"{profile.samples:,} samples. Server {plain.server_cores:.2f} cores, generator "
        f"{plain.generator_cores:.2f}. Flushed: {recording.flushed}."
    )
    division = (
        f"Of a cycle, {profile.cycle_us:.2f} µs, the main thread was on the processor for "
        f"{profile.processor_us:.2f} µs and in line for one for {profile.queued_us:.2f} µs; "
        f"the other threads took {profile.others_us:.2f} µs, and waited for the disk for "
        f"{profile.others_disk_us:.2f} µs."
    )
    parts = [
        f"## {ask.shape}, {ask.dialect}, {ask.durability}, {ask.form}, {ask.payload}-byte payloads",
        f"{rates}\n{division}",
        phases_table(profile.phases),
        callers_table(profile.callers[:top]),
        functions_table(profile.functions[:top]),
        waits_table(profile.waits[:WAITS]),
    ]
    return "\n\n".join(parts) + "\n"


def phases_table(costs: Sequence[Cost]) -> str:
    header = ["phase", "µs a cycle", "share", *(_HEADINGS[kind] for kind in KINDS)]
    rows = [[cost.name, *_figures(cost), *_kinds(cost)] for cost in costs]
    total = Cost(
        "all",
        sum(cost.us for cost in costs),
        sum(cost.share for cost in costs),
        {kind: sum(cost.kinds.get(kind, 0.0) for cost in costs) for kind in KINDS},
    )
    return rig.markdown_table(header, [*rows, [total.name, *_figures(total), *_kinds(total)]])


def callers_table(costs: Sequence[Cost]) -> str:
    header = ["function of ours, and what others did for it", "µs a cycle", "share"]
    header += [_HEADINGS[kind] for kind in KINDS if kind != "waiting"]
    rows = [[f"`{cost.name}`", *_figures(cost), *_kinds(cost)[:-1]] for cost in costs]
    return rig.markdown_table(header, rows)


def functions_table(costs: Sequence[Cost]) -> str:
    header = ["function, without those it calls", "in", "µs a cycle", "share"]
    rows = [[f"`{c.name}`", _HEADINGS[next(iter(c.kinds))], *_figures(c)] for c in costs]
    return rig.markdown_table(header, rows)


def waits_table(costs: Sequence[Cost]) -> str:
    rows = [[f"`{cost.name}`", *_figures(cost)] for cost in costs]
    return rig.markdown_table(["waited in", "µs a cycle", "share"], rows)


def _figures(cost: Cost) -> list[str]:
    return [f"{cost.us:.2f}", f"{cost.share:.1%}"]


def _kinds(cost: Cost) -> list[str]:
    return [f"{cost.kinds[kind]:.2f}" if cost.kinds.get(kind) else "" for kind in KINDS]
