"""The dialects there are: whose words they read, how one is named, and which one a source is written in."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from rankatlas.dialects.given import Given
from rankatlas.errors import RankatlasError, SourceError, shown
from rankatlas.job import Job

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "rankatlas.dialects"  # entry points of third parties


class Dialect(Protocol):
    """A module, or anything with these names, that reads one framework's words.

    `LAYOUT` are the names whose values decide groups, so that one whose value is not known stops the reading;
    `evidence` says how much speaks for this dialect: 0 nothing, 1 names it shares with others, 2 names of its own.
    """

    LAYOUT: tuple[str, ...]

    def evidence(self, given: Given) -> int:
        """How much in `given` speaks for this dialect."""

    def read(self, given: Given, release: str | None, world_size: int | None) -> Job:
        """The job that `given` describes; `release` is None where the content has to tell.  Raises RankatlasError."""


# Name → its module.
_BUILT_IN = MappingProxyType(
    {
        "megatron": "rankatlas.dialects.megatron",
        "paddle": "rankatlas.dialects.paddle",
        "deepspeed": "rankatlas.dialects.deepspeed",
        "torchtitan": "rankatlas.dialects.torchtitan",
        "accelerate": "rankatlas.dialects.accelerate",
        "verl": "rankatlas.dialects.verl",
        "nemo-rl": "rankatlas.dialects.nemo_rl",
    }
)
_LAUNCHERS = ("nproc_per_node", "nnodes")
# What `--from` takes → what it means.
FORMATS = MappingProxyType(
    {
        "notation": "text such as 'pp=4 dp=2 tp=8'",
        "rankatlas": "a stored layout or record as JSON, or a job in rankatlas's own YAML or JSON",
        "megatron": "arguments of Megatron-LM: a log, a command line, a script, YAML of Megatron-Bridge or NeMo",
        "paddlenlp-2.8": "training arguments of PaddleNLP, or the short degrees",
        "paddleformers-1.2": "training arguments of PaddleFormers",
        "paddle-fleet": "hybrid_configs of Paddle's fleet",
        "deepspeed": "a DeepSpeed configuration, or the log of its engine",
        "torchtitan": "what torchtitan's configuration manager prints, or its older TOML",
        "accelerate": "a configuration of accelerate, or a ParallelismConfig",
        "verl": "a resolved configuration of verl",
        "nemo-rl": "a resolved configuration of NeMo-RL",
    }
)
# Other ways to write them: name → (dialect, release).
_SAME = MappingProxyType(
    {
        "paddlenlp-2.8": ("paddle", "paddlenlp-2.8"),
        "paddlenlp": ("paddle", "paddlenlp-2.8"),
        "paddleformers-1.2": ("paddle", "paddleformers-1.2"),
        "paddleformers": ("paddle", "paddleformers-1.2"),
        "paddle-fleet": ("paddle", "fleet"),
    }
)
_RELEASES = MappingProxyType(
    {
        "megatron": ("0.16", "head"),
        "paddlenlp": ("2.8",),
        "paddleformers": ("1.2",),
        "deepspeed": ("0.19",),
        "torchtitan": ("0.3", "toml"),
        "accelerate": ("1.15",),
        "verl": ("0.9",),
        "nemo-rl": ("head",),
    }
)


def named(format: str, source: str) -> tuple[str, str | None]:
    """The dialect and the release that NAME[@release] means.  Raises SourceError.

    >>> named("paddleformers@1.2", ""), named("megatron", ""), named("megatron@head", "")
    (('paddle', 'paddleformers-1.2'), ('megatron', None), ('megatron', 'head'))
    """
    name, at, release = format.partition("@")
    if at and release not in _RELEASES.get(name, (release,)):
        raise SourceError(
            f"no release {shown(release)} of {name} is known; the releases are {', '.join(_RELEASES[name])}",
            source=source,
        )
    if name in _SAME:
        return _SAME[name]
    if name in FORMATS or name in _BUILT_IN or any(name == other for other, _ in _third_parties()):
        return name, release or None
    known = ", ".join((*FORMATS, *(other for other, _ in _third_parties())))
    raise SourceError(f"no format {shown(format)}; the formats are {known}", source=source)


def dialect(name: str) -> Dialect:
    """The dialect of that name, its module loaded now.  Raises SourceError when a third party's cannot be."""
    if name in _BUILT_IN:
        return cast(Dialect, import_module(_BUILT_IN[name]))
    load = dict(_third_parties())[name]
    try:
        found = load.load()
    except Exception as error:  # whatever a stranger's module does when imported
        raise SourceError(
            f"the dialect {name} cannot be loaded: {type(error).__name__}: {error}", source=name
        ) from error
    lacks = [part for part in ("LAYOUT", "evidence", "read") if not hasattr(found, part)]
    if lacks:
        raise SourceError(f"the dialect {name} has no {', '.join(lacks)}", source=name)
    return cast(Dialect, found)


def size_names() -> Iterator[str]:
    """The names that decide groups in any dialect of ours, without those a launcher has."""
    for name in _BUILT_IN:
        yield from (path for path in dialect(name).LAYOUT if path not in _LAUNCHERS)


def _third_parties() -> Iterator[tuple[str, EntryPoint]]:
    """Name and entry point of every dialect that others installed; ours cannot be replaced."""
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name not in FORMATS and point.name not in _BUILT_IN:
            yield point.name, point


def detect(given: Given, world_size: int | None) -> str | None:
    """The dialect that `given` is written in, None where nothing speaks for any.

    Raises SourceError when it may be two: the message shows what each would mean.
    """
    if given.dialect is not None:
        return given.dialect
    weights = {name: dialect(name).evidence(given) for name in _BUILT_IN}
    if max(weights.values()) < 2:
        weights.update({name: dialect(name).evidence(given) for name, _ in _third_parties()})
    most = max(weights.values())
    found = [name for name, weight in weights.items() if weight == most > 0]
    if len(found) > 1:
        raise SourceError(_both(given, found, world_size), source=given.source)
    return found[0] if found else None


def _both(given: Given, names: list[str], world_size: int | None) -> str:
    """What a source would mean to each of several dialects."""
    meant = []
    for name in names:
        release = "paddleformers-1.2" if name == "paddle" else None
        label = release or name
        try:
            job = dialect(name).read(given.afresh(), release, world_size)
            meant.append(f"--from {label}: {job.layout} (outer → inner)")
        except RankatlasError as error:
            meant.append(f"--from {label}: {str(error).splitlines()[0]}")
    labels = [{"paddle": "PaddleFormers", "megatron": "Megatron"}.get(name, name) for name in names]
    return "\n".join([f"{shown(given.source)} may be written for {' or '.join(labels)}; say which:", *meant])
