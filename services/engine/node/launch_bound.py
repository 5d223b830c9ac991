"""Becomes another program that the kernel ends with its parent: `python -I -S launch_bound.py PARENT_PID PROGRAM ARGUMENT...`.

It runs by path and before anything else is imported, so that a node agent that is killed leaves no replica behind.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(parent_pid: int, command: list[str]) -> None:
    """Replaces this process. Ends at once when the parent has died before the kernel was told."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("the node agent is gone")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
