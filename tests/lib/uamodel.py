"""What a disk of several hosts has to tell each of them, to hold a target against.

Logical units with their mode pages (SPC-4 7.5, SBC-3 6.5), I_T nexuses with the
attentions that wait for them (SAM-5 5.14), and tasks whose data has not come (SAM-5
7).  answer() is a device server: a CDB goes in, status, data and sense come out.
"""
import collections
import struct

from basalt import IQN

GOOD, CHECK, ABORTED = 0, 2, 0x40
# Attentions, as (key, ASC, ASCQ); those of 29h are heard first.
POWER_ON, WARM_RESET, RESET, NEXUS_LOSS = [(6, 0x29, q) for q in (0, 2, 3, 7)]
MODES, CAPACITY, CLEARED = (6, 0x2a, 1), (6, 0x2a, 9), (6, 0x2f, 0)
INQUIRY, LUNS, THIN = (6, 0x3f, 3), (6, 0x3f, 0x0e), (6, 0x38, 7)
# Of a new session: a nexus was lost, too, if one was here a moment ago.
NEW = (6, 0x29, None)
OPCODE, FIELD, NO_LUN = (5, 0x20, 0), (5, 0x24, 0), (5, 0x25, 0)
PARAM, LENGTH, NOT_SAVED = (5, 0x26, 0), (5, 0x1a, 0), (5, 0x39, 0)
NO_ACA = (5, 0x49, 0)
RANGE, READ_ONLY, SWP = (5, 0x21, 0), (7, 0x27, 0), (7, 0x27, 2)
# Task management: functions, responses (RFC 7143 11.5.1, 11.6.1; RFC 7144 4.1).
(ABORT, ABORT_SET, CLEAR_ACA, CLEAR_SET, LUN_RESET, WARM, COLD, REASSIGN, QUERY,
 QUERY_SET, NEXUS_RESET, QUERY_ASYNC) = range(1, 13)
DONE, NO_TASK, NO_UNIT, NO_REASSIGN, NOT_BUILT, FOUND = 0, 1, 2, 4, 5, 7

BLOCK, GRAIN = 512, 8           # of bytes; blocks that come and go together
GRAINS = 16                     # what is written lies in the first ones
# Mode pages by default: (page, subpage): what follows their header.
PAGES = {
    (0x01, 0): b"\xc0\0\0\0\0\x80\0\0\0\0",     # AWRE, ARRE; LBPERE
    (0x02, 0): bytes(14),
    (0x08, 0): bytes(18),                       # WCE=0: what is answered is safe
    (0x0a, 0): b"\0\x10\0\x40\0\0\xff\xff\0\0",  # QAM=1, TAS=1
    (0x0a, 1): bytes(28),
    (0x1a, 0): bytes(38),
    (0x1c, 0): bytes(10),
    # One threshold: soft, enabled, armed by decrease, of what is available.
    (0x1c, 2): bytes(12) + b"\x88\x01\0\0????",
}
CONTROL = (0x0a, 0)
D_SENSE_BIT, SWP_BIT, TAS_BIT = (0, 0x04), (2, 0x08), (3, 0x40)
CHANGEABLE = {CONTROL: b"\x04\0\x08\x40".ljust(10, b"\0")}
LOGS = {(0, 0): b"\0\x0c\x0d\x2f", (0, 0xff): b"\0\0\0\xff\x0c\0\x0d\0\x2f\0",
        # Available, used (SBC-3 6.4.4); a temperature that is not known; none.
        (0x0c, 0): b"\0\1\3\x08????\1\0\0\0" b"\0\2\3\x08????\1\0\0\0",
        (0x0d, 0): b"\0\0\3\2\0\xff" b"\0\1\3\2\0\xff",
        (0x2f, 0): b"\0\0\3\4\0\0\xff\0"}
LOG_PARAMETERS = {(0x0c, 0): (12, 1, 2), (0x0d, 0): (6, 0, 1),
                  (0x2f, 0): (8, 0)}    # their size, their codes

# @data has "????" where the model does not know a number.
Answer = collections.namedtuple("Answer", "status data sense")


def cdb_at(byte, bit=None):
    """SPC-4 4.5.2.4.2, a field pointer: into the CDB, ..."""
    return struct.pack(">BH", 0xc0 | (0 if bit is None else 8 | bit), byte)


def list_at(byte):
    """... and into the parameter list."""
    return struct.pack(">BH", 0x80, byte)


