"""A cluster of one node that one basaltd makes and another one takes over.

make() founds it and does what leaves every form of things on its disks and in
its directory; what must be there from then on is in a Model, which is a file
beside them.  check() holds the node against the model.

The daemon's working directory is the node's, and its disks are named by that
(/proc/self/cwd/disk0.img): a cluster can be moved, or packed as a fixture.
"""
import json
import os
import random
import struct

import basalt
import rawiscsi as ri

MIB = 1 << 20
BLOCK = 4096
RUN = 16                        # blocks of the largest write
DISKS = 2
USER, SECRET = "joe", "a-secret-of-joe-1"
TARGET_USER, TARGET_SECRET = "node", "a-secret-of-node"
KEY = 0x1234567890abcdef
HOLDER = "iqn.2026-11.internal.basalt:holder"
OTHER = "iqn.2026-11.internal.basalt:other"
ISID, ISID2 = b"\x80holds", b"\x80other"

# name: (MiB, block size, policy, target, LUN)
VDISKS = {
    "small": (12, 512, "thick", "many", 0),
    "large": (10, 4096, None, "many", 3),
    "wide": (16, 512, "wide", "many", 7),
    "held": (4, 512, "alone", "held", 0),
    "grown": (8, 4096, None, "many", 9),
    "shrunk": (8, 512, None, "many", 11),
    "swept": (4, 512, None, "swept", 0),
}
PATTERN = b"\x5a-is-a-pattern-\xa5"
PASSES = 5
SCRUB_DAYS = 9
# Those of health that do not depend on the machine.
CHECKS = ("cluster", "directory", "disks", "directory-store", "directory-size",
          "object-data", "targets")


