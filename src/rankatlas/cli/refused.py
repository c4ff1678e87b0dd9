"""The page about sizes that make no layout: what can be said without one, and the sizes that would."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from rankatlas.catalogue import Said, said
from rankatlas.checks import Finding, check_numbers, check_refusal
from rankatlas.checks.finding import explaining_first
from rankatlas.checks.keys import KEYS
from rankatlas.checks.numbers import ROLES, Numbers
from rankatlas.checks.world import other_world
from rankatlas.cli.common import kept_sources, read, sets_given
from rankatlas.errors import ArgumentsError, DegreeError, RankatlasError, WorldSizeError
from rankatlas.job import Fact, Job, Offer
from rankatlas.views.report import report

# What a look at another world than the one asked for can still say: it depends on no data size.
_OF_ANY_WORLD = ("RA103", "RA104", "RA105", "RA106", "RA12", "RA130", "RA131", "RA14", "RA18")
# What a message says that is about our reading: another format, or a layout no mesh can show.
_OURS = ("--from", "describe the job as", "no axis of one mesh", "later releases give")
_OF_A_LAYOUT = ("inferred from world", "data size", "batch mesh")  # origins of what only a layout has
_OF_THE_HELP = ("world.other", "noted.etp")  # notes on the world that a source was read for
_SIZES = ("world", "dp", "pp", "tp", "cp", "sep", "ep", "etp", "rollout_tp")
_REPLACED = ("ep", "etp", "rollout_tp", "sp")
_KEY = MappingProxyType({"sp": "sep"})  # a size's name in a chart → the name of its key
_MOST_ERRORS = 8  # sizes of one source that do not divide
_LAID_OVER = ("ep", "rollout_tp")  # sizes over ranks that the layout has without them


class Reading(NamedTuple):
    """How a source is read: the `format` asked for, the world size given and the one that is only offered."""

    format: str | None
    world_size: int | None
    offered: Offer | None = None


def refused(
    error: WorldSizeError | DegreeError | ArgumentsError,
    words: tuple[str, ...],
    how: Reading,
    extra: list[Fact],
    lang: str,
) -> dict[str, Any]:
    """The facts of the page.  Raises ArgumentsError again where it is about rankatlas and not about the launch."""
    if isinstance(error, ArgumentsError):
        if not error.names or any(words in str(error) for words in _OURS):
            raise error
        numbers = Numbers([], format=_dialect(error, how, "training arguments"), source=" ".join(words))
        return report(numbers, [check_refusal(error)], None, lang)
    sizes = dict(error.factors) if isinstance(error, WorldSizeError) else {error.name: error.size}
    for name in _LAID_OVER:
        if name in sizes:
            job = _with({name: 1}, words, how)
            if job is None and name == "ep":  # their tensor size may not fit either
                job = _with({"ep": 1, "etp": 1}, words, how)
            if job is not None:
                return _laid_over(job, sizes, [error], extra, lang)
    if isinstance(error, DegreeError):
        job, errors = _without(error, words, how)
        if job is not None:
            return _laid_over(job, {one.name: one.size for one in errors}, errors, extra, lang)
    job = _at_another_world(error, words, how.format) if isinstance(error, WorldSizeError) else None
    if job is None:
        told = _format_without(sizes, words, how) or _dialect(error, how, "notation")
        return report(Numbers([], format=told, source=" ".join(words)), [check_refusal(error)], None, lang)
    numbers = Numbers.of(job, extra)
    others = [finding for finding in check_numbers(numbers) if finding.code.startswith(_OF_ANY_WORLD)]
    mine = check_refusal(error, numbers, others)
    asked = how.world_size
    if asked is not None:  # which the source may contradict; the world it was read for is only ours
        itself = _said_itself(job, words, how.format)
        others += [other_world(note, asked) for note in itself if note.numbers["found"] != asked]
    facts = report(numbers, explaining_first([mine, *map(_without_sizes, others)]), None, lang)
    world = error.world_size if isinstance(error, WorldSizeError) else how.world_size
    known = [row for row in facts["understood"] if sizes.get(row["name"], row["value"]) == row["value"]]
    known = [row for row in known if not any(words in str(row["origin"]) for words in _OF_A_LAYOUT)]
    return _without_layout(facts, known, world)


def _laid_over(
    job: Job, sizes: dict[str, int], errors: Sequence[WorldSizeError | DegreeError], extra: list[Fact], lang: str
) -> dict[str, Any]:
    """The page of the job without the sizes that do not fit, and what is wrong with each of them."""
    numbers = Numbers.of(job, extra)
    origins = {name: _origin(errors, name) for name in sizes}
    for name in ("ep", "etp", "rollout_tp"):
        if name in sizes:
            numbers.facts[name] = Fact(name, sizes[name], origins[name])
    findings = check_numbers(numbers)
    if not any(finding.code in ("RA110", "RA111", "RA160") for finding in findings):
        findings.insert(0, check_refusal(errors[0], numbers))
    findings[:0] = [check_refusal(error, numbers) for error in errors[1:]]
    facts = report(numbers, explaining_first(findings), None, lang)
    rows = []
    left = {name: size for name, size in sizes.items() if name in _REPLACED}
    for row in facts["understood"]:
        axis = row["name"].rpartition(".")[2]
        if axis in left:
            rows.append({**row, "value": left.pop(axis), "origin": origins[axis]})
        elif axis not in ("edp", "efsdp", "expert_data", "moe_sharding") and not row["name"].startswith("rollout."):
            rows.append(row)
    if "sp" in left:  # an axis that is not there where its size is 1
        rows.append({"name": "sp", "value": left["sp"], "origin": origins["sp"]})
    return _without_layout(facts, rows, numbers["world"])


def _without(error: DegreeError, words: tuple[str, ...], how: Reading) -> tuple[Job | None, list[DegreeError]]:
    """The job with every size that does not divide its ranks set to 1, and the errors about them, one hiding the next.

    No job where something else is refused as well, or a size is not known by a key.
    """
    errors = [error]
    for _ in range(_MOST_ERRORS):
        found = _read_with({_KEY.get(one.name, one.name): 1 for one in errors}, words, how)
        if not isinstance(found, DegreeError):
            return found, errors
        errors.append(found)
    return None, errors


def _without_layout(facts: dict[str, Any], rows: list[dict[str, Any]], world: int | None) -> dict[str, Any]:
    """The page without what belongs to the layout that was only a help, such as a note on its world."""
    notes = [note for note in facts["notes"] if not (isinstance(note, Said) and note.code in _OF_THE_HELP)]
    return {
        **facts,
        "notation": None,
        "world_size": world,
        "order": {},
        "understood": rows,
        "notes": notes,
    }


def _dialect(error: RankatlasError, how: Reading, otherwise: str) -> str:
    """Whose words a source is in that was refused."""
    return how.format or str(getattr(error, "dialect", otherwise))


def _origin(errors: Sequence[RankatlasError], name: str) -> str:
    for error in errors:
        origins: dict[str, str] = getattr(error, "origins", {})
        if name in origins:
            return origins[name]
    return said("given.plain")


def _without_sizes(finding: Finding) -> Finding:
    """A finding without changes of axes, which were tried at a world that is not the one asked for."""
    if finding.code == "RA100":
        return finding
    return finding.with_fixes(fix for fix in finding.fixes if not any(name in _SIZES for name in fix.changes))


def _said_itself(job: Job, words: tuple[str, ...], format: str | None) -> list[Said]:
    """The notes in which a source says its own world; it says none where it was read for just that one."""
    for _ in range(2):
        notes = [note for note in job.notes if isinstance(note, Said) and note.code == "world.other"]
        if notes:
            return notes
        try:
            job = read(words, format, 2 * job.layout.world_size)
        except RankatlasError:
            break
    return []


def _at_another_world(error: WorldSizeError, words: tuple[str, ...], format: str | None) -> Job | None:
    """The job at a world its sizes do fit, to know its format, its settings and its order."""
    for world in error.nearest_worlds:
        try:
            return read(words, format, world)
        except RankatlasError:
            continue
    return None


def _format_without(sizes: dict[str, int], words: tuple[str, ...], how: Reading) -> str | None:
    """The format of a source whose largest size no world has, None where it cannot be read without that either."""
    largest = max(sizes, key=lambda name: sizes[name], default="")
    role = next((role for role, names in ROLES.items() if largest in names), largest)
    job = _with({role: 1}, words, how._replace(format=None))
    return None if job is None else job.format


def _with(sizes: dict[str, int], words: tuple[str, ...], how: Reading) -> Job | None:
    """The job with these sizes set as its dialect spells them, None where no dialect can read it so."""
    found = _read_with(sizes, words, how)
    return found if isinstance(found, Job) else None


def _read_with(sizes: dict[str, int], words: tuple[str, ...], how: Reading) -> Job | DegreeError | None:
    """The same, or the error about a further size where there is one."""
    if len(words) != 1:
        return None
    from rankatlas.dialects import read_config

    further = None
    for keys in KEYS.values():
        if any(name not in keys for name in sizes):
            continue
        try:
            sets = {**sets_given(), **{keys[name].replace("-", "_"): str(size) for name, size in sizes.items()}}
            return read_config(
                words[0],
                how.format,
                world_size=how.world_size,
                sets=sets,
                offered=how.offered,
                kept=kept_sources(),
            )
        except DegreeError as error:
            if _KEY.get(error.name, error.name) not in sizes:
                further = error
        except RankatlasError:
            continue
    return further
