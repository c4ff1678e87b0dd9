"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rankatlas.errors import SourceError, shown


@contextmanager
def whole_file(path: str) -> Iterator[IO[str]]:
    """A text file that takes the place of `path` when the block ends well, and leaves it untouched otherwise.

    A device or pipe (`/dev/stdout`) is written to as it is.  Raises SourceError when it cannot be written.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "ranks")
    >>> with whole_file(path) as out:
    ...     _ = out.write("0\\n")
    >>> os.listdir(os.path.dirname(path))
    ['ranks']
    """
    target = os.path.realpath(path)  # a link keeps being one
    if os.path.isdir(target):
        raise SourceError(f"cannot write {shown(path)}: it is a directory", source=path)
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "w", encoding="utf-8") as out:
            yield out
        return
    try:
        handle, draft = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".rankatlas-", text=True)
    except OSError as error:
        raise SourceError(f"cannot write {shown(path)}: {error.strerror}", source=path) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as out:
            yield out
        os.chmod(draft, _mode(target))
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


def _mode(target: str) -> int:
    """The permissions the file has, or those a new one would get."""
    if os.path.exists(target):
        return os.stat(target).st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
