"""A long campaign that can be interrupted: its results go to a file.

    c = Campaign("kill9", [basalt.BASALTD])
    for part in parts:
        if part not in c.done:
            c.add(part, run(part))
    c.finish()

build/tmp/NAME-campaign/results holds a line that names the programs by their
contents, then "PART: REPORT" for each part that was good.  A run with the same
programs and settings goes on where the last one ended; with others nothing that
was found before counts.
"""
import hashlib
import os
import shutil
import threading

import basalt


class Campaign:
    def __init__(self, name, programs, *settings):
        self.dir = os.path.join(basalt.TOP, "build", "tmp", name + "-campaign")
        self.results = os.path.join(self.dir, "results")
        self.lock = threading.Lock()
        self.done = {}          # part: report
        digest = hashlib.sha256(repr(settings).encode())
        for path in programs:
            with open(path, "rb") as f:
                digest.update(f.read())
        head = "programs " + digest.hexdigest()
        try:
            with open(self.results) as f:
                # What follows the last newline was not written to its end.
                lines = f.read().split("\n")[:-1]
        except OSError:
            lines = []
        if not lines or lines[0] != head:
            shutil.rmtree(self.dir, True)
            os.makedirs(self.dir)
            self.append(head)
            return
        for line in lines[1:]:
            part, _, report = line.partition(": ")
            self.done[part] = report

    def append(self, line):
        with open(self.results, "a") as f:
            f.write(line + "\n")
            f.flush()
            os.fsync(f.fileno())

    def add(self, part, report):
        """@part is done and good; @report is one line."""
        with self.lock:
            self.done[part] = report
            self.append("%s: %s" % (part, report))

    def finish(self):
        """All of it is good: nothing to go on with."""
        shutil.rmtree(self.dir, True)
