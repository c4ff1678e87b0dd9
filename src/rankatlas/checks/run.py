"""All checks over one job, and only changes that really put it right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rankatlas.checks import batch, communicators, experts, layers, nodes, order, roles, sequences, tensor, world
from rankatlas.checks.finding import SEVERITIES, Finding, Fix
from rankatlas.checks.keys import KEYS
from rankatlas.checks.numbers import Numbers
from rankatlas.checks.spelling import instead_of, lines
from rankatlas.cluster import Cluster
from rankatlas.errors import ArgumentsError, DegreeError, WorldSizeError
from rankatlas.job import Fact, Job

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
    tensor.divides,
    tensor.key_value_heads,
    tensor.vocabulary,
    layers.split,
    layers.virtual_by_length,
    layers.interleaving,
    layers.few_micro_batches,
    sequences.context,
    sequences.ulysses,
    batch.product,
    batch.remainder,
    roles.rollout,
    roles.samples,
    roles.mini_batches,
)
# Of the layout and of what the reader said.
_OF_LAYOUT: tuple[Callable[[Numbers], Iterator[Finding]], ...] = (
    world.unread,
    world.sharding,
    order.differs,
    order.seeds,
    communicators.too_many,
)
_OF_CLUSTER: tuple[Callable[[Numbers, Cluster], Iterator[Finding]], ...] = (
    nodes.devices,
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
    found = [_proven(finding, numbers) for finding in _all_of(numbers)]
    found += [_spelled(finding, numbers) for check in _OF_LAYOUT for finding in check(numbers)]
    if cluster is not None:
        found += [_spelled(finding, numbers) for check in _OF_CLUSTER for finding in check(numbers, cluster)]
    return sorted(found, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.code))


def check_refusal(error: WorldSizeError | DegreeError | ArgumentsError, numbers: Numbers | None = None) -> Finding:
    """The finding for what a reader refused, its changes spelled as the source would.  Cost: O(axes)."""
    if isinstance(error, ArgumentsError):
        return world.contradiction(error)
    finding = world.product(error) if isinstance(error, WorldSizeError) else world.degree(error)
    if numbers is None:
        return finding.with_fixes(fix for fix in finding.fixes if fix.lines)
    if numbers.format.partition("-")[0] in KEYS and isinstance(error, WorldSizeError):
        # What stays as it is need not be pasted, and the open size follows by itself.
        open_axis = finding.numbers["axis"] if finding.code == "RA102" else None
        stays = {**finding.numbers["sizes"], open_axis: None}
        changed = [
            {name: size for name, size in fix.changes.items() if name not in stays or stays[name] not in (size, None)}
            for fix in finding.fixes
        ]
        finding = finding.with_fixes(Fix(changes) for changes in changed if changes)
    return _spelled(finding, numbers)


def _all_of(numbers: Numbers) -> Iterator[Finding]:
    for check in _OF_NUMBERS:
        yield from check(numbers)


def _proven(finding: Finding, numbers: Numbers) -> Finding:
    """The finding with the changes that make it go away and bring no error; where none does both, the first half."""
    before = [other.code for other in _all_of(numbers) if other.severity == "error"]
    clean, fair = [], []
    for fix in finding.fixes:
        after = list(_all_of(numbers.changed(fix.changes)))
        if finding.code in [other.code for other in after]:
            continue
        fair.append(fix)
        if all(other.severity != "error" or other.code in before for other in after):
            clean.append(fix)
    return _spelled(finding.with_fixes(clean or fair), numbers)


def _spelled(finding: Finding, numbers: Numbers) -> Finding:
    """The finding with its changes as lines of the dialect; changes that cannot be said there are left out."""
    fixes = [
        Fix(fix.changes, fix.lines or lines(numbers, fix.changes), instead_of(numbers, fix.changes))
        for fix in finding.fixes
    ]
    return finding.with_fixes(fix for fix in fixes if fix.lines)
