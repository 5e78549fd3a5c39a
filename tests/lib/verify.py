"""t_verify, the writer that knows what every sector must hold."""
import os
import select
import time

import basalt


class Writer:
    """t_verify and its lines."""

    def __init__(self, *args):
        self.proc = basalt.popen(
            [basalt.tool("t_verify")] + list(args),
            stdin=basalt.subprocess.PIPE, stdout=basalt.subprocess.PIPE)
        self.lines = []
        self.rest = b""

    def wait_line(self, prefix, limit):
        """The next line that starts so; a line BAD or its end is a Failure."""
        until = time.monotonic() + limit
        while True:
            while self.lines:
                line = self.lines.pop(0)
                if line.startswith(prefix):
                    return line
                if line.startswith("BAD"):
                    raise basalt.Failure(
                        "\n".join([line] + self.lines[:20]))
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.proc.stdout], [], [],
                                              left)[0]:
                raise basalt.Failure("t_verify: no line '%s' within %d s" %
                                     (prefix, limit))
            data = os.read(self.proc.stdout.fileno(), 65536)
            if not data:
                raise basalt.Failure("t_verify ended with status %s" %
                                     self.proc.wait())
            *new, self.rest = (self.rest + data).split(b"\n")
            self.lines += [l.decode(errors="replace") for l in new]

    def finish(self, limit=120):
        self.proc.stdin.close()
        line = self.wait_line("done", limit)
        return self.proc.wait(60), line
