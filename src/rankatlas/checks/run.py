"""All checks over one job, and only changes that really put it right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rankatlas.checks import (
    batch,
    communicators,
    experts,
    layers,
    nodes,
    order,
    roles,
    sequences,
    tensor,
    together,
    world,
)
from rankatlas.checks.finding import SEVERITIES, Finding, Fix, explaining_first
from rankatlas.checks.keys import KEYS
from rankatlas.checks.numbers import Numbers
from rankatlas.checks.proving import errors_of, fitting, proven
from rankatlas.checks.spelling import instead_of, lines
from rankatlas.cluster import Cluster
from rankatlas.errors import ArgumentsError, DegreeError, WorldSizeError
from rankatlas.job import Fact, Job

_LONGEST_FIX = 4000  # characters to paste
# Of the numbers alone; a change is proven by running these again.
_OF_NUMBERS: tuple[Callable[[Numbers], Iterator[Finding]], ...] = (
    world.product_of,
    world.defaults,
    world.idle,
    experts.ranks,
    experts.count,
    experts.inherited,
    experts.unused,
    experts.features,
    experts.without_sequence,
    experts.bias,
    tensor.divides,
    tensor.head_features,
    tensor.query_groups,
    tensor.key_value_heads,
    tensor.vocabulary,
    layers.split,
    layers.virtual_by_length,
    layers.virtual_alone,
    layers.interleaving,
    layers.few_micro_batches,
    layers.cut_micro_batches,
    sequences.context,
    sequences.tensor,
    sequences.ulysses,
    batch.product,
    batch.remainder,
    roles.rollout,
    roles.rollout_heads,
    roles.samples,
    roles.mini_batches,
    together.apart,
    together.parts,
)
# Of the layout and of what the reader said.
_OF_LAYOUT: tuple[Callable[[Numbers], Iterator[Finding]], ...] = (
    world.unread,
    world.sharding,
    world.unsharded,
    order.differs,
    order.seeds,
    communicators.too_many,
)
_OF_CLUSTER: tuple[Callable[[Numbers, Cluster], Iterator[Finding]], ...] = (
    nodes.devices,
    nodes.launcher,
    nodes.leaving,
    nodes.host_order,
)


def check_job(job: Job, cluster: Cluster | None = None, extra: Iterable[Fact] = ()) -> list[Finding]:
    """Everything that is wrong, slow or surprising about a job, the worst first.

    `cluster` is where it will run; `extra` are settings the job lacks, such as those of a model's configuration.
    Cost: O(axes + layers), whatever the world.

    >>> from rankatlas import Mesh
    >>> job = Job(Mesh(pp=4, dp=2, tp=8), format="notation", source="", settings=[Fact("layers", 30, "given")])
    >>> [finding.code for finding in check_job(job)]
    ['RA130']
    """
    return check_numbers(Numbers.of(job, extra), cluster)


def check_numbers(numbers: Numbers, cluster: Cluster | None = None) -> list[Finding]:
    """The same for numbers that need not be a layout yet.  Cost: as `check_job`."""
    found = [_spelled(proven(finding, numbers, _all_of), numbers) for finding in _all_of(numbers)]
    found += [_spelled(finding, numbers) for check in _OF_LAYOUT for finding in check(numbers)]
    if cluster is not None:
        found += [_spelled(finding, numbers) for check in _OF_CLUSTER for finding in check(numbers, cluster)]
    return explaining_first(sorted(found, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.code)))


def check_refusal(
    error: WorldSizeError | DegreeError | ArgumentsError,
    numbers: Numbers | None = None,
    others: Iterable[Finding] = (),
) -> Finding:
    """The finding for what a reader refused, its changes spelled as the source would.  Cost: O(axes).

    `numbers` are those of the source at a world that its sizes fit, and `others` what is wrong with it at any world:
    changes are offered that bring no further error.
    """
    if isinstance(error, ArgumentsError):
        return world.contradiction(error)
    finding = world.product(error) if isinstance(error, WorldSizeError) else world.degree(error)
    if numbers is None:
        return finding.with_fixes(fix for fix in finding.fixes if fix.lines)
    if isinstance(error, WorldSizeError):
        finding = _fitting(finding, error, numbers, errors_of(others))
    if numbers.format.partition("-")[0] in KEYS and isinstance(error, WorldSizeError):
        # What stays as it is need not be pasted, and the open size follows by itself.
        open_axis = finding.numbers["axis"] if finding.code == "RA102" else None
        stays = {**finding.numbers["sizes"], open_axis: None}

        def changed(fix: Fix) -> Fix:
            sizes = fix.changes.items()
            return Fix({name: size for name, size in sizes if name not in stays or stays[name] not in (size, None)})

        fixes = map(changed, finding.fixes)
        tried = [(changed(fix), brings) for fix, brings in finding.tried]
        finding = finding.with_fixes((fix for fix in fixes if fix.changes), (one for one in tried if one[0].changes))
    return _spelled(finding, numbers.by_axis())


def _fitting(finding: Finding, error: WorldSizeError, numbers: Numbers, known: list[str]) -> Finding:
    """RA101 or RA102 with sizes that bring no other error: those near by, else any that the world has."""

    def by_role(sizes: Mapping[str, Any]) -> dict[str, Any]:
        return world.by_role(numbers, {**finding.numbers["sizes"], **sizes}, sizes.get("world", error.world_size))

    of_sizes = [fix for fix in finding.fixes if "world" not in fix.changes and _taken(finding, fix)]
    of_worlds = [fix for fix in finding.fixes if "world" in fix.changes]
    sizes, tried = fitting(of_sizes, numbers, known, _all_of, by_role)
    if not sizes:
        sizes, _ = fitting(
            (fix for fix in world.other_sizes(error) if _taken(finding, fix)), numbers, known, _all_of, by_role
        )
    worlds, _ = fitting(of_worlds, numbers, known, _all_of, by_role)
    asked = {**finding.numbers["sizes"], "world": finding.numbers["world"]}
    if finding.code == "RA102":
        asked[finding.numbers["axis"]] = None
    nearest = sorted([*sizes, *worlds], key=lambda fix: world.changed_sizes(asked, fix.changes))
    return finding.with_fixes(nearest, () if sizes or worlds else tried)


def _taken(finding: Finding, fix: Fix) -> bool:
    """Whether Paddle's trainer takes the sizes: dp above 1 stands beside no sharding that is left open."""
    beside = int(fix.changes.get("dp") or 1)
    return bool(finding.numbers["axis"] != "sharding") or beside == 1


def _all_of(numbers: Numbers) -> Iterator[Finding]:
    for check in _OF_NUMBERS:
        yield from check(numbers)


def _spelled(finding: Finding, numbers: Numbers) -> Finding:
    """The finding with its changes as lines of the dialect; changes that cannot be said there are left out."""

    def written(fix: Fix) -> Fix:
        return Fix(fix.changes, fix.lines or lines(numbers, fix.changes), instead_of(numbers, fix.changes))

    fixes = [fix for fix in map(written, finding.fixes) if sum(map(len, fix.lines)) <= _LONGEST_FIX]
    fixes.sort(key=_quoted)
    tried = [(written(fix), brings) for fix, brings in finding.tried]
    return finding.with_fixes((fix for fix in fixes if fix.lines), (one for one in tried if one[0].lines))


def _quoted(fix: Fix) -> bool:
    """Whether options hold quotes, which break a script that keeps them in quotes of its own: others come first."""
    return any(line.startswith("--") and '"' in line for line in fix.lines)
