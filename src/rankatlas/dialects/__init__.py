"""Configuration text in, a `Job` out: one reader per way of writing a layout down."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.dialects.reading import read_config as read_config


def __getattr__(name: str) -> object:
    # Telling notation from a path needs no reader of files, which is slow to load.
    if name == "read_config":
        from rankatlas.dialects.reading import read_config

        return read_config
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
