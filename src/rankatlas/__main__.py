"""`python -m rankatlas`, and where the `rankatlas` command begins."""

import sys


def run() -> None:
    """Run the command line; an interrupt is told in a word, from the first import on."""
    try:
        from rankatlas.cli.main import main

        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
