"""What the scripts under tests/ share: a TAP printer and a cluster of one node.

A Node lives in a fresh directory under build/tmp, listens on free ports of
127.0.0.1 and is ended with the script that made it, however that one ends.
"""
import atexit
import ctypes
import faulthandler
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
O = os.path.join(TOP, os.environ.get("O") or "build")
BASALTD = os.environ.get("BASALTD") or os.path.join(O, "basaltd")
BASALT = os.path.join(O, "basalt")
TOOLS = os.path.join(O, "tests", "tools")
SOAK = bool(os.environ.get("BASALT_SOAK"))
IQN = "iqn.2026-11.internal.basalt"
MIB = 1 << 20


# ---- results ----

class Tap:
    """Prints one TAP line a result; finish() prints the plan.

    Several threads may share one: what belongs to a result stays together.
    """

    def __init__(self):
        self.count = self.failed = 0
        self.lock = threading.RLock()

    def ok(self, name, skip=None):
        with self.lock:
            self.count += 1
            print("ok %d - %s%s" % (self.count, name, " # SKIP " + skip
                                    if skip else ""), flush=True)

    def not_ok(self, name, *why):
        with self.lock:
            self.count += 1
            self.failed += 1
            for part in why:
                self.note(part)
            print("not ok %d - %s" % (self.count, name), flush=True)

    def check(self, good, name, *why):
        if good:
            self.ok(name)
        else:
            self.not_ok(name, *why)
        return bool(good)

    def note(self, text):
        with self.lock:
            for line in str(text).rstrip().split("\n"):
                print("# " + line, flush=True)

    def finish(self):
        print("1..%d" % self.count, flush=True)
        sys.exit(1 if self.failed else 0)


class Failure(Exception):
    """A step that everything after it needs went wrong."""


def _scene(run, tap):
    """A Failure, or any other error, is one result."""
    try:
        run(tap)
    except Failure as e:
        tap.not_ok("set-up: " + str(e).split("\n")[0], e)
    except Exception:
        import traceback
        tap.not_ok("the script itself", traceback.format_exc())


def at_once(tap, *scenes):
    """Each with nodes of its own, which end with the thread that starts them."""
    threads = [threading.Thread(target=_scene, args=(scene, tap), daemon=True)
               for scene in scenes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def main(run):
    """Run a script's body.  One that is ended says where it stood."""
    def ended(sig, frame):
        sys.exit(128 + sig)
    signal.signal(signal.SIGTERM, ended)
    faulthandler.register(signal.SIGTERM, chain=True)
    signal.signal(signal.SIGINT, ended)
    signal.signal(signal.SIGHUP, ended)
    tap = Tap()
    _scene(run, tap)
    tap.finish()


# ---- processes and ports ----

_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)      # PR_SET_PDEATHSIG


_running, _scratch = [], []


def _clean_up():
    """The directories last: a process may write to its own until it is gone."""
    for p in reversed(_running):
        if p.poll() is None:
            p.kill()
            p.wait()
    for path in _scratch:
        shutil.rmtree(path, True)


atexit.register(_clean_up)


def popen(argv, **kw):
    """A process that never outlives this script."""
    kw.setdefault("stdin", subprocess.DEVNULL)
    p = subprocess.Popen(argv, preexec_fn=_die_with_parent, **kw)
    _running.append(p)
    return p


def run(argv, limit=120, **kw):
    """(status, output): status None if it had to be killed after @limit s."""
    kw.setdefault("stderr", subprocess.STDOUT)
    if "input" not in kw:
        kw["stdin"] = subprocess.DEVNULL
    try:
        p = subprocess.run(argv, stdout=subprocess.PIPE, timeout=limit,
                           text=True, errors="replace", **kw)
        return p.returncode, p.stdout
    except subprocess.TimeoutExpired as e:
        out = e.stdout or b""
        return None, out if isinstance(out, str) else out.decode(errors="replace")


def dmsetup(*args):
    """Without udev, which a guest may not have: what it answers."""
    status, out = run(["dmsetup", "--noudevsync", "--noudevrules"] +
                      list(args), 120)
    if status != 0:
        raise Failure("dmsetup %s: %s" % (" ".join(args), out))
    return out


_given = set()


def free_ports(count):
    """Ports nobody listens on, nor is going to: none is given twice."""
    held, ports = [], []
    while len(ports) < count:
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        held.append(s)
        port = s.getsockname()[1]
        if port not in _given:
            _given.add(port)
            ports.append(port)
    for s in held:
        s.close()
    return ports


def connects(port, address="127.0.0.1"):
    with socket.socket() as s:
        s.settimeout(5)
        return s.connect_ex((address, port)) == 0


def wait_for(what, limit, test):
    """What @test gives once it is true.  @limit is there to end a hang: a machine
    under load may take many times as long as it usually does."""
    until, late = time.monotonic() + limit, False
    while not late:
        # Also who did not run meanwhile looks once more.
        late = time.monotonic() >= until
        got = test()
        if got:
            return got
        time.sleep(0.05)
    raise Failure("%s did not come within %d s" % (what, limit))


