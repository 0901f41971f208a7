"""``python -m raybroker``: the command line."""

from raybroker.cli.main import main

if __name__ == "__main__":
    main()
