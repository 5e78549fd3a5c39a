"""A writer of files that knows what a file system must still hold."""
import hashlib
import os
import random
import re
import threading

import basalt


class Files(threading.Thread):
    """Writes files, fsyncs each, rewrites and deletes some; keeps sums."""

    def __init__(self, root, file_max=1 << 20):
        super().__init__(daemon=True)
        self.root, self.sums, self.error = root, {}, None
        self.file_max = file_max
        self.unsure = set()
        self.stop = threading.Event()
        self.rng = random.Random(11)
        self.made = 0

    def run(self):
        try:
            while not self.stop.is_set():
                self.one()
        except OSError as e:
            self.error = "%s: %s" % (e.filename or "write", e)

    def sync_names(self):
        """Where it fails nothing stays open: umount would be busy for ever."""
        fd = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def one(self):
        name = "f%03d" % self.rng.randrange(200)
        path = os.path.join(self.root, name)
        if name in self.sums and self.rng.random() < 0.15:
            self.unsure.add(name)
            os.unlink(path)
            self.sync_names()
            del self.sums[name]
            self.unsure.discard(name)
            return
        data = self.rng.randbytes(self.rng.randrange(1, self.file_max))
        self.unsure.add(name)
        with open(path + ".new", "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".new", path)
        self.sync_names()
        self.sums[name] = hashlib.sha256(data).hexdigest()
        self.unsure.discard(name)
        self.made += 1

    def end(self, limit=300):
        """Write no more; an error is in .error."""
        self.stop.set()
        self.join(limit)
        if self.is_alive():
            self.error = self.error or "a write does not end"

    def bad(self):
        """Synced files that are not what they were."""
        wrong = []
        for name, want in self.sums.items():
            if name in self.unsure:
                continue
            try:
                with open(os.path.join(self.root, name), "rb") as f:
                    if hashlib.sha256(f.read()).hexdigest() != want:
                        wrong.append(name)
            except OSError as e:
                wrong.append("%s (%s)" % (name, e))
        return wrong


def flow(files, count, limit=300):
    """Wait for @count more files: it must flow, not merely not fail."""
    want = files.made + count
    basalt.wait_for("%d files" % count, limit,
                    lambda: files.made >= want or files.error)
    if files.error:
        raise basalt.Failure("the file system failed: %s" % files.error)


def kernel_errors(device):
    """What the kernel said of this block device, where it may be asked."""
    status, out = basalt.run(["dmesg"], 20)
    name = os.path.basename(device)
    if status != 0:
        return []
    return [l for l in out.split("\n") if re.search(r"\b%s\b" % name, l) and
            "error" in l.lower()]
