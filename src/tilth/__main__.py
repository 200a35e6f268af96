"""Starts the command line: `tilth`, `python -m tilth`."""

import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still loaded ends it in one line, too."""
    try:
        from tilth.cli.main import main as run

        run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("stopped: nothing was begun\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
