"""`rankatlas convert`: a job in the words of another framework."""

from __future__ import annotations

import click

from rankatlas.cli.common import leave, print_json, read, source_options, strict_option, tell_notes
from rankatlas.cli.streams import say


@click.command(
    name="convert",
    epilog="Example: rankatlas convert slurm-812.out --to rankatlas",
)
@click.argument("words", nargs=-1, required=True, metavar="SOURCE")
@click.option(
    "--to", type=click.Choice(["rankatlas", "megatron", "paddle"]), required=True, help="Whose words to write it in."
)
@source_options
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the text, and what it does not say.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    to: str,
    world_size: int | None,
    format: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """SOURCE written for another framework; what the target cannot express is refused, and what it leaves out is told.

    The text is read again before it is printed: it gives the same groups.
    """
    from rankatlas.dialects.writing import write_config

    job = read(words, format, world_size)
    written = write_config(job, to)
    if as_json:
        print_json({"to": to, "text": written.text, "losses": written.losses, "notes": list(job.notes)})
    else:
        say(written.text)
        tell_notes(job)
        for loss in written.losses:
            say(f"note: {loss}", err=True)
    leave(ctx, [job], strict)
