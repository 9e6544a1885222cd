"""`python -m bearlake` is `bearlake`."""

from bearlake.cli import main

if __name__ == "__main__":
    main()
