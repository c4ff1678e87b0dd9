"""The docs are executed: every snippet and command on every page is run, and what it prints must be what is written.

`python tests/test_docs.py` runs them all and writes what they print into the pages, which a person then reads.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import inspect
import io
import json
import os
import re
import shlex
import sys
import traceback
from pathlib import Path

import pytest

from rankatlas import errors
from rankatlas.cli.main import VERBS, _run

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "console", "text", "json", "yaml", "diff", "bash"}
PEERS = {
    "torch DeviceMesh": "torch",
    "JAX Mesh": "jax",
    "Megatron-LM": "megatron",
    "DeepSpeed ProcessTopology": "deepspeed",
    "Paddle fleet": "paddle",
    "ColossalAI ProcessGroupMesh": "colossalai",
}


class Session:
    """What the snippets of one page share: Python names, and the exit code of the last command."""

    def __init__(self) -> None:
        self.names = {"__name__": "__main__"}
        self.code = 0

    def rendered(self, page: str) -> str:
        """The page with every executed block printing what it really prints."""
        return FENCE.sub(self._block, page)

    def _block(self, found: re.Match) -> str:
        language, body = found.group(1).split(" ")[0], found.group(2)
        if language == "python":
            body = self._python(body)
        elif language == "console":
            body = self._console(body)
        return f"```{found.group(1)}\n{body}```"

    def _python(self, body: str) -> str:
        lines = []
        for part in doctest.DocTestParser().parse(body):
            if isinstance(part, str):
                assert not part.strip(), f"a python block is a session of >>> lines, not {part!r}"
                lines.append(part)
                continue
            first, *rest = part.source.splitlines()
            lines.append(f">>> {first}\n" + "".join(f"... {line}".rstrip() + "\n" for line in rest))
            lines.append(self._printed(part.source))
        return "".join(lines)

    def _printed(self, source: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                exec(compile(source, "<docs>", "single"), self.names)
            except Exception as error:
                told = "".join(traceback.format_exception_only(type(error), error))
                out.write(f"Traceback (most recent call last):\n    ...\n{told}")
        return out.getvalue()

    def _console(self, body: str) -> str:
        commands = re.findall(r"^\$ (.*)$", body, re.MULTILINE)
        assert commands, f"a console block has lines that begin with $: {body!r}"
        return "".join(f"$ {command}\n{self._answer(command)}" for command in commands)

    def _answer(self, command: str) -> str:
        if command == "echo $?":
            return f"{self.code}\n"
        command, _, head = command.partition(" | head -n ")
        command, _, tail = command.partition(" | tail -n ")
        command, _, text = command.partition(" <<< ")
        program, *arguments = shlex.split(command)
        if program == "cat":
            answer = Path(*arguments).read_text(encoding="utf-8")
        else:
            assert program == "rankatlas", command
            answer = self._rankatlas(arguments, shlex.split(text)[0] if text else "")
        lines = answer.splitlines(keepends=True)
        return "".join(lines[-int(tail) if tail else 0 :][: int(head) if head else None])

    def _rankatlas(self, arguments: list[str], text: str) -> str:
        """What the command shows on a terminal: standard output and standard error."""
        out = io.StringIO()
        before = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                self.code = _run(arguments)
        finally:
            sys.stdin = before
        return out.getvalue()


@contextlib.contextmanager
def inside(folder: Path):
    """Work where `examples` is what it is in the repository, and where files may be written."""
    before = Path.cwd()
    (folder / "examples").symlink_to(ROOT / "examples")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_snippet_prints_what_the_page_says(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    with inside(tmp_path):
        assert Session().rendered(text) == text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_kind_that_is_checked_or_plain(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(FENCE.findall(text)), "a fence that is not closed, or indented"
    assert {language.split(" ")[0] for language, _ in FENCE.findall(text)} <= LANGUAGES


def test_there_is_something_to_execute():
    blocks = [language for page in PAGES for language, _ in FENCE.findall(page.read_text(encoding="utf-8"))]
    assert blocks.count("python") >= 30
    assert blocks.count("console") >= 15


def drawer():
    spec = importlib.util.spec_from_file_location("draw_docs", ROOT / "tools" / "draw_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_what_the_program_draws():
    drawn = drawer().pictures()
    stored = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "img").iterdir()}
    assert stored.pop("training.svg").startswith("<svg")  # of measurements: benchmarks/training.py draws it
    assert stored == drawn


def test_every_picture_is_shown_and_every_picture_shown_is_there():
    shown = {name for page in PAGES for name in re.findall(r"\(img/([^)]+)\)", page.read_text(encoding="utf-8"))}
    assert shown == {path.name for path in (DOCS / "img").iterdir()}


def test_the_readme_shows_what_the_example_printed():
    printed = (ROOT / "examples/catch_a_mismatch/output.txt").read_text().partition("\n3. ")[0].strip()
    assert f"```text\n{printed}\n```" in (ROOT / "README.md").read_text()


def test_the_table_of_errors_has_every_error():
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    classes = [name for name, value in vars(errors).items() if inspect.isclass(value)]
    assert [name for name in classes if f"## {name}\n" not in page] == []


def test_the_drawn_tree_of_errors_is_the_tree_of_errors():
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    drawn, above = {}, {}
    tree = page[page.index("```text") : page.index("```python")]
    for line in re.findall(r"^[│├└─ ]*[A-Z]\w+(?: \(\w+\))?$", tree, re.MULTILINE):
        name, builtin = re.fullmatch(r"\W*(\w+)(?: \((\w+)\))?", line).groups()
        depth = line.index(name) // 4
        above[depth] = name
        drawn[name] = {above.get(depth - 1, "Exception"), *([builtin] if builtin else [])}
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    assert drawn == {kind.__name__: {base.__name__ for base in kind.__bases__} for kind in classes}


def test_the_page_of_commands_has_every_command_and_every_option():
    import click

    from rankatlas.cli.main import cli

    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"## {verb}\n" in page
        command = cli.get_command(click.Context(cli), verb)
        for option in (param for param in command.params if isinstance(param, click.Option)):
            assert all(f"`{name}`" in page or f"`{name} " in page for name in option.opts), option.opts


def test_what_the_phrase_book_says_a_peer_answered_is_in_that_peers_frozen_answers():
    page = (DOCS / "phrase-book.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for title, table in PEERS.items():
        frozen = (ROOT / "tests" / "golden" / f"{table}.json").read_text(encoding="utf-8")
        quoted = re.findall(r"^>>> \w+ = (\[[\d, \[\]]*\])", sections[title], re.MULTILINE)
        assert quoted, title
        for answer in quoted:
            assert json.dumps(json.loads(answer), separators=(",", ":")) in frozen, (title, answer)


def write() -> None:
    """Run every page and write what its snippets print into it."""
    import tempfile

    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
            rendered = Session().rendered(text)
        if rendered != text:
            page.write_text(rendered, encoding="utf-8")
            print("written", name_of(page))


if __name__ == "__main__":
    write()
