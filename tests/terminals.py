"""A terminal of so many columns for a command, and what the command writes to it."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def on_terminal(words, columns=80, folder=None, until=None, signal=None):
    """The exit code and all that was written; ``signal`` is sent when ``until`` has been written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = subprocess.Popen(
        [sys.executable, "-m", "tightset", *map(str, words)],
        cwd=folder,
        env={**env, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 2**16)
        except OSError:  # nobody holds the other end any more
            break
        if not part:
            break
        written += part
        if until and until.encode() in written:
            command.send_signal(signal)
            until = None
    os.close(ours)
    return command.wait(), written.decode()


def lines_of(written):
    """What stood on lines at some time, without colours; each frame of a bar is one."""
    return [text for text in re.split(r"[\r\n]+", ESCAPE.sub("", written)) if text.strip()]
