"""One line in a trainer: agree when it is set up, record and verify when training begins.

A trainer calls its callbacks at moments of its own; `Watch` knows what to do at each, a framework's adapter which
moment is which.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

from rankatlas.core import Atlas, Mesh
from rankatlas.creation import CreationPlan
from rankatlas.errors import JobError, shown
from rankatlas.live.agree import Agreement, agree
from rankatlas.live.jobs import expected_given
from rankatlas.live.record import record
from rankatlas.records.check import check_record
from rankatlas.records.record import LayoutRecord

# Trainer, by the module people import → the adapter with its callback.
_ADAPTERS = MappingProxyType(
    {
        "lightning.pytorch": "rankatlas.adapters.lightning",
        "pytorch_lightning": "rankatlas.adapters.lightning",
        "paddleformers.trainer": "rankatlas.adapters.paddle_trainer",
        "paddlenlp.trainer": "rankatlas.adapters.paddle_trainer",
    }
)


class Watch:
    """What a callback does; `agreement` and `record` are what came of it, None before."""

    def __init__(
        self,
        layout: object,
        expect: Mesh | Atlas | CreationPlan | str | None,
        axes: Sequence[str],
        path: str | os.PathLike[str] | None,
        extra: dict[str, Any] | None,
        timeout: float,
    ) -> None:
        self.layout = layout
        self.expect = expect
        self.axes = tuple(axes)
        self.path = path
        self.extra = extra
        self.timeout = timeout
        self.agreement: Agreement | None = None
        self.record: LayoutRecord | None = None

    def agree(self, engine: str, arguments: object = None) -> None:
        """All ranks are about to build the layout, or what the trainer's own `arguments` say where none was given."""
        layout = arguments if self.layout is None else self.layout
        if layout is not None:
            self.agreement = agree(layout, extra=self.extra, timeout=self.timeout, engine=engine)

    def look(self, engine: str) -> None:
        """The groups are made: write them down, and hold them against the layout they should have."""
        expect = expected_given(self.expect)
        self.record = record(self.path, expect, timeout=self.timeout, engine=engine)
        if expect is not None:
            check_record(self.record, expect, self.axes)


def callback(
    layout: object = None,
    *,
    expect: Mesh | Atlas | CreationPlan | str | None = None,
    axes: Sequence[str] = (),
    path: str | os.PathLike[str] | None = None,
    extra: dict[str, Any] | None = None,
    timeout: float = 60,
    trainer: str | None = None,
) -> Any:
    """A callback for the trainer in use: it agrees on `layout` at setup, and records the groups when training begins.

    With `expect` and `axes` the groups are verified too, with `path` their record is written.  `watch` of the callback
    keeps what came of it (`agreement`, `record`).  In a job of one process it does nothing.  `trainer` is the module
    the trainer comes from ("lightning.pytorch", "pytorch_lightning", "paddleformers.trainer", "paddlenlp.trainer");
    without it, the one that has been imported.  With Paddle's trainers, `layout=None` means their own arguments.

    Raises JobError when no trainer has been imported.  The callback raises as `agree` and `verify` do.

        from rankatlas import live
        Trainer(callbacks=[live.callback("dp=2 tp=2", expect="dp=2 tp=2")])
    """
    found = [trainer] if trainer else [name for name in _ADAPTERS if name in sys.modules]
    if not found or found[0] not in _ADAPTERS:
        known = ", ".join(_ADAPTERS)
        told = f"trainer is one of {known}, not {shown(trainer)}" if trainer else f"import a trainer first: {known}"
        raise JobError(told)
    watch = Watch(layout, expect, axes, path, extra, timeout)
    try:
        return import_module(_ADAPTERS[found[0]]).callback(watch, found[0])
    except ModuleNotFoundError as error:
        raise JobError(f"{found[0]} cannot be imported: {error}") from None