def sense_data(descriptor, code, pointer=None, info=None):
    """SPC-4 4.5.2, 4.5.3."""
    key, asc, ascq = code
    if not descriptor:
        return struct.pack(">BBBI", 0x70 | (0x80 if info is not None else 0), 0,
                           key, info or 0) + b"\x0a" + bytes(4) + bytes(
                               [asc, ascq, 0]) + (pointer or bytes(3))
    more = b""
    if info is not None:
        more += struct.pack(">BBBxQ", 0, 0x0a, 0x80, info)
    if pointer is not None:
        more += b"\x02\x06\0\0" + pointer + b"\0"
    return struct.pack(">BBBBxxxB", 0x72, key, asc, ascq, len(more)) + more


class Unit:
    """A logical unit, at whatever targets it is shown."""

    def __init__(self, name, blocks, serial):
        self.name, self.blocks, self.mapped = name, blocks, set()
        self.serial = serial
        self.reset()

    def reset(self):
        self.pages = dict(PAGES)

    def bit(self, where):
        return self.pages[CONTROL][where[0]] & where[1] != 0


class Lun:
    """@unit where @target shows it."""

    def __init__(self, target, number, unit, read_only):
        self.target, self.number, self.unit = target, number, unit
        self.read_only, self.gone = read_only, False


class Nexus:
    """@queries: it has agreed upon RFC 7144."""

    def __init__(self, name, host, isid, target, port, queries):
        self.name, self.host, self.isid = name, host, isid
        self.target, self.port, self.queries = target, port, queries

    def __repr__(self):
        return self.name


class Task:
    """A write of @grain whose data is still to come."""

    def __init__(self, nexus, lun, field, grain):
        self.nexus, self.lun, self.field = nexus, lun, field
        self.grain = grain


