"""Lightning's Trainer: the moments at which a layout is agreed on, and at which its groups are there.

`lightning` and `pytorch_lightning` are one code under two names, each with a Callback of its own.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


class _Hooks:
    """The hooks, for whichever Callback; `watch` does what there is to do."""

    package = ""

    def __init__(self, watch: Any) -> None:
        self.watch = watch

    def __reduce__(self) -> tuple[Any, ...]:
        return callback, (self.watch, self.package)  # strategies that spawn processes send it to them

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The default group is there, the model is not configured yet."""
        if trainer.world_size > 1:
            self.watch.agree("torch")

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """The strategy has set up the model, with the groups it needs; no step has been taken."""
        if trainer.world_size > 1:
            self.watch.look("torch")


@cache
def _callback_class(package: str) -> type[Any]:
    """The hooks as a Callback of `package`."""
    bases = (_Hooks, import_module(package).Callback)
    return type("LayoutCallback", bases, {"__module__": __name__, "package": package})


def callback(watch: Any, package: str) -> Any:
    """A Callback of `package` that tells `watch` when to agree and when to look."""
    return _callback_class(package)(watch)
