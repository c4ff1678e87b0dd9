"""All ranks before an audit: what one of them refuses is an error on all, and all are about to compare the same way."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar

from rankatlas.audit.engine import ReadsTensors, signed
from rankatlas.audit.report import Finding
from rankatlas.errors import HandleError, InputError, JobError, RankatlasError, shown

_T = TypeVar("_T")
_MOST_TOLD = 64  # findings of a rank that the others hear of
_LONGEST = 400  # characters of a refusal
_SHOWN = 8


def together(
    reader: ReadsTensors,
    handles: Any,
    what: str,
    prepare: Callable[[], _T],
    alike: Callable[[_T], str] = lambda prepared: "",
) -> _T:
    """What `prepare` returns, once it has on every rank; `alike` says what of it must be the same on all.

    A refusal is exchanged before anything else, for ranks that go on alone would wait for ever.  Cost: one all-gather
    of two numbers over all ranks.  Raises what `prepare` raises, InputError where the ranks audit different things or
    over different groups; on the other ranks the refusal, with the rank it comes from.
    """
    refusal: RankatlasError | None = None
    prepared: list[_T] = []
    try:
        prepared.append(prepare())
    except RankatlasError as error:
        refusal = error
    except Exception as error:  # of a framework, about a tensor that has no bytes, or of what tensors are taken from
        told = shown(str(error)) if str(error) else "no message"
        refusal = InputError(f"this cannot be audited: {type(error).__name__}: {told}; leave it out, or make it dense")
        refusal.__cause__ = error
    plan = getattr(handles, "plan", None)
    also = alike(prepared[0]) if prepared else ""
    way = f"{what}{also}, {f'over the groups of plan {plan.fingerprint()[:16]}' if plan else 'over all ranks'}"
    mode = signed(blake2b(way.encode(), digest_size=8).digest())
    heads = reader.gather(reader.world(), [int(refusal is not None), mode])
    if any(head[0] for head in heads):
        said = texts(reader, reader.world(), f"{type(refusal).__name__}\n{refusal}"[:_LONGEST] if refusal else "")
        raise refusal or _elsewhere(said)
    if len(dict.fromkeys(head[1] for head in heads)) > 1:
        said = texts(reader, reader.world(), way)
        raise InputError(
            f"ranks audit differently: {_camps(said)}; let all call the same audit, all with handles of one plan or all"
            " without"
        )
    return prepared[0]


def _elsewhere(said: list[str]) -> RankatlasError:
    rank = next(rank for rank, text in enumerate(said) if text)
    many = sum(1 for text in said if text)
    name, _, message = said[rank].partition("\n")
    more = f" (and {many - 1} more ranks)" if many > 1 else ""
    told = f"rank {rank}{more} cannot be audited, so nobody is: {message}"
    if name == "HandleError":
        return HandleError(told, name=None, known=())
    return (JobError if name == "JobError" else InputError)(told)


def _camps(said: list[str]) -> str:
    camps: dict[str, list[int]] = {}
    for rank, text in enumerate(said):
        camps.setdefault(text, []).append(rank)
    return "; ".join(f"ranks {shown(ranks)}: {text}" for text, ranks in list(camps.items())[:_SHOWN])


def texts(reader: ReadsTensors, communicator: Any, text: str) -> list[str]:
    """What every member says, in the order of the group, as integers of eight bytes."""
    said = text.encode(errors="surrogatepass")
    sizes = [row[0] for row in reader.gather(communicator, [len(said)])]
    words = -(-max(sizes) // 8)
    if not words:
        return [""] * len(sizes)
    padded = said.ljust(words * 8, b"\0")
    numbers = [int.from_bytes(padded[at : at + 8], "little", signed=True) for at in range(0, len(padded), 8)]
    rows = reader.gather(communicator, numbers)
    packed = [b"".join(number.to_bytes(8, "little", signed=True) for number in row) for row in rows]
    return [one[:size].decode(errors="surrogatepass") for one, size in zip(packed, sizes)]


def told_to_all(reader: ReadsTensors, communicator: Any, mine: list[Finding]) -> list[Finding]:
    """These findings and those of the other members: who lacks a thing does not know what it is called."""
    text = json.dumps([finding.to_dict() for finding in mine[:_MOST_TOLD]]) if mine else ""
    merged = {_same(finding): finding for finding in mine}
    for said in texts(reader, communicator, text):
        for facts in json.loads(said) if said else ():
            facts["axes"] = tuple(facts["axes"])
            finding = Finding(**facts)
            merged.setdefault(_same(finding), finding)
    return list(merged.values())


def _same(finding: Finding) -> tuple[Any, ...]:
    return finding.kind, finding.name, finding.axes, tuple(finding.ranks), tuple(finding.odd_ranks)
