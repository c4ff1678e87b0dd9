"""The options that the words of a command make, and how many ranks a launcher says there are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankatlas.catalogue import said

OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
MARK = re.compile("\0[^\0]*\0|\2[^\2]*\2")
SHORT = {"-n": "ntasks", "-N": "nodes", "-np": "ntasks"}
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:[./][A-Za-z_]\w*)+)=")
_BLANK = "\1"
_GLUED = re.compile(r"-([nN])(\d{1,18})")
_REDIRECTS = re.compile(r"\d*[<>]|&>")
# A launcher's own options take one value, and what it starts may stand right behind it.
_ONE_VALUE = frozenset(
    (
        "ntasks", "nodes", "nnodes", "num_nodes", "nproc_per_node", "num_gpus", "ntasks_per_node", "gpus_per_node",
        "num_processes", "gpus", "devices", "xpus", "npus", "node_rank", "master_addr", "master_port", "rdzv_endpoint",
        "rdzv_backend", "rdzv_id", "num_machines", "machine_rank", "main_process_ip", "main_process_port", "hostfile",
    )
)  # fmt: skip
_PROGRAMS = re.compile(r"(^|/)(torchrun|deepspeed|accelerate|srun|mpirun|python[\d.]*|fleetrun|(ba)?sh)$|\.(py|sh)$")
_LISTS = re.compile(r"(_sizes|_list|_paths?|_layout|_freq)$")


class Item(NamedTuple):
    """A word with its variables filled in.  Marks in `held` say what is not known and where a default was taken.

    They stay in the text because a shell splits it into words later, and each word must keep its own.
    """

    held: str
    line: int = 0

    @property
    def text(self) -> str:
        """The word without marks."""
        held = self.held
        return MARK.sub("", held) if "\0" in held or "\2" in held else held

    @property
    def waits(self) -> tuple[str, ...]:
        """The names of what is not known in it."""
        if "\0" not in self.held:
            return ()
        return tuple(name.replace(_BLANK, " ") for name in re.findall("\0([^\0]*)\0", self.held))

    @property
    def origin(self) -> str | None:
        """Where a value came from that the script itself does not give."""
        found = re.search("\2([^\2]*)\2", self.held) if "\2" in self.held else None
        if found is None:
            return None
        told = found.group(1).split(_BLANK)
        if told[0] == "#SBATCH":
            return said("given.slurm", name=told[1], line=told[2])
        return (
            said("default.variable", name=told[0], line=told[1])
            if told[1:]
            else said("given.key", key=f"--set {told[0]}")
        )


def mark(kind: str, told: str) -> str:
    """A mark: `kind` "\\0" for what is not known, "\\2" for where a value came from, and the words about it:
    the name of a variable, and the line its default stands on."""
    return kind + told.replace(" ", _BLANK)[:200] + kind


_LOST = re.compile(
    r"(.+), (read|set by a loop|set by eval|set in a branch|unset in a branch|calculated|printed) on line (\d+)"
)


def waiting(wait: str) -> str:
    """What a value waits for, as a sentence that can be told in any language where it is a variable that was lost.

    >>> waiting("TP, set by a loop on line 3").told("zh")
    'TP（第 3 行由循环设置）'
    """
    match = _LOST.fullmatch(wait)
    if match is None:
        return wait
    name, how, line = match.groups()
    return said("variable.lost", name=name, how=said(f"how.{how.replace(' ', '_')}"), line=line)


def options(items: list[Item]) -> list[tuple[str, Item, list[Item]]]:
    """Name, the item it stands in and those of its values; `--name=value` is split, dashes become underscores.

    The words behind an option are its values up to the next option, a program, a redirection, or what is not known and
    comes after a value; a launcher's own option and `--name=value` take one.
    """
    found: list[tuple[str, Item, list[Item]]] = []
    for item in items:
        text = item.text
        if text.isspace():  # a backslash with a blank behind it, at the end of a line
            continue
        override = _OVERRIDE.match(text)
        glued = _GLUED.fullmatch(text)
        if glued:
            found += [(SHORT[f"-{glued[1]}"], item, [item._replace(held=glued[2])]), ("", item, [])]
        elif OPTION.match(text):
            name, equals, _ = text.partition("=")
            plain = SHORT.get(name) or name.lstrip("-").replace("-", "_")
            found.append((plain, item, [item._replace(held=item.held.partition("=")[2])] if equals else []))
            if equals:
                found.append(("", item, []))
        elif override:  # Hydra's own form
            name = text.partition("=")[0].lstrip("+").replace("/", ".")
            found.append((name, item, [item._replace(held=item.held.partition("=")[2])]))
            found.append(("", item, []))
        elif found and _ends(found[-1][0], found[-1][2], item):
            found.append(("", item, []))
        elif found:
            found[-1][2].append(item)
    return [option for option in found if option[0]]


def _ends(name: str, values: list[Item], item: Item) -> bool:
    """Whether a word is no value of the option `name` that has these values already."""
    if item.text.endswith(".py") or _REDIRECTS.match(item.text):
        return True
    if not values:
        return False
    if name in _ONE_VALUE or _PROGRAMS.search(item.text):
        return True
    return not item.text and bool(item.waits) and not _LISTS.search(name)


def elastic(values: Mapping[str, Any]) -> str | None:
    """`MIN:MAX` where torchrun is given a range of nodes rather than their number.

    >>> elastic({"nnodes": "1:4"}), elastic({"nnodes": "4:4"}), elastic({"nnodes": 4})
    ('1:4', None, None)
    """
    asked = values.get("nnodes")
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", asked) if isinstance(asked, str) else None
    return match.group() if match and int(match[1]) != int(match[2]) else None


def world_of_launcher(
    values: Mapping[str, Any], unresolved: Mapping[str, tuple[str, ...]], slurm: Mapping[str, int]
) -> tuple[int, str] | None:
    """How many ranks the launcher starts and which of its options say so, None where they do not."""
    whole = {**slurm, **values}

    if isinstance(whole.get("nnodes"), str) and not elastic(whole):  # "4:4" are 4 nodes
        least = whole["nnodes"].partition(":")[0]
        whole["nnodes"] = int(least) if re.fullmatch(r"\d{1,9}", least) else None

    def number(*names: str) -> int | None:
        for name in names:
            if isinstance(whole.get(name), int) and not isinstance(whole.get(name), bool) and whole[name] > 0:
                return int(whole[name])
        return None

    nodes = number("nnodes", "num_nodes")
    own = number("nproc_per_node", "num_gpus") or _devices(whole, "ntasks" in values or "ntasks_per_node" in whole)
    each = own
    if own is None:  # what Slurm starts itself; a launcher that it starts is on one node unless it says otherwise
        nodes, each = nodes or number("nodes"), number("ntasks_per_node")
    included = _included(whole.get("include"))
    if included:
        return included, "--include"
    if number("num_processes"):
        return number("num_processes") or 1, "--num-processes"
    # Slurm takes tasks per node as their most beside a number of tasks, and a command's own words before directives.
    tasks = number("ntasks") if "ntasks" in values or "ntasks_per_node" not in values else None
    if own is None and "ntasks" in unresolved:
        return None
    if own is None and tasks is not None:
        return tasks, said("launcher.tasks")
    if each is not None and not any(name in unresolved for name in ("nnodes", "num_nodes", "nodes")):
        return each * (nodes or 1), said("launcher.nodes", nodes=nodes or 1, each=each)
    if own is None and number("np"):
        return number("np") or 1, said("launcher.tasks")
    return None


def _devices(whole: Mapping[str, Any], slurm: bool) -> int | None:
    """How many devices a list such as `--gpus 0,1,2` names, None where it is a number that Slurm is asked for."""
    listed = next((str(whole[name]) for name in ("gpus", "devices", "xpus", "npus") if name in whole), None)
    if listed is None or "-" in listed or (slurm and "," not in listed):
        return None
    return len(listed.split(","))


def _included(hosts: object) -> int | None:
    """How many devices DeepSpeed's `--include` names, None where a host stands there without its devices."""
    if not isinstance(hosts, str):
        return None
    devices = [host.partition(":")[2].split(",") for host in hosts.split("@")]
    return sum(map(len, devices)) if all(device.isdigit() for held in devices for device in held) else None
