"""The Trainers of PaddleNLP and PaddleFormers: the moment at which their groups are there.

Their training arguments call `fleet.init` while they are made, so there is no moment of a callback before the groups.
What the arguments say is agreed on when the trainer is made, before anything uses a group.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


class _Hooks:
    """The hook, for whichever TrainerCallback; `watch` does what there is to do."""

    package = ""

    def __init__(self, watch: Any) -> None:
        self.watch = watch

    def __reduce__(self) -> tuple[Any, ...]:
        return callback, (self.watch, self.package)

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer is made, and with its arguments the groups; no step has been taken."""
        if args.world_size > 1:
            self.watch.agree("paddle", args)
            self.watch.look("paddle")


@cache
def _callback_class(package: str) -> type[Any]:
    """The hook as a TrainerCallback of `package`."""
    bases = (_Hooks, import_module(package).TrainerCallback)
    return type("LayoutCallback", bases, {"__module__": __name__, "package": package})


def callback(watch: Any, package: str) -> Any:
    """A TrainerCallback of `package` that tells `watch` when to agree and to look."""
    return _callback_class(package)(watch)
