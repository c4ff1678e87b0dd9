"""Layers against pipeline stages, whole and virtual."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.catalogue import Said, said, sentence_of
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown
from rankatlas.checks.spelling import says_data
from rankatlas.errors import InputError, PipelineSplitError
from rankatlas.pipeline import PipelineSplit, pipeline_split

# These share layers out unevenly by themselves, so that nothing is lost.
_UNEVEN_BY_ITSELF = ("torchtitan", "deepspeed", "accelerate")
_SPLITS = ("megatron", "rankatlas")  # can be told the layers of every stage
_COUNTING = ("embedding-and-loss", "loss", "embedding")
_MOST_STAGES = 1 << 16
_MOST_SHRUNK = 4  # a pipeline shorter by more than this is another job
_SHARED_OTHERWISE = ("noted.picture", "noted.deepspeed_pipeline")  # readers' notes: how, is not known here


def split_of(numbers: Numbers) -> PipelineSplit | None:
    """The split the job asks for, None where layers or stages are not known or share themselves out.

    Raises PipelineSplitError.
    """
    layers, stages = numbers.get("layers"), numbers["pp"]
    unread = any(isinstance(note, Said) and note.code in _SHARED_OTHERWISE for note in numbers.notes)
    alone = stages == 1 and not (ends_given(numbers) and numbers.written("megatron"))
    if layers is None or alone or stages > _MOST_STAGES or unread:
        return None
    virtual = numbers.get("virtual_stages") or 1
    explicit = numbers.value("stage_layers")
    if isinstance(explicit, (list, tuple)):
        return pipeline_split(layers, stages, virtual, explicit=explicit)
    first, last = numbers.get("first_stage_layers"), numbers.get("last_stage_layers")
    if first is not None or last is not None:
        return pipeline_split(layers, stages, virtual, first=first, last=last)
    policy = str(numbers.value("layer_split") or "even")
    if policy == "even" and numbers.format.startswith(_UNEVEN_BY_ITSELF):
        policy = "remainder-first"
    return pipeline_split(layers, stages, virtual, policy)


def split(numbers: Numbers) -> Iterator[Finding]:
    """RA130: layers that do not divide; RA131: sizes somebody gave that do not add up.

    >>> from rankatlas.job import Fact
    >>> found = next(split(Numbers([Fact("layers", 30, "given"), Fact("pp", 4, "given")], format="megatron-0.16")))
    >>> found.numbers["dropped"], found.numbers["offered"]
    (2, [8, 8, 7, 7])
    """
    try:
        split_of(numbers)
    except PipelineSplitError as error:
        yield _finding(numbers, error)
    except InputError as error:  # sizes that are no numbers of layers at all
        yield Finding("RA131", "error", {"detail": sentence_of(error)})


def _finding(numbers: Numbers, error: PipelineSplitError) -> Finding:
    layers, stages, virtual = error.layers, error.stages, error.virtual
    pieces = stages * virtual
    told = any(numbers.value(name) for name in ("stage_layers", "first_stage_layers", "last_stage_layers"))
    counted = 0 if told else _counted(numbers)
    whole = layers + counted
    facts = {
        "layers": layers,
        "whole": f"{layers} + {counted}" if counted else layers,
        "stages": stages,
        "virtual": virtual,
        "pieces": pieces,
        "each": whole // pieces,
        "kept": whole - whole % pieces,
        "dropped": whole % pieces,
        "offered": error.offered_split or [],
        "legal": [size for size in divisors_shown(whole) if whole % (size * virtual) == 0 and size * virtual <= layers],
        "detail": sentence_of(error),
    }
    return Finding("RA131" if told else "RA130", "error", facts, _fixes(numbers, error))


def _counted(numbers: Numbers) -> int:
    """How many layers the ends count as, beside those of the model."""
    policy = str(numbers.value("layer_split"))
    return 1 + policy.count("-and-") if policy in _COUNTING else 0


def _fixes(numbers: Numbers, error: PipelineSplitError) -> list[Fix]:
    layers, stages, virtual = error.layers, error.stages, error.virtual
    fixes = []
    splits = numbers.format.startswith(_SPLITS)
    if error.offered_chunks and splits:
        fixes.append(Fix({"stage_layers": error.offered_chunks}))
    ends = _ends(layers, stages, virtual)
    if ends and splits and numbers.value("stage_layers") is None:
        if numbers.value("virtual_stage_layers") is not None:  # which excludes ends of their own
            ends["virtual_stages"] = virtual
        fixes.append(Fix(ends))
    if numbers.written("megatron") and not ends_given(numbers):
        for policy in _COUNTING[:2]:
            if (layers + policy.count("-and-") + 1) % (stages * virtual) == 0:
                fixes.append(Fix({"layer_split": policy}))
    told = ends_given(numbers) or numbers.value("stage_layers") is not None
    whole = layers + _counted(numbers)
    rest = numbers["dp"] * stages  # what the data axes and the pipeline have together
    legal = [size for size in divisors_shown(whole // virtual) if whole % (size * virtual) == 0 and rest % size == 0]
    near = [size for size in legal if stages <= _MOST_SHRUNK * size < _MOST_SHRUNK * stages]
    for size in near[-1:] if not told else []:
        fixes.append(Fix({"pp": size, "dp": rest // size} if says_data(numbers) else {"pp": size}))
    if virtual > 1 and whole % stages == 0:
        fitting = [size for size in divisors_shown(whole // stages) if size < virtual]
        fixes += [Fix({"virtual_stages": size}) for size in fitting[-1:]]
    return fixes


def ends_given(numbers: Numbers) -> bool:
    """Whether the first or last stage has a number of layers of its own."""
    return any(numbers.value(f"{end}_stage_layers") for end in ("first", "last"))


def _ends(layers: int, stages: int, virtual: int) -> dict[str, int]:
    """Layers for the first and the last stage, as even as they can be, the stages between sharing the rest evenly."""
    if stages == 2:
        first = -(-layers // 2)
        fits = all(size % virtual == 0 for size in (first, layers - first))
        return {"first_stage_layers": first} if fits and first < layers else {}
    for middle in (-(-layers // stages), layers // stages):
        rest = layers - middle * (stages - 2)
        first = -(-rest // 2)
        last = rest - first
        if last > 0 and middle > 0 and all(size % virtual == 0 for size in (first, middle, last)):
            return {"first_stage_layers": first, "last_stage_layers": last}
    return {}


def virtual_by_length(numbers: Numbers) -> Iterator[Finding]:
    """RA134: virtual stages that are told by their length, which does not divide the layers of a stage.

    Source: validate_args in megatron/training/arguments.py (0.16).

    >>> from rankatlas.job import Fact
    >>> given = {"layers": 32, "pp": 4, "virtual_stage_layers": 3}
    >>> next(virtual_by_length(Numbers(Fact(name, size, "given") for name, size in given.items()))).numbers["legal"]
    [1, 2, 4, 8]
    """
    layers, stages, size = numbers.get("layers"), numbers["pp"], numbers.get("virtual_stage_layers")
    if layers is None or size is None or stages == 1 or ends_given(numbers):
        return
    counted = _counted(numbers)
    each, rest = divmod(layers + counted, stages)
    if rest or each % size == 0:  # RA130 is about the rest
        return
    legal = divisors_shown(each)
    facts = {
        "each": each,
        "whole": f"{layers} + {counted}" if counted else layers,
        "stages": stages,
        "size": size,
        "remainder": each % size,
        "legal": legal,
    }
    below, above = ([one for one in legal if (one < size) is less] for less in (True, False))
    yield Finding("RA134", "error", facts, [Fix({"virtual_stage_layers": one}) for one in (*below[-1:], *above[:1])])


def virtual_alone(numbers: Numbers) -> Iterator[Finding]:
    """RA135: virtual stages without a pipeline, which Megatron refuses.

    Source: validate_args in megatron/training/arguments.py (0.16).
    """
    virtual = numbers.get("virtual_stages") or 1
    if virtual > 1 and numbers["pp"] == 1 and numbers.written("megatron"):
        yield Finding("RA135", "error", {"virtual": virtual}, [Fix({"virtual_stages": 1})])


def interleaving(numbers: Numbers) -> Iterator[Finding]:
    """RA132: with virtual stages, micro-batches that leave a round with fewer of them than there are stages.

    A round is as long as there are stages, or as `microbatch_group` says.  Source:
    `forward_backward_pipelining_with_interleaving` in megatron/core/pipeline_parallel/schedules.py (0.16).

    >>> from rankatlas.job import Fact
    >>> given = {"pp": 4, "virtual_stages": 2, "accumulation": 11, "microbatch_group": 6}
    >>> [finding.code for finding in interleaving(Numbers(Fact(name, size, "given") for name, size in given.items()))]
    []
    """
    virtual, stages = numbers.get("virtual_stages") or 1, numbers["pp"]
    micro_batches, group = _micro_batches(numbers), numbers.get("microbatch_group") or stages
    if virtual == 1 or stages == 1 or micro_batches is None or _fills(micro_batches, group, stages):
        return
    batch, each = numbers.get("global_batch"), (numbers.get("micro_batch") or 1) * numbers["dp"]
    near = _filling(micro_batches, group, stages)
    steps = batch is None or (numbers.get("accumulation") is not None and not numbers.computed("accumulation"))
    facts = {
        "micro_batches": micro_batches,
        "stages": stages,
        "group": group,
        "remainder": micro_batches % group,
        "legal": near if steps else [size * each for size in near],
        "what": said("batch.steps" if steps else "batch.whole"),
    }
    fixes = [Fix({"accumulation": size} if steps else {"global_batch": size * each}) for size in near]
    if group != stages:
        fixes.append(Fix({"microbatch_group": stages}))
    fixes.append(Fix({"virtual_stages": 1}))
    severity = "error" if numbers.format.startswith(("megatron", "paddle")) else "warning"
    yield Finding("RA132", severity, facts, fixes)


def _fills(micro_batches: int, group: int, stages: int) -> bool:
    rest = micro_batches % group
    return stages <= group <= micro_batches and (rest == 0 or rest >= stages)


def _filling(micro_batches: int, group: int, stages: int) -> list[int]:
    """The numbers of micro-batches next below and above that fill their rounds."""
    if group < stages:
        return []
    whole, rest = divmod(micro_batches, group)
    below = whole * group
    above = below + (stages if whole and rest < stages else group)
    return [size for size in (below, above) if size > 0]


def few_micro_batches(numbers: Numbers) -> Iterator[Finding]:
    """RA133: fewer micro-batches than stages, so that some stage always waits."""
    stages, micro_batches = numbers["pp"], _micro_batches(numbers)
    if stages > 1 and micro_batches is not None and 0 < micro_batches < stages:
        idle = round(100 * (stages - 1) / (micro_batches + stages - 1))
        yield Finding("RA133", "note", {"micro_batches": micro_batches, "stages": stages, "idle": idle})


def cut_micro_batches(numbers: Numbers) -> Iterator[Finding]:
    """RA136: a local batch that torchtitan cannot cut into the micro-batches of its pipeline.

    Source: `__post_init__` of the configuration in torchtitan/trainer.py (0.3).

    >>> from rankatlas.job import Fact
    >>> facts = [Fact("pp", 2, "given"), Fact("micro_batch", 8, "given"), Fact("stage_micro_batch", 3, "given")]
    >>> next(cut_micro_batches(Numbers(facts, format="torchtitan-0.3"))).numbers["legal"]
    [1, 2, 4, 8]
    """
    batch, size = numbers.get("micro_batch"), numbers.get("stage_micro_batch")
    if batch is None or size is None or numbers["pp"] == 1 or batch % size == 0:
        return
    legal = divisors_shown(batch)
    near = [one for one in legal if one < size][-1:]
    facts = {"micro_batch": batch, "size": size, "remainder": batch % size, "legal": legal}
    fixes = [Fix({"stage_micro_batch": one}) for one in near]
    yield Finding("RA136", "error", facts, [*fixes, Fix({"micro_batch": -(-batch // size) * size})])


def _micro_batches(numbers: Numbers) -> int | None:
    """The micro-batches of a step: those given, whatever a global batch beside them makes (RA150 is about it)."""
    if numbers.written("torchtitan"):  # which cuts the local batch, and accumulates around it
        batch, size = numbers.get("micro_batch"), numbers.get("stage_micro_batch") or 1
        return batch // size if batch is not None and batch % size == 0 else None
    if numbers.get("accumulation") is not None:
        return numbers.get("accumulation")
    batch, micro = numbers.get("global_batch"), numbers.get("micro_batch")
    if batch is not None and micro is not None:
        each = micro * numbers["dp"]
        return batch // each if batch % each == 0 else None
    return None
