"""Becomes another program that dies with its parent. Run by path, so that nothing else is imported: `launch.py PARENT PROGRAM ARG...`."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask the kernel for SIGKILL at the parent's death, then exec. Leaves at once when the parent is already gone."""
    parent, program = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