def content(name, block, gen):
    """What a block holds.  Neighbours are alike, so that a fixture is small: their
    checksums are what xz can do nothing about."""
    if gen == 0:
        return bytes(BLOCK)
    if gen < 0:
        return (PATTERN * 32)[:512] * (BLOCK // 512)
    return struct.pack("<II8s", block // 8, gen, name.encode()) * (BLOCK // 16)


class Model:
    """Per virtual disk the generation of each block, or a list of those that it
    may have, of which one is what an unanswered write would have made it."""

    def __init__(self, path):
        self.path = path
        self.gens, self.facts, self.gen = {}, {}, 0

    def save(self):
        with open(self.path, "w") as f:
            json.dump(dict(gens=self.gens, facts=self.facts, gen=self.gen), f)

    @classmethod
    def load(cls, path):
        self = cls(path)
        with open(path) as f:
            self.__dict__.update(json.load(f))
        return self


class Node(basalt.Node):
    """A node whose disks are found where its directory was moved to."""

    def start(self, limit=120):
        with open(self.log, "a") as log:
            self.proc = basalt.popen(
                [basalt.BASALTD, "--config", self.conf], stdout=log, stderr=log,
                env=self.env, cwd=self.dir)
        self.wait_ready(limit)

    def disk(self, n):
        return os.path.join(self.dir, "disk%d.img" % n)


class Session(ri.Conn):
    """Logged in; with CHAP where the target asks for it."""

    def __init__(self, node, target, initiator=OTHER, isid=None, portal=0,
                 limit=60):
        super().__init__(node.ports[portal], limit)
        self.isid = isid or self.isid
        iqn = basalt.IQN + ":" + target
        if target == "many":
            rsp, self.proved = ri.chap_login(
                self, iqn, USER, SECRET.encode(), initiator=initiator,
                mutual=(TARGET_USER, TARGET_SECRET.encode()))
        else:
            rsp, self.proved = self.login(iqn, initiator=initiator), None
        self.code = rsp.login_status
        if self.code:
            raise basalt.Failure("login to %s: %#x" % (target, self.code))

    def do(self, cdb, read=0, write=b"", lun=0):
        """Its data, a sense, or the status."""
        for _ in range(8):
            status, data, pdu = self.result(self.scsi(cdb, read, write, lun))
            sense = pdu.sense() if status == 2 else None
            if sense is None or sense[0] != 6:      # not a unit attention
                break
        return data if status == 0 else sense or status

    def write_cdb(self, name, block, blocks):
        unit = BLOCK // VDISKS[name][1]
        return struct.pack(">BBQIBB", 0x8a, 0, block * unit, blocks * unit, 0,
                           0)

    def read(self, name, block, blocks):
        unit = BLOCK // VDISKS[name][1]
        return self.do(struct.pack(">BBQIBB", 0x88, 0, block * unit,
                                   blocks * unit, 0, 0), blocks * BLOCK,
                       lun=VDISKS[name][4])

    def write(self, name, block, data):
        return self.do(self.write_cdb(name, block, len(data) // BLOCK),
                       write=data, lun=VDISKS[name][4])

    def unmap(self, name, block, blocks):
        unit = BLOCK // VDISKS[name][1]
        return self.do(struct.pack(">BB4xBHB", 0x42, 0, 0, 24, 0),
                       write=struct.pack(">HH4xQI4x", 22, 16, block * unit,
                                         blocks * unit), lun=VDISKS[name][4])

    def pr_in(self, action):
        return self.do(struct.pack(">BB5xHB", 0x5e, action, 512, 0), 512)

    def pr_out(self, action, kind=0, key=0, new=0, aptpl=False):
        return self.do(struct.pack(">BBB2xIB", 0x5f, action, kind, 24, 0),
                       write=struct.pack(">QQ4xB3x", key, new, aptpl))


def session(node, target, **kw):
    """As soon as the target serves all of its units; it does not in the daemon's
    first moments, nor while one is sanitized."""
    last = ["nothing"]

    def tried():
        try:
            s = Session(node, target, **kw)
        except (basalt.Failure, ri.Closed, OSError) as e:
            last[0] = repr(e)
            return None
        luns = [v[4] for v in VDISKS.values() if v[3] == target]
        if all(s.ready(lun) for lun in luns):
            return s
        last[0] = [s.do(bytes(6), lun=lun) for lun in luns]
        s.close()
        return None
    try:
        return basalt.wait_for("a session with %s" % target, 300, tried)
    except basalt.Failure as e:
        raise basalt.Failure("%s: %s\n%s" % (e, last[0], node.log_tail()))


# ---- making ----

def found(node):
    """Cluster, policies, virtual disks, targets, LUNs."""
    secret = SECRET + "\n" + TARGET_SECRET + "\n"
    chap = ("--chap", USER, "--mutual-chap", TARGET_USER)
    node.start()
    node.cli("cluster", "init", "--name", "upgrade")
    for i in range(DISKS):
        node.cli("disk", "add", "/proc/self/cwd/disk%d.img" % i, "--size",
                 "64M", limit=180)
    node.cli("policy", "create", "thick", "--reserve", "100")
    node.cli("policy", "create", "wide", "--stripe-width", "2", "--iops-limit",
             "100000")
    node.cli("policy", "create", "alone", "--ftt", "1", "--force-provision")
    node.cli("target", "create", "many", "--allow", OTHER, *chap, input=secret)
    node.cli("target", "create", "swept", "--allow", OTHER)
    node.cli("target", "create", "held", "--allow", HOLDER, "--allow", OTHER)
    for name, (mib, block, policy, target, lun) in VDISKS.items():
        node.cli("vdisk", "create", name + "_was" if name == "large" else name,
                 "--size", "%dM" % {"grown": 4, "shrunk": 16}.get(name, mib),
                 "--block-size", str(block),
                 *(("--policy", policy) if policy else ()))
    node.cli("vdisk", "rename", "large_was", "large")
    for name, (mib, block, policy, target, lun) in VDISKS.items():
        node.cli("lun", "add", target, name, "--lun", str(lun))
    # Older ones do not scrub.
    node.cli("disk", "scrub", "--every", "%d" % SCRUB_DAYS, check=False)
    node.cli("vdisk", "create", "gone", "--size", "8M", "--export", "--allow",
             "any")
    node.wait_portals()


def fill_log(node):
    """So much that the directory writes a snapshot of itself."""
    names = ["iqn.2026-11.internal.basalt:%03d-%s" % (i, "x" * 180)
             for i in range(250)]
    node.cli("target", "create", "crowd",
             *(w for n in names for w in ("--allow", n)))
    node.cli("lun", "add", "crowd", "large", "--read-only")
    for i in range(90):
        node.cli("target", "set", "crowd", "--deny" if i % 2 == 0 else "--allow",
                 names[i // 2])


def facts(node):
    """What the command line says of it that no upgrade changes."""
    def pick(items, *keys):
        return sorted(([i.get(k) for k in keys] for i in items), key=str)
    cluster = node.json("cluster", "status")
    return {
        "cluster": [cluster["id"], cluster.get("scrub_days", 30)],
        "policies": pick(node.json("policy", "list")["policies"], "name", "ftt",
                         "method", "stripe_width", "reserve_percent",
                         "iops_limit"),
        "vdisks": pick(node.json("vdisk", "list")["vdisks"], "name", "object",
                       "size_bytes", "block_bytes", "policy"),
        "targets": pick(node.json("target", "list")["targets"], "name", "iqn",
                        "allow", "chap_user", "mutual_user"),
        "luns": pick(node.json("lun", "list")["luns"], "target", "lun", "vdisk",
                     "read_only"),
        "disks": pick(node.json("disk", "list")["disks"], "id", "path"),
    }


def events(node):
    return [e["what"] for e in node.json("events", "--count", "0")["events"]]


def churn(node, model, writes, seed, kill_after=None, last=None):
    """Random writes, some unmaps.  With @kill_after, that many are answered, with
    up to eight in flight, and the daemon is killed, once @last() was done."""
    rng = random.Random(seed)
    names = sorted(n for n in VDISKS if VDISKS[n][3] == "many")
    flying, answered, s = {}, 0, session(node, "many")
    for _ in range(writes):
        name = rng.choice(names)
        blocks = rng.randrange(1, 5) if rng.random() < 0.2 else RUN
        at = rng.randrange(len(model.gens[name]) - blocks)
        # Of what flies nothing overlaps.
        if any(n == name and at < b + c and b < at + blocks
               for n, b, c, _ in flying.values()):
            continue
        if rng.random() < 0.1:
            while flying:
                answered += land(s, model, flying)
            good(s.unmap(name, at, blocks), "UNMAP")
            model.gens[name][at:at + blocks] = [0] * blocks
            continue
        model.gen += 1
        w = name, at, blocks, model.gen
        flying[send(s, *w)] = w
        while len(flying) >= 8:
            answered += land(s, model, flying)
        if kill_after is not None and answered >= kill_after:
            if last is not None:
                last()
            node.kill()
            break
    try:
        while flying:
            land(s, model, flying)
    except (ri.Closed, OSError):
        pass                    # killed: what is answered has landed
    for name, at, blocks, gen in flying.values():
        for b in range(at, at + blocks):
            was = model.gens[name][b]
            model.gens[name][b] = (was if isinstance(was, list) else [was]) + \
                [gen]
    s.close()


def send(s, name, at, blocks, gen):
    data = b"".join(content(name, at + n, gen) for n in range(blocks))
    return s.scsi(s.write_cdb(name, at, blocks), 0, data, VDISKS[name][4])


def land(s, model, flying):
    """Take one answer."""
    pdu = s.recv()
    if pdu.opcode != ri.SCSI_RSP:
        return 0
    if pdu.status == 2 and pdu.sense()[0] == 6:         # a unit attention
        name, at, blocks, gen = w = flying.pop(pdu.itt)
        flying[send(s, *w)] = w
        return 0
    if pdu.status:
        raise basalt.Failure("a write: status %d %s" % (pdu.status, pdu.sense()))
    name, at, blocks, gen = flying.pop(pdu.itt)
    model.gens[name][at:at + blocks] = [gen] * blocks
    return 1


def good(got, what="a command"):
    if not isinstance(got, bytes):
        raise basalt.Failure("%s: %s" % (what, got))
    return got


def reserve(node, model):
    """Write Exclusive, Registrants Only, that outlives a loss of power."""
    s = session(node, "held", initiator=HOLDER, isid=ISID)
    good(s.pr_out(6, new=KEY, aptpl=True), "REGISTER")
    good(s.pr_out(1, kind=5, key=KEY), "RESERVE")
    t = session(node, "held", initiator=HOLDER, isid=ISID2, portal=1)
    good(t.pr_out(6, new=KEY + 1, aptpl=True), "REGISTER by the other portal")
    t.logout()
    model.gen += 1
    for at in range(0, 64, RUN):
        good(s.write("held", at, b"".join(content("held", at + n, model.gen)
                                          for n in range(RUN))))
    model.gens["held"][:64] = [model.gen] * 64
    model.facts["keys"] = s.pr_in(0).hex()
    model.facts["reservation"] = s.pr_in(1).hex()
    s.logout()


def sweep(node, model):
    """A sanitize begins, and has not ended by far."""
    s = session(node, "swept")
    param = struct.pack(">BBH", PASSES, 0, 512) + content("swept", 0, -1)[:512]
    good(s.do(struct.pack(">BB5xHB", 0x48, 0x81, len(param), 0), write=param),
         "SANITIZE")
    model.gens["swept"] = [-1] * len(model.gens["swept"])


def make(node, model, writes, seed=7):
    """All of it; the node was killed when this returns."""
    found(node)
    for name, (mib, *_) in VDISKS.items():
        model.gens[name] = [0] * (mib * MIB // BLOCK)
    s = ri.Conn(node.ports[0])
    s.login(basalt.IQN + ":gone", initiator=OTHER)
    s.ready()
    for at in range(0, 64, RUN):
        status = s.result(s.scsi(struct.pack(">BBQIBB", 0x8a, 0, at * 8, RUN * 8,
                                             0, 0), write=content("gone", at, 1)
                                 * RUN))[0]
        if status:
            raise basalt.Failure("a write to gone: %s" % status)
    s.logout()
    node.cli("vdisk", "delete", "gone", "--force")
    node.cli("vdisk", "resize", "grown", "8M")
    node.cli("vdisk", "resize", "shrunk", "8M", "--force")
    fill_log(node)
    reserve(node, model)
    s = session(node, "many")
    for name in VDISKS:
        if VDISKS[name][3] == "many":
            good(s.unmap(name, 64, 64), "UNMAP")
    s.close()
    churn(node, model, writes, seed)
    model.facts["said"] = facts(node)
    model.facts["events"] = events(node)
    churn(node, model, writes, seed + 1, kill_after=200,
          last=lambda: sweep(node, model))
    model.save()


# ---- checking ----

def bad_blocks(s, name, gens):
    """(block, generations it may have) of those that are something else; which
    of several generations it is stands in @gens from now on."""
    bad = []
    for at in range(0, len(gens), 16):
        got = good(s.read(name, at, min(16, len(gens) - at)), "a read of %s "
                   "at %d" % (name, at))
        for n in range(len(got) // BLOCK):
            may = gens[at + n]
            may = may if isinstance(may, list) else [may]
            piece = got[n * BLOCK:(n + 1) * BLOCK]
            is_it = [g for g in may if piece == content(name, at + n, g)]
            if is_it:
                gens[at + n] = is_it[0]
            else:
                bad.append((at + n, may, piece[:16].hex()))
    return bad


def check(tap, node, model, what):
    """All that the model knows of it."""
    said = model.facts["said"]
    s = session(node, "many")
    tap.check(s.proved, "%s: CHAP, both ways" % what)
    h = session(node, "held", initiator=HOLDER, isid=ISID)
    h2 = session(node, "held", initiator=HOLDER, isid=ISID2, portal=1)
    w = session(node, "swept")
    by = {"many": s, "held": h, "swept": w}
    for name in VDISKS:
        bad = bad_blocks(by[VDISKS[name][3]], name, model.gens[name])
        tap.check(not bad, "%s: every block of %s" % (what, name), len(bad),
                  bad[:10])
    tap.check(h.pr_in(0).hex() == model.facts["keys"] and
              h.pr_in(1).hex() == model.facts["reservation"],
              "%s: the reservation is there" % what, h.pr_in(0), h.pr_in(1),
              model.facts)
    o = session(node, "held", initiator=OTHER)
    got = o.write("held", 0, content("held", 0, 99))
    tap.check(got == 0x18, "%s: and holds for others" % what, got)
    got = h.write("held", 0, content("held", 0, model.gens["held"][0]))
    also = h2.write("held", 1, content("held", 1, model.gens["held"][1]))
    tap.check(got == also == b"", "%s: and not for those that have it" % what,
              got, also)
    for c in (s, h, h2, o, w):
        c.logout()
    now = facts(node)
    for key in said:
        tap.check(now[key] == said[key], "%s: as they were: %s" % (what, key),
                  said[key], now[key])
    now, was = events(node), model.facts["events"]
    tap.check(now[:len(was)] == was,
              "%s: as they were: events" % what, was, now)
    # Older ones did not count what is used: that goes on behind all else.
    basalt.wait_for("what is used", 300, lambda: all(
        v["used_exact"] for v in node.json("vdisk", "list")["vdisks"]))
    vdisks = node.json("vdisk", "list")["vdisks"]
    said = [v for v in vdisks if v["health"] != "healthy" or
            v["compliant"] != (v["name"] != "held")]
    tap.check(not said, "%s: every virtual disk is healthy" % what, said)
    thick = [v["space"] for v in vdisks if v["name"] == "small"][0]
    tap.check(thick["used_bytes"] + thick["kept_bytes"] == thick["raw_bytes"],
              "%s: what a policy reserves is kept" % what, thick)
    said = [c for c in node.json("health", check=False)["checks"]
            if c["name"] in CHECKS and c["level"] not in ("ok", "info")]
    tap.check(not said, "%s: health has nothing to say" % what, said)