class Model:
    def __init__(self, nexuses):
        self.nexuses, self.luns, self.tasks = nexuses, [], []
        self.pending = {}

    # -- who is where --

    def at(self, target):
        return sorted((l for l in self.luns if l.target == target),
                      key=lambda l: l.number)

    def find(self, nexus, field):
        """SAM-5 4.7: peripheral addressing of bus 0, or flat; @field is the first
        level, of four."""
        if field >> 8 == 0:
            number = field
        elif field >> 14 == 1:
            number = field & 0x3fff
        else:
            return None
        for l in self.luns:
            if l.target == nexus.target and l.number == number:
                return l
        return None

    def shown(self, unit):
        return [l for l in self.luns if l.unit is unit]

    # -- attentions (SAM-5 5.14) --

    def establish(self, luns, what, but=None, nexuses=None):
        """For each nexus at @luns.  One of a kind is enough; a reset wipes out what
        was to be heard before it."""
        for l in luns:
            for n in nexuses or self.nexuses:
                if n.target != l.target or n is but:
                    continue
                queue = self.pending.setdefault((n, l.number), [])
                if what[1] == 0x29:
                    queue.clear()
                if what not in queue:
                    queue.append(what)

    def next(self, nexus, lun):
        """Those that may be heard next: of one precedence any."""
        queue = self.pending[(nexus, lun.number)]
        if NEW in queue:
            return [POWER_ON, NEXUS_LOSS]
        return [a for a in queue if a[1] == 0x29] or list(queue)

    def hear(self, nexus, lun, got):
        """The one that was told, or one that should have been; None: none is."""
        may = self.next(nexus, lun)
        if not may:
            return None
        what, queue = got if got in may else may[0], \
            self.pending[(nexus, lun.number)]
        queue.remove(what if what in queue else NEW)
        return what

    # -- what befalls them --

    def login(self, nexus, what=POWER_ON):
        """NEXUS_LOSS: it was there, and is reinstated (RFC 7143 6.3.5)."""
        self.tasks = [t for t in self.tasks if t.nexus is not nexus]
        for l in self.at(nexus.target):
            self.establish([l], what, nexuses=[nexus])

    def map(self, target, number, unit, read_only):
        """SPC-4 6.33: the inventory changed.  A number may have been another's."""
        self.establish(self.at(target), LUNS)
        lun = Lun(target, number, unit, read_only)
        if not self.shown(unit):
            unit.reset()
        self.luns.append(lun)
        for what in (POWER_ON, INQUIRY, LUNS):
            self.establish([lun], what)

    def unmap(self, lun):
        """Who waited for its data finds nothing (SPC-4 6.33; SAM-5 4.7)."""
        lun.gone = True
        self.luns.remove(lun)
        for n in self.nexuses:
            if n.target == lun.target:
                del self.pending[(n, lun.number)]
        self.establish(self.at(lun.target), LUNS)

    def resize(self, unit, blocks):
        """SBC-3: whoever has read the capacity has read another one."""
        unit.blocks = blocks
        self.establish(self.shown(unit), CAPACITY)

    def restart(self):
        """Nothing is saved (SPC-4 7.5: PS=0); what is mapped stays."""
        for l in self.luns:
            l.unit.reset()
        self.tasks = []

    # -- task management: (response, [(task, status or None)]) --

    def end(self, tasks, by):
        """SAM-5 5.6: TAS says whether those of others are told."""
        told = []
        for t in tasks:
            self.tasks.remove(t)
            told.append((t, ABORTED if t.nexus is not by and
                         t.lun.unit.bit(TAS_BIT) else None))
        return told

    def tmf(self, nexus, function, field, task=None):
        lun = self.find(nexus, field)
        if function == REASSIGN:
            return NO_REASSIGN, []
        if function == CLEAR_ACA or function > QUERY_ASYNC or \
                function > REASSIGN and not nexus.queries:
            return NOT_BUILT, []
        if function in (WARM, COLD):
            return DONE, self.reset(nexus, self.at(nexus.target), WARM_RESET)
        if function == NEXUS_RESET:
            told = self.end([t for t in self.tasks if t.nexus is nexus], nexus)
            self.establish(self.at(nexus.target), NEXUS_LOSS, nexuses=[nexus])
            return DONE, told
        if lun is None:
            return NO_UNIT, []
        own = [t for t in self.tasks if t.nexus is nexus and t.lun is lun]
        if function == ABORT:
            return (DONE, self.end([task], nexus)) if task in own \
                else (NO_TASK, [])
        if function == QUERY:
            return FOUND if task in own else DONE, []
        if function == QUERY_SET:
            return FOUND if own else DONE, []
        if function == QUERY_ASYNC:
            return FOUND if self.next(nexus, lun) else DONE, []
        if function == ABORT_SET:
            return DONE, self.end(own, nexus)
        if function == LUN_RESET:
            return DONE, self.reset(nexus, [lun], RESET)
        return DONE, self.clear(nexus, lun)

    def clear(self, nexus, lun):
        """SAM-5 7.5: whose tasks went without a status has an attention."""
        tasks = [t for t in self.tasks if t.lun.unit is lun.unit]
        told = self.end(tasks, nexus)
        for t, status in told:
            if status is None and t.nexus is not nexus:
                self.establish([t.lun], CLEARED, nexuses=[t.nexus])
        return told

    def reset(self, nexus, luns, what):
        """SAM-5 6.3.2, 6.3.3: for all nexuses, the one that asks too."""
        units = {l.unit for l in luns}
        told = self.end([t for t in self.tasks if t.lun.unit in units], nexus)
        for u in units:
            u.reset()
            self.establish(self.shown(u), what)
        return told

    # -- a device server --

    def finish(self, task):
        """Its data came: what may not be done any more is not."""
        self.tasks.remove(task)
        if task.lun.gone:
            return self.check(task.lun, NO_LUN)
        bad = self.protected(task.lun)
        if bad is None:
            task.lun.unit.mapped.add(task.grain)
        return bad or self.data()

    def data(self, data=b""):
        return Answer(GOOD, data, b"")

    def check(self, lun, code, pointer=None, info=None):
        """In the format of the control mode page."""
        return Answer(CHECK, b"", sense_data(
            lun is not None and lun.unit.bit(D_SENSE_BIT), code, pointer, info))

    def protected(self, lun):
        if lun.read_only:
            return self.check(lun, READ_ONLY)
        return self.check(lun, SWP) if lun.unit.bit(SWP_BIT) else None

    def no_aca(self, nexus, field):
        """SAM-5 8.6: the attribute ACA, where there is no such condition."""
        return self.check(self.find(nexus, field), NO_ACA)

    def answer(self, nexus, field, cdb, out, got=None):
        """@out: the parameter list; @got: the attention that was told, if any."""
        lun = self.find(nexus, field)
        name, service, control = COMMANDS.get(cdb[0], (None, None, None))
        free = name in ("inquiry", "report_luns", "request_sense")
        if lun is None and not free:
            return self.check(None, NO_LUN)
        if not free:
            what = self.hear(nexus, lun, got)
            if what is not None:
                return self.check(lun, what, info=16 if what == THIN else None)
        if name is None:
            return self.check(lun, OPCODE)
        if service is not None and cdb[1] & 0x1f not in service:
            return self.check(lun, FIELD, cdb_at(1, 4))
        if cdb[control] & 4:            # NACA, with NormACA 0 (SAM-5 5.2)
            return self.check(lun, FIELD, cdb_at(control, 2))
        return getattr(self, name)(nexus, lun, cdb, out, got)

    def test_unit_ready(self, nexus, lun, cdb, out, got):
        return self.data()

    def request_sense(self, nexus, lun, cdb, out, got):
        """SPC-4 6.39: DESC says the format, whatever D_SENSE; what is told is told."""
        if lun is None:
            what = NO_LUN
        else:
            what = self.hear(nexus, lun, got) or (0, 0, 0)
        return self.data(sense_data(cdb[1] & 1, what, info=16 if what == THIN
                                    else None)[:cdb[4]])

    def inquiry(self, nexus, lun, cdb, out, got):
        """SPC-4 6.6, 7.8: neither tells attentions nor ends them."""
        room = struct.unpack(">H", cdb[3:5])[0]
        kind = b"\0" if lun else b"\x7f"
        if not cdb[1] & 1:
            if cdb[2]:
                return self.check(lun, FIELD, cdb_at(2))
            d = kind + b"\0\x06\x12\x5b\x18\x10\x02BASALT  " \
                b"VIRTUAL-DISK    0001" + bytes(22) + \
                b"\0\xa0\x04\x60\x04\xc0\x09\x60"
            return self.data(d.ljust(96, b"\0")[:room])
        if cdb[2] == 0:
            pages = b"\0\x80\x83\x86\x87\x88\x8f\xb0\xb1\xb2" if lun else b"\0"
            return self.data((kind + b"\0\0" + bytes([len(pages)]) +
                              pages)[:room])
        if lun is None or cdb[2] not in (0x80, 0x83, 0x87, 0xb2):
            return self.check(lun, FIELD, cdb_at(2))
        d = {0x80: lambda: lun.unit.serial.encode(),
             0x83: lambda: self.names(nexus, lun.unit),
             0x87: lambda: b"\x3f\xff\0\0",    # all mode pages are shared
             0xb2: lambda: b"\x0b\xe4\2\0"}[cdb[2]]()
        d = struct.pack(">BBH", 0, cdb[2], len(d)) + d
        return self.data(d[:room])

    def names(self, nexus, unit):
        """SPC-4 7.8.5: the unit's are the same wherever it is, for ever."""
        high, low = struct.unpack(">QQ", bytes.fromhex(unit.serial))
        naa = struct.pack(">Q", (high ^ low) & ~(15 << 60) | 3 << 60)
        iqn = IQN + ":" + nexus.target
        d = b""
        for code, kind, name in (
                (1, 3, naa), (2, 1, b"BASALT  " + unit.serial.encode()),
                (3, 8, text("naa." + naa.hex().upper())),
                (1, 0x14, struct.pack(">I", nexus.port)),
                (1, 0x15, struct.pack(">I", 1)),
                (0x53, 0x98, text("%s,t,0x%04x" % (iqn, nexus.port))),
                (0x53, 0xa8, text(iqn))):
            d += struct.pack(">BBxB", code, kind, len(name)) + name
        return d

    def report_luns(self, nexus, lun, cdb, out, got):
        """SPC-4 6.33; SAM-5 5.14: who has the list knows that it changed."""
        room = struct.unpack(">I", cdb[6:10])[0]
        if cdb[2] > 2:
            return self.check(lun, FIELD, cdb_at(2))
        if room < 16:
            return self.check(lun, FIELD, cdb_at(6))
        luns = [] if cdb[2] == 1 else self.at(nexus.target)
        for l in self.at(nexus.target):
            queue = self.pending[(nexus, l.number)]
            if LUNS in queue:
                queue.remove(LUNS)
        d = b"".join(struct.pack(">H6x", l.number if l.number < 256 else
                                 0x4000 | l.number) for l in luns)
        return self.data((struct.pack(">I4x", len(d)) + d)[:room])

    def capacity10(self, nexus, lun, cdb, out, got):
        return self.data(struct.pack(">II", lun.unit.blocks - 1, BLOCK))

    def service_in16(self, nexus, lun, cdb, out, got):
        """READ CAPACITY(16), GET LBA STATUS (SBC-3 5.16, 5.4)."""
        room = struct.unpack(">I", cdb[10:14])[0]
        if cdb[1] & 0x1f == 0x10:
            d = struct.pack(">QI", lun.unit.blocks - 1, BLOCK) + b"\0\3\xc0\0"
            return self.data(d.ljust(32, b"\0")[:room])
        lba, = struct.unpack(">Q", cdb[2:10])
        mapped = [lun.unit.mapped.__contains__(g)
                  for g in range(lba // GRAIN, GRAINS)]
        run = next((i for i, m in enumerate(mapped) if m != mapped[0]),
                   len(mapped))
        last = run == len(mapped) and not mapped[0]     # to the end of the unit
        blocks = lun.unit.blocks - lba if last else run * GRAIN
        d = struct.pack(">IIQIB3x", 20, 0, lba, blocks, not mapped[0])
        return self.data(d[:min(room, 24)])

    # -- modes --

    def mode_sense(self, nexus, lun, cdb, out, got):
        """SPC-4 6.13, 6.14, 7.5."""
        ten, unit = cdb[0] == 0x5a, lun.unit
        room = struct.unpack(">H", cdb[7:9])[0] if ten else cdb[4]
        page, sub, control = cdb[2] & 0x3f, cdb[3], cdb[2] >> 6
        if control == 3:
            return self.check(lun, NOT_SAVED)
        chosen = [k for k in sorted(PAGES) if page in (0x3f, k[0]) and
                  sub in (0xff, k[1])]
        if page == 0x3f and sub not in (0, 0xff):
            chosen = []
        if not chosen:
            known = page == 0x3f or any(k[0] == page for k in PAGES)
            return self.check(lun, FIELD, cdb_at(3 if known else 2))
        d = b"" if cdb[1] & 8 else struct.pack(">II", unit.blocks, BLOCK)
        wp = 0x80 if lun.read_only or unit.bit(SWP_BIT) else 0
        head = struct.pack(">xBxxH", wp | 0x10, len(d)) if ten else \
            struct.pack(">xBB", wp | 0x10, len(d))
        for k in chosen:
            body = (unit.pages[k], CHANGEABLE.get(k, bytes(len(PAGES[k]))),
                    PAGES[k])[control]
            d += page_header(k, len(body)) + body
        d = head + d
        d = struct.pack(">H" if ten else "B", len(d)) + d
        return self.data(d[:room])

    def mode_select(self, nexus, lun, cdb, out, got):
        """SPC-4 6.11, 6.12: nothing is saved; all is checked before any is set."""
        if cdb[1] & 1:
            return self.check(lun, FIELD, cdb_at(1, 0))
        if out and not cdb[1] & 0x10:
            return self.check(lun, FIELD, cdb_at(1, 4))
        if not out:
            return self.data()
        pages, bad = self.mode_list(lun.unit, out, cdb[0] == 0x55)
        if bad is not None:
            return self.check(lun, *bad)
        if any(lun.unit.pages[k] != v for k, v in pages.items()):
            lun.unit.pages.update(pages)
            # All but whoever did it (SPC-4 6.11), at every target.
            self.establish(self.shown(lun.unit), MODES, but=nexus)
        return self.data()

    def mode_list(self, unit, out, ten):
        """(pages, None), or what is wrong and where."""
        at = 8 if ten else 4
        if len(out) < at:
            return None, (LENGTH, list_at(0))
        size = struct.unpack(">H", out[6:8])[0] if ten else out[3]
        if ten and out[4] & 1:
            return None, (PARAM, list_at(4))
        if size not in (0, 8):
            return None, (PARAM, list_at(6 if ten else 3))
        if len(out) < at + size:
            return None, (LENGTH, list_at(at))
        if size:
            blocks, length = struct.unpack(">II", out[at:at + 8])
            if length & 0xffffff not in (0, BLOCK):
                return None, (PARAM, list_at(at + 5))
            if blocks not in (0, 0xffffffff, unit.blocks):
                return None, (PARAM, list_at(at))
        at += size
        pages = {}
        while at < len(out):
            if len(out) - at < 2:
                return None, (LENGTH, list_at(at))
            sub = out[at + 1] if out[at] & 0x40 else 0
            key = (out[at] & 0x3f, sub)
            if key not in PAGES or out[at] & 0x40 and not sub:
                return None, (PARAM, list_at(at))
            now = unit.pages[key]
            head = page_header(key, len(now))
            if len(out) - at < len(head) + len(now):
                return None, (LENGTH, list_at(at))
            if out[at + 1:at + len(head)] != head[1:]:
                return None, (PARAM, list_at(at + 1))
            at += len(head)
            new = out[at:at + len(now)]
            may = CHANGEABLE.get(key, bytes(len(now)))
            for i, (a, b, m) in enumerate(zip(now, new, may)):
                if (a ^ b) & ~m:
                    return None, (PARAM, list_at(at + i))
            pages[key] = new
            at += len(now)
        return pages, None

    # -- logs --

    def log_sense(self, nexus, lun, cdb, out, got):
        """SPC-4 6.8, 7.3."""
        page, sub = cdb[2] & 0x3f, cdb[3]
        first, room = struct.unpack(">HH", cdb[5:9])
        if cdb[1] & 1:
            return self.check(lun, FIELD, cdb_at(1, 0))
        if (page, sub) not in LOGS:
            known = any(k[0] == page for k in LOGS)
            return self.check(lun, FIELD, cdb_at(3) if known else cdb_at(2, 5))
        body = LOGS[(page, sub)]
        size, *codes = LOG_PARAMETERS.get((page, sub), (0, 0))
        if first > codes[-1]:
            return self.check(lun, FIELD, cdb_at(5))
        body = body[size * sum(c < first for c in codes):]
        d = struct.pack(">BBH", page | (0x40 if sub else 0), sub, len(body))
        return self.data((d + body)[:room])

    def log_select(self, nexus, lun, cdb, out, got):
        """SPC-4 6.7: none can be set, so nobody hears of it."""
        if cdb[1] & 1:
            return self.check(lun, FIELD, cdb_at(1, 0))
        if cdb[7:9] != b"\0\0":
            return self.check(lun, FIELD, cdb_at(7))
        return self.data()

    # -- blocks --

    def write(self, nexus, lun, cdb, out, got):
        lba, = struct.unpack(">I", cdb[2:6])
        blocks, = struct.unpack(">H", cdb[7:9])
        bad = self.protected(lun)
        if bad is None and lba + blocks > lun.unit.blocks:
            bad = self.check(lun, RANGE, info=max(lba, lun.unit.blocks))
        if bad is None:
            lun.unit.mapped.add(lba // GRAIN)
        return bad or self.data()

    def unmap_blocks(self, nexus, lun, cdb, out, got):
        bad = self.protected(lun)
        if bad is None:
            lun.unit.mapped.discard(struct.unpack(">Q", out[8:16])[0] // GRAIN)
        return bad or self.data()

    def functions(self, nexus, lun, cdb, out, got):
        """REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 6.36): those that this
        nexus has."""
        room = struct.unpack(">I", cdb[6:10])[0]
        if room < 4:
            return self.check(lun, FIELD, cdb_at(6))
        d = b"\xde\x07" if nexus.queries else b"\xda\0"
        d = d + (b"\0\x0c" + bytes(12) if cdb[2] & 0x80 else bytes(2))
        return self.data(d[:room])


def text(name):
    """Ended by NUL, padded to four bytes (SPC-4 7.8.5.10)."""
    return name.encode() + bytes(4 - len(name) % 4)


def page_header(key, size):
    if key[1]:
        return struct.pack(">BBH", 0x40 | key[0], key[1], size)
    return struct.pack(">BB", key[0], size)


# Opcode: the method, the service actions if it has such, where CONTROL is.
COMMANDS = {
    0x00: ("test_unit_ready", None, 5), 0x03: ("request_sense", None, 5),
    0x12: ("inquiry", None, 5), 0x15: ("mode_select", None, 5),
    0x1a: ("mode_sense", None, 5), 0x25: ("capacity10", None, 9),
    0x2a: ("write", None, 9), 0x42: ("unmap_blocks", None, 9),
    0x4c: ("log_select", None, 9), 0x4d: ("log_sense", None, 9),
    0x55: ("mode_select", None, 9), 0x5a: ("mode_sense", None, 9),
    0x9e: ("service_in16", (0x10, 0x12), 15), 0xa0: ("report_luns", None, 11),
    0xa3: ("functions", (0x0d,), 11),
}
