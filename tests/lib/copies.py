"""Payload bytes that basaltd copies for each byte it moves, counted.

A daemon built without gcc's own copies (make copies) runs with
tests/preload/copycount.c before the C library, which knows payload by its
content: the tests write MARK and nothing else.  What it sees is held against
the daemon's own counters (base/copied.h), and a daemon that copies all payload
once more on purpose must be seen doing so.
"""
import fcntl
import os
import struct
import subprocess

import basalt
import mutant

MARK = b"payLOD-1"
TREE = os.path.join(basalt.TOP, "build", "copies")
CLEAN = os.path.join(TREE, "basaltd")
COPYING = os.path.join(TREE, "basaltd-copying")
SIZES = ("< 64", "< 512", "< 4096", "< 16384", "larger")
REASONS = ("receive", "immediate", "gather", "edge")
KIB = 1024

# All payload is copied once more: of a read before it is sent, of a write
# before it goes down.
ON_PURPOSE = [
    ("static void read_done(", """
static struct sgl *again(struct scsi_cmd *cmd, struct sgl *from)
{
	struct sgl *to;

	if (sgl_new(cmd->target->env->pages, PAGE_FRONT, from->len_bytes,
		    from->pieces[0].offset, &to) < 0)
		abort();
	for (unsigned i = 0; i < from->pieces_count; i++)
		memcpy(to->pieces[i].page->data + to->pieces[i].offset,
		       from->pieces[i].page->data + from->pieces[i].offset,
		       from->pieces[i].len);
	sgl_put(from);
	return to;
}

static void read_done("""),
    ("	cmd->data_in = io->sgl;", "	cmd->data_in = again(cmd, io->sgl);"),
    ("	scsi__io(cmd, dom_write(cmd->lun->object, &cmd->io, offset_of(cmd),",
     "	cmd->data_out = again(cmd, cmd->data_out);\n"
     "	scsi__io(cmd, dom_write(cmd->lun->object, &cmd->io, offset_of(cmd),"),
]


def build():
    """Both daemons, and the library that counts; once, also if several want it at
    once."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and
           k not in ("MFLAGS", "O", "SAN")}
    os.makedirs(TREE, exist_ok=True)
    with open(os.path.join(TREE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        p = subprocess.run(["make", "-s", "-j2", "copies"], cwd=basalt.TOP, env=env,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
        if p.returncode != 0:
            raise basalt.Failure("make copies\n" + p.stdout[-4000:])
        if not os.path.exists(COPYING) or os.path.getmtime(COPYING) < max(
                os.path.getmtime(f) for f in (CLEAN, __file__, mutant.__file__)):
            mutant.basaltd(COPYING, "iscsi/scsi_block.c", ON_PURPOSE, TREE,
                           ("-O2", "-g", "-fno-builtin"))


class Node(basalt.Node):
    """A node whose copies are counted."""

    def __init__(self, name, basaltd, *args, **kw):
        basalt.BASALTD = basaltd        # what start() runs
        self.table = os.path.join(basalt.scratch("copycount"), "table")
        super().__init__(name, *args, env={
            "LD_PRELOAD": basalt.preload("copycount"),
            "COPYCOUNT": self.table}, **kw)

    def counts(self):
        """{name: number} of the library's table and the daemon's counters."""
        with open(self.table, "rb") as f:
            raw = struct.unpack("<13Q", f.read(13 * 8))
        c = {"payload": raw[0], "received": raw[1], "sent": raw[2]}
        for i, size in enumerate(SIZES):
            c["other " + size], c["copies " + size] = raw[3 + i], raw[8 + i]
        return dict(c, **self.metrics())


class Load:
    """@size bytes a request; @limit: payload bytes that may be copied for each
    one moved, None: reported only.  @skew: bytes before it is aligned."""

    def __init__(self, op, size, limit, skew=0):
        self.op, self.size, self.limit, self.skew = op, size, limit, skew
        text = "%d KiB" % (size // KIB) if size >= KIB else "%d B" % size
        self.name = "%s %s%s" % (op, text, " skewed" if skew else "")


def loads(small_write):
    """@small_write: the limit for writes of 4 KiB."""
    return [Load("read", 4 * KIB, 0), Load("write", 4 * KIB, small_write),
            Load("read", 64 * KIB, 0), Load("write", 64 * KIB, 0),
            Load("read", 1024 * KIB, 0), Load("write", 1024 * KIB, 0),
            Load("read", 512, None), Load("write", 512, None),
            Load("write", 64 * KIB, None, 512)]


class Row:
    """What one load did: counts before and after it."""

    def __init__(self, load, before, after):
        self.load = load
        d = {k: after[k] - before[k] for k in after if k in before}
        self.moved = d["basalt_iscsi_read_bytes_total"] + \
            d["basalt_iscsi_written_bytes_total"]
        self.commands = d["basalt_iscsi_commands_total"]
        if self.moved == 0:
            raise basalt.Failure("%s: nothing was moved" % load.name)
        self.copied = d["payload"] / self.moved
        self.own = {r: d["basalt_base_copied_%s_bytes_total" % r] / self.moved
                    for r in REASONS}
        self.other = {s: (d["other " + s], d["copies " + s]) for s in SIZES}
        self.calls = (d["received"] + d["sent"]) / self.moved

    def reasons(self):
        return ", ".join("%s %.3f" % (r, n) for r, n in self.own.items()
                         if n > 0) or "-"

    def line(self, transport):
        others = sum(b for b, _ in self.other.values())
        return "%-5s %-20s %8.3f   %7.3f   %9.0f   %s" % (
            transport, self.load.name, self.copied, self.calls,
            others / max(self.commands, 1), self.reasons())

    def sizes(self):
        return ", ".join("%s: %d in %d" % (s, b, n)
                         for s, (b, n) in self.other.items() if n)


HEAD = "%-5s %-20s %8s   %7s   %9s   %s" % (
    "", "load", "copied", "sockets", "other/cmd", "of it, by our counters")
LEGEND = """copied: payload bytes copied in user space for each byte moved
sockets: bytes through read, recv, write, send and the like for each byte moved
other/cmd: bytes of headers, records and the index copied for each command"""


def check(tap, transport, clean, copying):
    """Print and judge: rows of the clean daemon, and of the one that copies."""
    tap.note(LEGEND)
    tap.note(HEAD)
    for row in clean:
        tap.note(row.line(transport))
    for row in clean:
        what = "%s %s" % (transport, row.load.name)
        if row.load.limit is not None:
            tap.check(row.copied <= row.load.limit,
                      "%s: %.3f bytes copied per byte moved, at most %.1f" % (
                          what, row.copied, row.load.limit), row.sizes())
        own = sum(row.own.values())
        tap.check(abs(own - row.copied) <= 0.002 + 0.002 * own,
                  "%s: our counters say what was seen (%.3f)" % (what, own),
                  "seen %.3f" % row.copied, row.reasons())
    for row in copying:
        # Beside what the daemon counts itself.
        tap.check(abs(row.copied - sum(row.own.values()) - 1) < 0.01,
                  "%s %s: a copy put in on purpose is seen: %.3f" % (
                      transport, row.load.name, row.copied), row.sizes())
