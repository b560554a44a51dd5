"""What tests of the side-by-side benchmark are made of."""

from benchmarks import rig
from benchmarks.side_by_side.plan import Plan, make_plan, read_arguments
from benchmarks.side_by_side.subjects import ABOUT, Subject


def subjects(*keys: str) -> list[Subject]:
    """Of each durability, which no one starts."""
    found = []
    for about in ABOUT:
        if about.key in keys:
            subject = Subject(about, f"{about.key} 1.0")
            for durability in rig.DURABILITIES:
                subject.servers[durability] = rig.Taskyard("compiled", durability)
                subject.settings[durability] = f"set to {durability}"
            found.append(subject)
    return found


def plan_of(*words: str) -> Plan:
    return make_plan(read_arguments(words))
