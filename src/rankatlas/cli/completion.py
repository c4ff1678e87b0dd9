"""`rankatlas completion`: the script a shell loads to complete commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from rankatlas.cli.streams import say
from rankatlas.errors import InputError


@click.command(name="completion", epilog='Example: eval "$(rankatlas completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL, to be loaded by its start-up file."""
    found = get_completion_class(shell)
    if found is None:
        raise InputError(f"this click knows no completion for {shell}")
    script = found(ctx.find_root().command, {}, "rankatlas", "_RANKATLAS_COMPLETE")
    say(script.source())
