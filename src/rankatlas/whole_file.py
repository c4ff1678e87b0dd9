"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from rankatlas.errors import SourceError, shown

# What schedulers send before they kill: without a handler the draft would stay behind.
_ENDINGS = ("SIGTERM", "SIGHUP")


@contextmanager
def whole_file(path: str | os.PathLike[str], *, binary: bool = False) -> Iterator[IO[Any]]:
    """A file that takes the place of `path` when the block ends well, and leaves it untouched otherwise.

    A link keeps being one, an existing file keeps its mode, and a device or pipe (`/dev/stdout`) is written to as it
    is.  A request to end the process (SIGTERM, SIGHUP) ends the block first.  Text that UTF-8 cannot hold is escaped.
    Raises SourceError when it cannot be written.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "ranks")
    >>> with whole_file(path) as out:
    ...     _ = out.write("0\\n")
    >>> os.listdir(os.path.dirname(path))
    ['ranks']
    """
    try:
        target = os.path.realpath(os.fspath(path))
        options = {} if binary else {"encoding": "utf-8", "errors": "backslashreplace", "newline": "\n"}
        if os.path.isdir(target) or not os.path.basename(target):
            raise SourceError(f"cannot write {shown(path)}: it is a directory", source=str(path))
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb" if binary else "w", **options) as out:  # type: ignore[call-overload]
                yield out
            return
        handle, draft = tempfile.mkstemp(dir=os.path.dirname(target), prefix=f".{os.path.basename(target)[:40]}-")
    except (OSError, TypeError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        why = getattr(error, "strerror", None) or error
        raise SourceError(f"cannot write {shown(path)}: {why}", source=str(path)) from None
    try:
        with _ended_by_signals():
            with os.fdopen(handle, "wb" if binary else "w", **options) as out:  # type: ignore[call-overload]
                yield out
            os.chmod(draft, _mode(target))
            os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn requests to end the process into SystemExit while the block runs, where nobody else handles them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for name in _ENDINGS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _mode(target: str) -> int:
    """The permissions the file has, or those a new one would get."""
    if os.path.exists(target):
        return os.stat(target).st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
