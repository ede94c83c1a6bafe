"""A script, ``ctty.py PROGRAM ARGUMENT...``: makes the terminal on its input its controlling one and becomes PROGRAM.

It is started as the leader of a new session. The system calls it makes would otherwise be made between fork and exec in
a process with threads. It imports nothing of ours: it runs without the paths of any environment.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_DFL)  # whoever started the host may have had them ignored
    os.execvp(sys.argv[1], sys.argv[1:])
