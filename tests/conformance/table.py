"""The checked-in table of a suite: what passes, in a sorted text that merges line by line.

    # comments
    GROUP count seconds
      KIND name

A *group* is run in one process. `count` is how many of its programs pass eagerly; all of them pass compiled and are
traced but for those that have a line. Kinds: `fails`, and `untraced` for what passes because nothing of it was
compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KINDS = ("fails", "untraced")


@dataclass
class Group:
    """What was found in one group."""

    count: int = 0
    seconds: float = 0.0
    fails: set[str] = field(default_factory=set)
    untraced: set[str] = field(default_factory=set)


@dataclass
class Table:
    """Groups by name, and what stands at the head of the file."""

    groups: dict[str, Group] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table in a file; empty if there is none."""
        table, group = cls(), Group()
        for line in path.read_text().splitlines() if path.exists() else ():
            if not line.strip() or line.startswith("#"):
                continue
            first, *rest = line.split()
            if line.startswith(" "):
                getattr(group, first).add(rest[0])
            else:
                group = table.groups[first] = Group(int(rest[0]), float(rest[1]))
        return table

    def write(self, path: Path, head: str) -> None:
        """Writes it, sorted."""
        lines = [f"# {line}" for line in head.splitlines()]
        for name, group in sorted(self.groups.items()):
            lines.append(f"{name} {group.count} {coarse(group.seconds)}")
            lines += [f"  {kind} {found}" for kind in KINDS for found in sorted(getattr(group, kind))]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")

    def worse(self, name: str, found: Group) -> dict[str, set[str]]:
        """What is worse than this table says: the only thing a run is red for."""
        known = self.groups.get(name, Group())
        # What failed did not count as traced either.
        return {"fails": found.fails - known.fails, "untraced": found.untraced - known.untraced - known.fails}

    def better(self, name: str, found: Group, programs: set[str]) -> set[str]:
        """What this table says fails, and passed now, of the programs that were run."""
        return (self.groups.get(name, Group()).fails & programs) - found.fails


def coarse(seconds: float) -> int:
    """Seconds as 1, 2, 4, 8, ...: few runs change a table's line for them."""
    power = 1
    while power < seconds:
        power *= 2
    return power


def exceptions(path: Path, most: int) -> dict[str, str]:
    """What no compiler can keep, `name: reason` a line; more of them than `most` are an error."""
    made: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(": ")
            if not reason.strip():
                raise ValueError(f"{path.name}: {name} has no reason")
            made[name.strip()] = reason.strip()
    if len(made) > most:
        raise ValueError(f"{path.name} has {len(made)} exceptions, {most} are allowed")
    return made