def asked(ask, good, limit=60):
    """What @ask gives: once it is @good, or the last of @limit s.  A daemon that
    stood still for more than a second takes nothing for silent right after."""
    until = time.monotonic() + limit
    while True:
        late = time.monotonic() >= until
        got = ask()
        if late or good(got):
            return got
        time.sleep(0.1)


def in_time(limit, attempt, tries=20):
    """What @attempt gives, of one that took less than @limit s: what it is to see
    does not last longer."""
    for _ in range(tries):
        begun = time.monotonic()
        got = attempt()
        if time.monotonic() - begun < limit:
            return got
    raise Failure("nothing is done within %.1f s here" % limit)


def scratch(prefix):
    """A fresh directory under build/tmp, gone with the script."""
    base = os.path.join(TOP, "build", "tmp")
    os.makedirs(base, exist_ok=True)
    path = tempfile.mkdtemp(prefix=prefix + "-", dir=base)
    if not os.environ.get("BASALT_KEEP"):
        _scratch.append(path)
    return path


def tool(name):
    path = os.path.join(TOOLS, name)
    if not os.path.exists(path):
        raise Failure("%s is not built: make tools" % path)
    return path


def preload(name):
    """A library of tests/preload, for LD_PRELOAD: that takes a blank, or a colon,
    for the end of a path."""
    path = os.path.join(O, "tests", "preload", name + ".so")
    if not os.path.exists(path):
        raise Failure("%s is not built: make tools" % path)
    if " " in path or ":" in path:
        short = tempfile.mkdtemp(prefix="basalt-")
        atexit.register(shutil.rmtree, short, True)
        path = shutil.copy(path, short)
    return path


def object_hash(object_id):
    """uuid_hash() of base/uuid.c: modulo the shards, where an object is."""
    mask = (1 << 64) - 1
    low, high = struct.unpack("<QQ", uuid.UUID(object_id).bytes)
    h = low ^ high * 0x9e3779b97f4a7c15 & mask
    h ^= h >> 32
    h = h * 0xd6e8feb86659fd93 & mask
    return h ^ h >> 32


# ---- a cluster of one node ----

