"""`python -m flambeau` is the command `flambeau`."""

from flambeau._cli import main

if __name__ == "__main__":
    main()
