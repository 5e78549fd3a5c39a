"""What the benches on the host and in a guest share: tgt, and medians."""
import os
import re
import statistics
import subprocess
import threading
import time

import basalt


class Uncached:
    """While it is open, the pages of the file at @path leave the cache."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while True:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if self.done.wait(0.25):
                return

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        os.close(self.fd)


class Tgt:
    """tgt in the foreground on the file or device at @path, write cache off.

    LUN 1 is the disk.  @iser: over iSER at port 3260 of every address (it
    takes no other), else over TCP.
    """

    IQN = "iqn.2026-11.internal.basalt.bench:tgt"

    def __init__(self, path, log, iser=False):
        self.lld = "iser" if iser else "iscsi"
        tcp = basalt.free_ports(1)[0]
        self.port = 3260 if iser else tcp
        self.control = 20000 + tcp % 10000
        log = open(log, "w")
        self.proc = basalt.popen(
            ["tgtd", "-f", "-C", str(self.control), "--iscsi",
             "portal=127.0.0.1:%d" % tcp] +
            (["--iser", "pool_sz_mb=128"] if iser else []),
            stdout=log, stderr=log)
        basalt.wait_for("tgtd (%s)" % log.name, 60,
                        lambda: basalt.connects(tcp))
        self.adm("--op", "new", "--mode", "target", "--tid", "1", "-T",
                 self.IQN)
        self.adm("--op", "new", "--mode", "logicalunit", "--tid", "1",
                 "--lun", "1", "-b", path)
        # Caching mode page with WCE=0, as tgt-admin's "write-cache off".
        self.adm("--op", "update", "--mode", "logicalunit", "--tid", "1",
                 "--lun", "1", "--params", "mode_page=8:0:18:0x10:0:0xff:0xff:"
                 "0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0")
        self.adm("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")

    def admit(self, initiator):
        """Over iSER it wants the initiator's name besides its address."""
        self.adm("--op", "bind", "--mode", "target", "--tid", "1",
                 "--initiator-name", initiator)

    def adm(self, *args):
        status, out = basalt.run(["tgtadm", "-C", str(self.control), "--lld",
                                  self.lld] + list(args), 60)
        if status != 0:
            raise basalt.Failure("tgtadm %s: %s" % (" ".join(args), out))


def syncs_per_write(tgt, load):
    """(writes, fdatasyncs) that strace sees of tgt while load() runs."""
    out = os.path.join(basalt.scratch("bench"), "strace")
    tracer = basalt.popen(["strace", "-f", "-qq", "-e",
                           "trace=fdatasync,pwrite64,sync_file_range", "-o",
                           out, "-p", str(tgt.proc.pid)],
                          stderr=subprocess.DEVNULL)
    basalt.wait_for("strace", 60, lambda: os.path.exists(out))
    time.sleep(1)
    load()
    tracer.terminate()
    tracer.wait(60)
    with open(out) as f:
        text = f.read()
    writes = len(re.findall(r"pwrite64\(", text))
    syncs = len(re.findall(r"fdatasync\(", text))
    print("tgt with its write cache off: %d writes, %d fdatasync" %
          (writes, syncs), flush=True)
    if writes == 0 or abs(writes - syncs) > 2:
        raise basalt.Failure("tgt is not durable here: no comparison")


def profile(pid, load, perf_args=()):
    """Where the time of @pid goes while load() runs: the heaviest symbols."""
    data = os.path.join(basalt.scratch("bench"), "perf.data")
    perf = basalt.popen(["perf", "record", "-q", "-g", *perf_args, "-o", data,
                         "-p", str(pid), "--", "sleep", "4"],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    load()
    perf.wait(60)
    status, out = basalt.run(["perf", "report", "-i", data, "--stdio",
                              "--no-children", "-g", "none", "--percent-limit",
                              "1.5"], 120)
    return [l for l in out.split("\n") if "%" in l][:14] if status == 0 else \
        ["perf could not be used here"]


def median(rows, field):
    return statistics.median(r[field] for r in rows)


def spread(rows):
    values = [r["iops"] for r in rows]
    return (max(values) - min(values)) / statistics.median(values) * 100