class Node:
    """@portals: how many, on free ports; or a list of (address, port).
    @data: a data_dir that is there already.  @shards: else BASALT_SHARDS of the
    environment, else what the daemon takes by itself.  @cwd: the daemon's."""

    def __init__(self, name="n", portals=2, env=None, arena=None,
                 shards=os.environ.get("BASALT_SHARDS"), data=None, cwd=None):
        for path in (BASALTD, BASALT):
            if not os.path.exists(path):
                raise Failure("%s is not built: make" % path)
        self.dir = scratch(name)
        self.sock = os.path.join(self.dir, "run", "basalt.sock")
        if len(self.sock) > 100:        # sockaddr_un has 108 bytes
            short = tempfile.mkdtemp(prefix="basalt-")
            atexit.register(shutil.rmtree, short, True)
            self.sock = os.path.join(short, "basalt.sock")
        if isinstance(portals, int):
            self.rdt, *ports = free_ports(portals + 1)
            portals = [("127.0.0.1", p) for p in ports]
        else:
            self.rdt = free_ports(1)[0]
        self.portals = portals
        self.ports = [p for _, p in portals]
        self.tcp = 0            # which of them surely serves TCP
        self.conf = os.path.join(self.dir, "basalt.conf")
        self.log = os.path.join(self.dir, "basaltd.log")
        self.data = data or os.path.join(self.dir, "data")
        self.env = dict(os.environ, **(env or {}))
        self.proc = None
        self.name, self.arena, self.cwd = name, arena, cwd
        self.shards = int(shards) if shards else None
        self.discard = "off"
        os.makedirs(os.path.dirname(self.sock), exist_ok=True)
        self.configure()
        os.makedirs(self.data, exist_ok=True)

    def configure(self):
        """Write basalt.conf; the next start reads it."""
        with open(self.conf, "w") as f:
            f.write("[node]\nname = %s\ndata_dir = %s\nrun_dir = %s\n"
                    "log_level = info\nshards = %s\ndiscard = %s\n"
                    "[network]\naddress = 127.0.0.1\nrdt_port = %d\n"
                    "portals = %s\n" %
                    (self.name, self.data, os.path.dirname(self.sock),
                     self.shards or "auto", self.discard, self.rdt,
                     ", ".join("%s:%d" % p for p in self.portals)))
            if self.arena:
                f.write("[memory]\narena = %s\n" % self.arena)

    # -- the daemon --

    def start(self, limit=120):
        self.launch()
        self.wait_ready(limit)

    def launch(self):
        """It may not answer yet: wait_ready()."""
        with open(self.log, "a") as log:
            self.proc = popen([BASALTD, "--config", self.conf], stdout=log,
                              stderr=log, env=self.env, cwd=self.cwd)

    def wait_ready(self, limit=120):
        """The admin service answers.  Disks may still be recovering."""
        def ready():
            if self.proc.poll() is not None:
                raise Failure("basaltd ended with status %s\n%s" %
                              (self.proc.returncode, self.log_tail()))
            if not os.path.exists(self.sock):
                return False
            status, out = self.cli("cluster", "status", check=False)
            # 1 is also what a node says that belongs to no cluster yet.
            return status == 0 or \
                status == 1 and "no basaltd answers" not in out
        wait_for("basaltd's admin socket", limit, ready)

    def wait_portals(self, limit=120, disks=True):
        """All of them serve, and no disk is being opened any more: one that takes
        long does not hold them up.  @disks: False where one hangs."""
        wait_for("the portals", limit,
                 lambda: all(connects(port, address)
                             for address, port in self.portals))
        if disks:
            self.wait_disks(limit)

    def wait_disks(self, limit=120):
        """None is being opened any more; all of them, as they are listed."""
        def rest():
            listed = self.json("disk", "list", check=False).get("disks")
            return listed is not None and all(
                d["state"] != "opening" for d in listed) and [listed]
        return wait_for("the disks", limit, rest)[0]

    def kill(self):
        """kill -9."""
        self.proc.kill()
        self.proc.wait()

    def stop(self, limit=120):
        """SIGTERM; returns its exit status, None if it had to be killed."""
        self.proc.terminate()
        try:
            return self.proc.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def log_tail(self, lines=30):
        """For people: what a test looks for may be further up (logged())."""
        try:
            with open(self.log, errors="replace") as f:
                return "".join(f.readlines()[-lines:])
        except OSError:
            return ""

    def logged(self, text):
        """How often, since the node was made."""
        return self.log_tail(sys.maxsize).count(text)

    def cpu_seconds(self):
        """What the daemon used, all threads."""
        with open("/proc/%d/stat" % self.proc.pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # -- the command line --

    def cli(self, *args, check=True, limit=120, **kw):
        argv = [BASALT] + list(args) + ["--socket", self.sock]
        status, out = run(argv, limit, **kw)
        if check and status != 0:
            raise Failure("basalt %s: status %s\n%s\n%s" %
                          (" ".join(args), status, out, self.log_tail()))
        return status, out

    def json(self, *args, **kw):
        out = self.cli(*args, "--json", **kw)[1]
        try:
            return json.loads(out)
        except ValueError:
            raise Failure("basalt %s --json: not JSON: %s" %
                          (" ".join(args), out[:400]))

    def metrics(self):
        """Every counter without a label: {name: value}."""
        out = {}
        for line in self.cli("metrics")[1].split("\n"):
            words = line.split()
            if len(words) == 2 and words[1].isdigit():
                out[words[0]] = int(words[1])
        return out

    def disk_word(self, path):
        """As a command in an answer calls the disk: of odd paths its id."""
        if re.fullmatch(r"[\w/.,:@%+-]+", path, re.ASCII):
            return path
        return [d["id"] for d in self.json("disk", "list")["disks"]
                if d["path"] == path][0]

    # -- what most tests start from --

    def up(self, disk_mib=1024, disks=1):
        """@disks: how many files for disks, or a list of block devices."""
        self.start()
        self.cli("cluster", "init", "--name", "test")
        if isinstance(disks, int):
            for i in range(disks):
                self.cli("disk", "add",
                         os.path.join(self.dir, "disk%d.img" % i),
                         "--size", "%dM" % disk_mib, limit=180)
        else:
            for path in disks:
                self.cli("disk", "add", path, "--force-erase", limit=180)
        self.wait_portals()

    def vdisk(self, name, mib, block=512, allow="any", *extra):
        self.cli("vdisk", "create", name, "--size", "%dM" % mib,
                 "--block-size", str(block), "--export", "--allow", allow,
                 *extra)
        wait_for("the target of %s" % name, 120,
                 lambda: run(["iscsi-inq", self.url(name)], 30)[0] == 0)

    def vdisk_on(self, shard, name, mib, *extra):
        """A virtual disk whose object is on that one of self.shards."""
        for _ in range(100 * self.shards):
            self.cli("vdisk", "create", name, "--size", "%dM" % mib, *extra)
            v = self.json("vdisk", "show", name)["vdisk"]
            if object_hash(v["object"]) % self.shards == shard:
                return
            self.cli("vdisk", "delete", name)
        raise Failure("no object falls on shard %d" % shard)

    def url(self, target, lun=0, portal=None, user=None, secret=None):
        portal = self.tcp if portal is None else portal
        who = "%s%%%s@" % (user, secret) if user else ""
        iqn = target if target.startswith("iqn.") else IQN + ":" + target
        return "iscsi://%s%s:%d/%s/%d" % ((who,) + self.portals[portal] +
                                          (iqn, lun))
