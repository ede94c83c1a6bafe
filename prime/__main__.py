"""``python -m prime`` is ``prime-repl``."""

from prime.cli import main

if __name__ == "__main__":
    main()
