"""The numbers of a job under one name each, whatever its dialect calls them, with where each came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from rankatlas.catalogue import Cut, Said, said
from rankatlas.core import Atlas, Mesh
from rankatlas.core.sizes import divisors
from rankatlas.derived import PIPELINE_AXES, data_axes
from rankatlas.job import Fact, Job

# Role → the names axes of that role have.
ROLES: Mapping[str, tuple[str, ...]] = {
    "pp": PIPELINE_AXES,
    "tp": ("tp", "mp", "tensor", "model"),
    "cp": ("cp", "context"),
    "sep": ("sep", "sp", "ulysses", "ulysses_sp"),
}
EXPERT_ROLES: Mapping[str, tuple[str, ...]] = {
    "ep": ("ep", "expert"),
    "etp": ("etp", "expert_tp", "tp", "mp", "model"),
    "edp": ("edp", "expert_dp", "expert_data", "efsdp", "moe_sharding", "dp"),
}
# Where the data of training is split: verl's Ulysses has a chart for that.
DENSE_CHARTS = ("ulysses", "dense", "train_dense", "train", "actor")
EXPERT_CHARTS = ("expert", "train_expert", "sparse", "train_sparse", "experts", "moe")
# Of reinforcement learning.
_OF_STEPS = ("prompts", "responses", "rollout_tp", "rollout_pp", "rollout_dp")
# Origins of batches that a reader computed → of what, beside the data size.
_DERIVED: Mapping[str, tuple[str, ...]] = {
    "default.batch": ("micro_batch",),
    "default.local_batch": ("micro_batch",),
    "computed.batch": ("micro_batch", "accumulation"),
}
_STEPS = ("computed.accumulation", "computed.local_accumulation")
_ENORMOUS = 1 << 32  # beyond it the search for divisors takes noticeably long
_MOST_SIZE = 1 << 12


class Numbers:
    """What checks look at: `facts` by canonical name, and of the layout what is known.

    Names are the roles pp, tp, cp, sep, dp (all data ranks together), ep, etp, edp, world, and those of `SETTINGS`.
    `axes` is role → the axes of the layout that have it; a fact's own name is what the source calls it.

    >>> numbers = Numbers.of(Job(Mesh(pp=2, dp=4, mp=2), format="notation", source="pp=2 dp=4 mp=2"))
    >>> numbers["tp"], numbers.label("tp"), numbers["world"]
    (2, 'mp=2', 16)
    """

    __slots__ = ("axes", "expert", "facts", "format", "launched", "layout", "mesh", "notes", "origins", "source")

    def __init__(
        self,
        facts: Iterable[Fact],
        *,
        format: str = "notation",
        source: str = "",
        layout: Mesh | Atlas | None = None,
        mesh: Mesh | None = None,
        expert: Mesh | None = None,
        axes: Mapping[str, tuple[str, ...]] | None = None,
        notes: Iterable[str] = (),
        origins: Mapping[str, str] | None = None,
        launched: tuple[int, int] | None = None,
    ) -> None:
        self.facts = {fact.name: fact for fact in facts}
        self.format = format
        self.source = source
        self.layout = layout
        self.mesh = mesh
        self.expert = expert
        self.axes = dict(axes or {})
        self.notes = tuple(notes)
        self.launched = launched
        self.origins = dict(origins or {})

    @classmethod
    def of(cls, job: Job, extra: Iterable[Fact] = ()) -> Numbers:
        """The numbers of a job; `extra` are settings that the job lacks, such as those of a model's configuration."""
        mesh, expert = dense_mesh(job.layout), expert_mesh(job.layout)
        origins = {fact.name.removeprefix("train."): fact.origin for fact in job.facts}
        facts = [Fact("world", mesh.world_size, said("layout"))]
        axes: dict[str, tuple[str, ...]] = {}
        for role, names in ROLES.items():
            axes[role] = tuple(axis for axis in mesh.axes if axis in names)
            if axes[role]:
                size = prod(mesh.size(axis) for axis in axes[role])
                facts.append(Fact(role, size, origins.get(axes[role][0], said("layout"))))
        axes["dp"] = tuple(axis for axis in mesh.axes if axis in data_axes(mesh))
        facts.append(Fact("dp", prod(mesh.size(axis) for axis in axes["dp"]), said("layout")))
        if "dp_replicate" in mesh.axes:
            facts.append(Fact("replicas", mesh.size("dp_replicate"), said("layout")))
        taken = prod(mesh.size(axis) for role in (*ROLES, "dp") for axis in axes[role])
        if mesh.world_size > taken:  # an axis whose role is not known, or one of experts among the others
            facts.append(Fact("other", mesh.world_size // taken, said("layout")))
        chart = expert or mesh
        for role, names in EXPERT_ROLES.items():
            if expert is None and role != "ep":
                continue
            axis = next((name for name in names if name in chart.axes), None)
            if axis is not None:
                axes[role] = (axis,)
                places = (f"expert.{axis}", role, axis)
                origin = next((origins[name] for name in places if name in origins), said("layout"))
                facts.append(Fact(role, chart.size(axis), origin))
        known = {fact.name for fact in facts}
        facts += [fact for fact in job.facts if fact.name not in known and fact.name in _OF_STEPS]
        if isinstance(job.layout, Atlas) and "rollout" in job.layout.charts:
            facts.append(Fact("rollout_world", job.layout.charts["rollout"].world_size, said("layout")))
        facts += job.settings.values()
        there = {fact.name for fact in facts}
        facts += [fact for fact in extra if fact.name not in there]
        return cls(
            facts,
            format=job.format,
            source=job.source,
            layout=job.layout,
            mesh=mesh,
            expert=expert,
            axes=axes,
            notes=job.notes,
            origins=origins,
            launched=job.launched,
        )

    @property
    def ranks(self) -> int:
        """How many ranks there are from 0 to the last of the layout."""
        layout = self.layout
        charts = [] if layout is None else [layout] if isinstance(layout, Mesh) else list(layout.charts.values())
        return max([mesh.first_rank + mesh.world_size for mesh in charts], default=self["world"])

    def __getitem__(self, name: str) -> int:
        """The number of this name, 1 where an axis is not there."""
        value = self.get(name)
        return 1 if value is None else value

    def get(self, name: str) -> int | None:
        """The number of this name, None where there is none (or it is no integer above 0)."""
        fact = self.facts.get(name)
        value = None if fact is None else fact.value
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def value(self, name: str) -> Any:
        """Whatever was said under this name, None where nothing was."""
        fact = self.facts.get(name)
        return None if fact is None else fact.value

    def origin(self, name: str) -> str:
        """Where the number came from, "" where there is none."""
        return self.facts[name].origin if name in self.facts else ""

    def computed(self, name: str) -> bool:
        """Whether a reader made the number of others, so that it changes along with them."""
        origin = self.origin(name)
        return isinstance(origin, Said) and origin.code in (*_DERIVED, *_STEPS)

    def told(self, *names: str) -> str:
        """Where an axis came from: what is known under the first of these names, else what the source's format says."""
        origin = next((self.origins[name] for name in names if name in self.origins), "")
        if not origin and self.format == "notation":
            open_sizes = [f"{names[0]}={open_size}" for open_size in ("?", "-1")]
            inferred = any(text in self.source.split() for text in open_sizes)
            origin = said("inferred.world_size", world=self["world"]) if inferred else said("given.plain")
        return origin or said("layout")

    def label(self, name: str) -> str:
        """A number with the name its source gives it, such as mp=4 for tp."""
        names = self.axes.get(name) or (name,)
        return f"{'*'.join(names)}={self[name]}"

    def written(self, name: str) -> bool:
        """Whether the source's family of formats is `name`, such as megatron for megatron-0.16."""
        return self.format.partition("-")[0].startswith(name)

    def expert_ranks(self) -> tuple[int, tuple[str, ...]]:
        """How many ranks experts are shared out over, and the dense axes that make them.

        One pipeline stage; copies of the model (dp_replicate) hold all experts each.
        """
        if self.mesh is None:
            return self["world"] // self["pp"] // self["replicas"], ("dp", "cp", "tp")
        left_out = (*PIPELINE_AXES, "dp_replicate")
        axes = tuple(axis for axis in self.mesh.axes if axis not in left_out and axis not in self.axes.get("ep", ()))
        return self["world"] // self["pp"] // prod(
            self.mesh.size(axis) for axis in self.mesh.axes if axis == "dp_replicate"
        ), axes

    def by_axis(self) -> Numbers:
        """The same numbers, whose changes name axes of the layout and no roles.

        >>> numbers = Numbers.of(Job(Mesh(dp=2, sharding=2), format="notation", source=""))
        >>> numbers.axes["dp"], numbers.by_axis().axes["dp"]
        (('dp', 'sharding'), ('dp',))
        """
        axes = {} if self.mesh is None else {axis: (axis,) for axis in self.mesh.axes}
        return Numbers(
            self.facts.values(),
            format=self.format,
            source=self.source,
            layout=self.layout,
            mesh=self.mesh,
            axes=axes,
            notes=self.notes,
            origins=self.origins,
        )

    def changed(self, changes: Mapping[str, Any]) -> Numbers:
        """The same job with some numbers changed, those that follow from them adapted.

        The data size follows from the world where it is not changed itself; the accumulation from the batch.
        The layout is dropped: what depends on the order of axes must be looked at anew.
        """
        facts = dict(self.facts)
        for name, value in changes.items():
            facts[name] = Fact(name, value, "changed")
        if "world" in changes and self.get("rollout_world") == self.get("world"):
            facts["rollout_world"] = Fact("rollout_world", changes["world"], "inferred")
        if (
            "ep" in changes
            and self.mesh is not None
            and any(axis in self.mesh.axes for axis in self.axes.get("ep", ()))
        ):
            facts["other"] = Fact("other", self["other"] * changes["ep"] // self["ep"], "changed")
        model = ("pp", "tp", "cp", "sep")
        if any(name in changes for name in (*model, "world")) and "dp" not in changes:
            taken = prod(_size(facts.get(name)) for name in model)
            taken *= _size(facts.get("other"))
            facts["dp"] = Fact("dp", max(1, _size(facts.get("world")) // taken), "inferred")
        if "etp" not in changes and "tp" in changes and "inherited" in self.origin("etp"):
            facts["etp"] = Fact("etp", changes["tp"], self.origin("etp"))
        if "ep" in facts and "edp" in facts and "edp" not in changes:
            stage = _size(facts.get("world")) // _size(facts.get("pp"))
            facts["edp"] = Fact("edp", max(1, stage // (_size(facts["ep"]) * _size(facts.get("etp")))), "inferred")
        _derive(facts, changes)
        _share_out(facts, changes)
        return Numbers(facts.values(), format=self.format, source=self.source, axes=self.axes, notes=self.notes)


def dense_mesh(layout: Mesh | Atlas) -> Mesh:
    """The chart of the dense layers, or of training: the mesh itself where there is only one.

    >>> dense_mesh(Atlas(dense=Mesh(dp=4), expert=Mesh(ep=4)))
    Mesh(dp=4)
    """
    if isinstance(layout, Mesh):
        return layout
    name = next((name for name in DENSE_CHARTS if name in layout.charts), next(iter(layout.charts)))
    return layout.charts[name]


def expert_mesh(layout: Mesh | Atlas) -> Mesh | None:
    """The chart of the expert layers, None where there is none."""
    if isinstance(layout, Mesh):
        return None
    return next((layout.charts[name] for name in EXPERT_CHARTS if name in layout.charts), None)


def _derive(facts: dict[str, Fact], changes: Mapping[str, Any]) -> None:
    """The batches that a reader computed, computed again from what changes."""
    whole, steps = facts.get("global_batch"), facts.get("accumulation")
    data = _size(facts.get("dp"))
    if whole is not None and isinstance(whole.origin, Said) and whole.origin.code in _DERIVED:
        size = data * prod(_size(facts.get(name)) for name in _DERIVED[whole.origin.code])
        facts["global_batch"] = Fact("global_batch", size, whole.origin)
    if (
        steps is None
        or "accumulation" in changes
        or not isinstance(steps.origin, Said)
        or steps.origin.code not in _STEPS
    ):
        return
    count, rest = divmod(_size(facts.get("global_batch")), _size(facts.get("micro_batch")) * data)
    if rest:
        facts.pop("accumulation")
    else:
        facts["accumulation"] = Fact("accumulation", count, steps.origin)


def _share_out(facts: dict[str, Fact], changes: Mapping[str, Any]) -> None:
    """What says how layers are shared out, without what the changes stand in the place of."""
    ends = ("first_stage_layers", "last_stage_layers")
    if "stage_layers" in changes:
        _drop(facts, *ends, "layer_split", "virtual_stage_layers")
    elif any(end in changes for end in ends):
        _drop(facts, "stage_layers", "layer_split", "virtual_stage_layers")
    elif "layer_split" in changes:
        _drop(facts, "stage_layers", *ends)
    if "virtual_stages" in changes or "pp" in changes:
        _drop(facts, "stage_layers")
    if "virtual_stages" in changes:
        _drop(facts, "virtual_stage_layers")
    elif "virtual_stage_layers" in facts and facts["virtual_stage_layers"].value:
        _drop(facts, "virtual_stages")  # it follows from the length
        whole = _size(facts.get("layers")) // _size(facts.get("pp")) // _size(facts["virtual_stage_layers"])
        if whole > 1:
            facts["virtual_stages"] = Fact("virtual_stages", whole, "inferred")


def _drop(facts: dict[str, Fact], *names: str) -> None:
    for name in names:
        facts.pop(name, None)


def _size(fact: Fact | None) -> int:
    return fact.value if fact is not None and isinstance(fact.value, int) else 1


def divisors_shown(number: int) -> list[int]:
    """The divisors of a number, ascending; of an enormous one only those that a size may have.

    >>> divisors_shown(12), divisors_shown(2**100)[-1]
    ([1, 2, 3, 4, 6, 12], 4096)
    """
    if number < _ENORMOUS:
        return divisors(number)
    return [size for size in range(1, _MOST_SIZE + 1) if number % size == 0]


def up_to_next(legal: Iterable[int], wanted: int) -> list[int]:
    """The legal values up to the first one that is not below what was wanted; what is left out is told by its type.

    >>> up_to_next([1, 2, 4, 8, 16], 7), type(up_to_next([1, 2, 4, 8, 16], 7)).__name__
    ([1, 2, 4, 8], 'Cut')
    """
    every = list(legal)
    found = every[: next((place + 1 for place, value in enumerate(every) if value >= wanted), len(every))]
    return Cut(found) if len(found) < len(every) else found
