"""The `rankatlas` command: its verbs, its exit codes, and how errors are told.

Exit codes: 0 fine (a closed pipe too), 1 findings or differences, 2 unusable input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from types import MappingProxyType
from typing import Any

import click

from rankatlas import __version__
from rankatlas.cli.streams import leave_pipe, prepare_streams, say
from rankatlas.errors import NotationError, RankatlasError, SchemeError, shown

_MOST_ERROR_LINES = 5
_LONGEST_ERROR_LINE = 300

# Verb → the module that holds it and the line `--help` shows: nothing is imported before it is asked for.
VERBS = MappingProxyType(
    {
        "show": "A layout: its axes, the groups people ask for, and a page of its rank table.",
        "where": "One rank: its coordinate, every group it is in, its neighbours and data rank.",
        "diff": "Two layouts: which groups stay the same and which differ.",
        "groups": "The communicators a job creates: their order, the calls that takes, rough memory.",
        "check-groups": "The groups a job really made, held against the layout it should have.",
        "seeds": "Which ranks share which random stream, and whether a scheme of seeds collides.",
        "probe": "Inside a job: every group opened, checked and timed, slow ranks named.",
        "completion": "The script that completes commands in bash, zsh or fish.",
    }
)


class Verbs(click.Group):
    """The group of verbs; each is the `command` of the module `rankatlas.cli.<verb>`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The verb, its module loaded now; None when there is no such verb."""
        if name not in VERBS:
            return None
        from importlib import import_module

        found: click.Command = import_module(f"rankatlas.cli.{name.replace('-', '_')}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with their lines from the table, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The verb that `args` begin with; an unknown one is told with near names."""
        from difflib import get_close_matches

        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = get_close_matches(name[:80], VERBS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            if "=" in name or os.path.exists(name):  # a layout where the verb should be
                hint = f" Did you mean: rankatlas show {shown(name)}?"
            raise click.UsageError(f"no command {shown(name)}; the commands are {', '.join(VERBS)}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb.  click would turn a closed pipe into exit code 1; here it ends quietly with 0."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            leave_pipe()
            ctx.exit(0)
        return result


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rankatlas where 37 'pp=4 dp=2 tp=8'",
)
@click.version_option(__version__, prog_name="rankatlas", message="%(prog)s %(version)s")
def cli() -> None:
    """Where every rank of a hybrid-parallel training job stands.

    A LAYOUT is notation such as 'pp=4 dp=2 tp=8' (outer to inner: neighbouring ranks differ along the last axis),
    or a file: a stored layout, or training arguments of PaddleNLP or PaddleFormers.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    prepare_streams()
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = cli.main(args=arguments, prog_name="rankatlas", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (NotationError, SchemeError) as error:
        what = "notation" if isinstance(error, NotationError) else "scheme"
        return _complain(f"this {what} cannot be read\n{error}")  # on lines of its own, for the caret's sake
    except RankatlasError as error:
        return _complain(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"\nTry '{context.command_path} --help'" if context else ""
        return _complain(error.format_message() + hint)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        leave_pipe()
        return 0
    except MemoryError:
        return _complain("this needs more memory than there is; ask for fewer ranks (--ranks 0-15)")
    except OSError as error:
        return _complain(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except Exception as error:
        # 1 means that something was found; a defect of ours must not look like it.
        if os.environ.get("RANKATLAS_TRACEBACK"):
            raise
        return _complain(
            f"this is a defect of rankatlas: {type(error).__name__}: {shown(str(error))}\n"
            "RANKATLAS_TRACEBACK=1 shows where; please report it with the command"
        )


def _complain(message: str) -> int:
    """Tell an error in at most five lines of bounded length."""
    first, *rest = [_capped(line) for line in message.splitlines()[:_MOST_ERROR_LINES]] or [""]
    say("\n".join([f"rankatlas: {first}", *rest]), err=True)
    return 2


def _capped(line: str) -> str:
    return line if len(line) <= _LONGEST_ERROR_LINE else f"{line[:_LONGEST_ERROR_LINE]}…"
