"""`python -m rankatlas`: the same as the `rankatlas` command."""

from rankatlas.cli.main import main

if __name__ == "__main__":
    main()
