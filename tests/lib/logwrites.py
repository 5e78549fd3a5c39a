"""The log of the kernel's dm-log-writes: what a device was given, and so what it
may hold after a power cut.

The kernel writes down a write that asks for FUA when it completes, and what is in
a volatile cache, as such writes that completed before a flush began, right before
that flush.  So between two flushes:

 - what is logged is durable in this order: FUA writes;
 - what the second one makes durable stands before it: until then any sector of it
   may be there or not, and all of it was sent when the flush is about to complete;
 - whether one of these was sent before a FUA write to the same place, the log does
   not say: the FUA write stands.  Where something that is not durable lies below or
   above it, both are right.
"""
import bisect
import ctypes
import fcntl
import os
import struct

# What tests/vm/guest/logwrites puts on the device, and on a virtual disk of slots.
DISKS, DISK, DATA = 2, 64 << 20, 160 << 20      # bytes of a disk; the ext4 behind them
SLOTS, SLOT = 32, 64                    # of so many sectors
STRIPE = 2048                           # sectors; an edge is in the middle of a slot
SECTOR = 512
MAGIC = 0x6a736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8

DM_TARGET_MSG = 3 << 30 | 312 << 16 | 0xfd << 8 | 14


def message(control, name, text):
    """dmsetup message @name 0 @text, by the descriptor of /dev/mapper/control."""
    data = struct.pack("<Q", 0) + text.encode() + b"\0"
    head = struct.pack("<3I7I8x128s136s", 4, 0, 0, 312 + len(data), 312, 0, 0, 0,
                       0, 0, name.encode(), b"")
    fcntl.ioctl(control, DM_TARGET_MSG, bytearray(head + data), True)


def slot_sector(slot, gen):
    """What each sector of a slot holds; zeros before generation 1."""
    if gen == 0:
        return bytes(SECTOR)
    return struct.pack("<8sQQQ", b"LOGSLOTS", slot, gen, ~gen & (1 << 64) - 1) * 16


def slot_lba(slot):
    return (slot + 1) * STRIPE - SLOT // 2


class Entry:
    """@at: where its bytes begin in the log; @mark: a mark's text."""
    __slots__ = ("sector", "sectors", "flags", "at", "mark")

    def __init__(self, sector, sectors, flags, at, mark):
        self.sector, self.sectors, self.flags = sector, sectors, flags
        self.at, self.mark = at, mark


def entries(path):
    """All of a log."""
    out = []
    with open(path, "rb") as f:
        magic, version, count, size = struct.unpack("<QQQI", f.read(28))
        if magic != MAGIC or version != 1:
            raise ValueError("%s: no log of dm-log-writes" % path)
        at = size
        for _ in range(count):
            f.seek(at)
            sector, sectors, flags, length = struct.unpack("<QQQQ", f.read(32))
            mark = f.read(length).decode() if flags & MARK else None
            out.append(Entry(sector, sectors, flags, at + size, mark))
            at += size
            if not flags & DISCARD:
                at += sectors * SECTOR
    return out


class Spans:
    """Ranges of sectors, for asking what is not among them."""

    def __init__(self):
        self.first, self.end = [], []

    def add(self, first, end):
        low = bisect.bisect_left(self.end, first)
        high = bisect.bisect_right(self.first, end)
        if low < high:
            first = min(first, self.first[low])
            end = max(end, self.end[high - 1])
        self.first[low:high], self.end[low:high] = [first], [end]

    def without(self, first, end):
        """The parts of [@first, @end) that are in none."""
        i = bisect.bisect_right(self.end, first)
        while first < end:
            if i == len(self.first) or self.first[i] >= end:
                yield first, end
                return
            if self.first[i] > first:
                yield first, self.first[i]
            first = self.end[i]
            i += 1


class Replay:
    """The device at one place of the log after another: in the file @image it is
    what is durable."""

    def __init__(self, log, image, bytes_):
        self.entries = entries(log)
        self.log = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        self.image = os.open(image, os.O_RDWR | os.O_CREAT | os.O_TRUNC |
                             os.O_CLOEXEC, 0o600)
        os.ftruncate(self.image, bytes_)
        self.at = 0             # entries before it have completed
        self.waiting = []       # those that the next flush makes durable
        self.fua = Spans()      # since the last one

    def data(self, entry, first, end):
        """Of sectors [@first, @end); what is discarded reads as zeros."""
        if entry.flags & DISCARD:
            return bytes((end - first) * SECTOR)
        return os.pread(self.log, (end - first) * SECTOR,
                        entry.at + (first - entry.sector) * SECTOR)

    def write(self, fd, entry, first, end):
        """But not over what is durable by itself."""
        parts = [(first, end)] if entry.flags & FUA else \
            self.fua.without(first, end)
        for a, b in parts:
            if entry.flags & DISCARD and b - a > 2048:
                punch(fd, a * SECTOR, (b - a) * SECTOR)
            else:
                os.pwrite(fd, self.data(entry, a, b), a * SECTOR)

    def step(self):
        """One more entry has completed."""
        entry = self.entries[self.at]
        self.at += 1
        if entry.flags & MARK:
            return
        if entry.flags & FLUSH:
            for w in self.waiting:
                self.write(self.image, w, w.sector, w.sector + w.sectors)
            self.waiting, self.fua = [], Spans()
        if not entry.sectors:
            return
        if entry.flags & FUA:
            self.write(self.image, entry, entry.sector,
                       entry.sector + entry.sectors)
            self.fua.add(entry.sector, entry.sector + entry.sectors)
        else:
            self.waiting.append(entry)

    def to(self, at):
        while self.at < at:
            self.step()

    def torn(self, fd, entry, rng, whole=0.3):
        """Some sectors of @entry, or all; it was under way."""
        first, end = entry.sector, entry.sector + entry.sectors
        how = rng.random()
        if how < whole:
            self.write(fd, entry, first, end)
        elif how < 0.7:         # its beginning, or its end
            cut = rng.randrange(first, end + 1)
            self.write(fd, entry, *((first, cut) if how < 0.5 else (cut, end)))
        else:
            share = rng.random()
            for s in range(first, end):
                if rng.random() < share:
                    self.write(fd, entry, s, s + 1)

    def cut(self, fd, rng):
        """What else than the image the power leaves: @fd is a copy of it."""
        if self.at == len(self.entries):
            return "all of it"
        entry = self.entries[self.at]
        if entry.flags & FLUSH:
            for w in self.waiting:
                if rng.random() < 0.6:
                    self.torn(fd, w, rng, 0.6)
            return "%d writes in the cache" % len(self.waiting)
        if entry.flags & FUA and rng.random() < 0.7:
            self.torn(fd, entry, rng)
            return "a write of %d sectors at %d under way" % (entry.sectors,
                                                              entry.sector)
        return "what is durable"


_libc = ctypes.CDLL(None, use_errno=True)


def punch(fd, offset, length):
    """A hole, by fallocate(2)."""
    if _libc.fallocate(fd, 3, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
