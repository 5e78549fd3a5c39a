"""The kernel's own initiator, run by open-iscsi, in a guest of tests/vm.

No udev runs there: devices are found in sysfs and their nodes are devtmpfs's.
"""
import contextlib
import glob
import os
import signal
import subprocess

import basalt

INITIATOR = "iqn.2026-11.internal.basalt:guest"
MODULES = {"tcp": ["iscsi_tcp"], "iser": ["ib_iser"]}
IFACE = {"tcp": "default", "iser": "iser"}
ISCSI = "/etc/iscsi"


def modprobe(*names):
    status, out = basalt.run(["modprobe", "-a"] + list(names))
    if status != 0:
        raise basalt.Failure("modprobe %s: %s" % (" ".join(names), out))


def read(path):
    try:
        with open(path) as f:
            return f.read().strip()
    except OSError:
        return None


@contextlib.contextmanager
def one_processor():
    """Only processor 0 within; who has chosen another has not afterwards.

    Linux's libiscsi hands a login answer to iscsid before it frees the login
    task: on another processor iscsid's next login PDU can come first, is refused
    ("Login/Text in progress. Cannot start new task."), and the session neither
    recovers nor ends.  Seen with 6.1 when the host starves a processor.

    Then a discovery over iSER loses answers, too: SoftRoCE has counted them as
    received, iscsiadm does not hear of them, gives up after 30 s, and may crash
    (open-iscsi's issue 255).  3 of 290 did on two processors, 0 of 400 on one.
    """
    def online(flag):
        for path in glob.glob("/sys/devices/system/cpu/cpu[1-9]*/online"):
            with open(path, "w") as f:
                f.write(flag)

    online("0")
    try:
        yield
    finally:
        online("1")


class Session:
    """What the kernel has for one session: /sys/class/iscsi_session/@name."""

    def __init__(self, name):
        self.name = name
        self.sid = int(name[len("session"):])
        self.path = "/sys/class/iscsi_session/" + name
        self.target = read(self.path + "/targetname")
        self.iface = read(self.path + "/ifacename")
        number = "/sys/class/iscsi_connection/connection%d:0/" % self.sid
        self.address = read(number + "persistent_address")

    def state(self):
        return read(self.path + "/state")

    def unit(self, kind, lun=0):
        """/dev/sdX (kind block) or /dev/sgN (scsi_generic), None if none."""
        found = glob.glob(self.path + "/device/target*/*:%d/%s/*" % (lun, kind))
        return "/dev/" + os.path.basename(found[0]) if found else None

    def disk(self, lun=0):
        return self.unit("block", lun)

    def generic(self, lun=0):
        return self.unit("scsi_generic", lun)


def sessions():
    return [Session(os.path.basename(p))
            for p in glob.glob("/sys/class/iscsi_session/session*")]


class Initiator:
    """iscsid and its records; @transport is tcp or iser."""

    def __init__(self, transport):
        self.transport = transport
        modprobe("sd_mod", "sg", *MODULES[transport])
        for d in ("/run/lock/iscsi", "/var/lib/iscsi/nodes",
                  "/var/lib/iscsi/send_targets", "/var/lib/iscsi/ifaces"):
            os.makedirs(d, exist_ok=True)
        with open(ISCSI + "/initiatorname.iscsi", "w") as f:
            f.write("InitiatorName=%s\n" % INITIATOR)
        with open(ISCSI + "/iscsid.conf") as f:
            # The line would have systemd start the daemon.
            kept = [l for l in f if not l.startswith("iscsid.startup")]
        with open(ISCSI + "/iscsid.conf", "w") as f:
            f.writelines(kept)
        self.start_daemon()

    def start_daemon(self):
        self.log = open(os.path.join(basalt.scratch("iscsid"), "log"), "w")
        # A group of its own: it kills its group when it ends.
        self.proc = subprocess.Popen(
            ["iscsid", "-f"], stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, start_new_session=True)
        basalt.wait_for("iscsid", 300, lambda: basalt.run(
            ["iscsiadm", "-m", "session"])[0] in (0, 21))

    def stop(self):
        """Log out everywhere and end the daemon."""
        basalt.run(["iscsiadm", "-m", "node", "-u"], 120)
        self.proc.send_signal(signal.SIGTERM)
        try:
            self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()

    def log_tail(self):
        return (read(self.log.name) or "")[-2000:]

    def adm(self, *args, check=True, limit=120):
        status, out = basalt.run(["iscsiadm"] + list(args), limit)
        if check and status != 0:
            raise basalt.Failure("iscsiadm %s: status %s\n%s\n%s\n%s" % (
                " ".join(args), status, out, self.log_tail(),
                basalt.run(["dmesg"])[1][-1000:]))
        return status, out

    # -- records --

    def discover(self, address, port=3260):
        """[(portal, target name)] of SendTargets over this transport."""
        with one_processor():
            _, out = self.adm("-m", "discovery", "-t", "sendtargets", "-p",
                              "%s:%d" % (address, port), "-I",
                              IFACE[self.transport])
        return sorted((l.split(",")[0], l.split()[1])
                      for l in out.split("\n") if l.count(" ") == 1)

    def node(self, target, address, *args, port=3260, iface=None, **kw):
        """@iface: of several (Host), else there is but one."""
        return self.adm("-m", "node", "-T", target, "-p",
                        "%s:%s" % (address, port),
                        *(("-I", iface) if iface else ()), *args, **kw)

    def record(self, target, address, port=3260, iface=None):
        """A record without discovery.  The portal's tag is its number."""
        self.adm("-m", "node", "-o", "new", "-T", target, "-p",
                 "%s:%d,%d" % (address, port, PORTALS.index(address) + 1),
                 "-I", iface or IFACE[self.transport])

    def set(self, target, address, iface=None, port=3260, **values):
        """Settings of a record, node.session. left out: auth.username is
        auth_username, timeo.x is timeo_x."""
        for name, value in values.items():
            group, _, rest = name.partition("_")
            self.node(target, address, "-o", "update", "-n",
                      "node.session.%s.%s" % (group, rest), "-v", str(value),
                      iface=iface, port=port)

    # -- sessions --

    def login(self, target, address, **kw):
        """The session, once its disk has a node."""
        with one_processor():
            self.node(target, address, "--login", **kw)
        return basalt.wait_for("the disk of %s" % target, 300, lambda:
                               self.ready(target, address, kw.get("iface")))

    def ready(self, target, address, iface=None):
        for s in sessions():
            if s.target == target and s.address == address and \
                    iface in (None, s.iface) and s.disk() and s.generic() and \
                    os.path.exists(s.disk()) and \
                    int(read("/sys/block/%s/size" % s.disk()[5:]) or 0):
                return s
        return None

    def logout(self, target, address):
        self.node(target, address, "--logout")

    def forget(self, target, address, port=3260):
        self.node(target, address, "-o", "delete", check=False, port=port)


NET = "10.77.0."        # tests/vm/guest/net-up
PORTALS = [NET + "2", NET + "3"]
# The software devices of tests/vm/guest/rdma-up.
RDMA = os.environ.get("RDMA") or "rxe"


def network(transport):
    """Addresses on a bridge, once; iSER: with an RDMA device on each."""
    if os.path.exists("/sys/class/net/br0"):
        return
    up = "net-up" if transport == "tcp" else "rdma-up"
    status, out = basalt.run([os.path.join(
        basalt.TOP, "tests", "vm", "guest", up), "3"], 300)
    if status != 0:
        raise basalt.Failure("%s: status %s\n%s" % (up, status, out))


def node_new(**more):
    """A node with two portals.  Software iWARP takes its ports from the kernel's TCP:
    where one listens the other cannot, so there is a third one for TCP."""
    portals = [(a, 3260) for a in PORTALS]
    if RDMA != "siw":
        return basalt.Node("guest", portals, **more)
    node = basalt.Node("guest", portals + [(PORTALS[0], 3261)], **more)
    node.tcp = len(PORTALS)
    return node


def node_up(node, disks=("/dev/vda",)):
    node.up(disks=list(disks))
    for address, port in node.portals[:node.tcp]:
        node.cli("portal", "set", "%s:%d" % (address, port),
                 "--transport", "iser", "--force")


def ready(device):
    """(status, output) of TEST UNIT READY; the statuses are sg3_utils'.  Its sg_turs 1.48
    sends nothing."""
    return basalt.run(["sg_raw", device] + ["00"] * 6, 60)


class Rig:
    """A node on /dev/vda with two portals, and the initiator beside it.
    @node: one that is up already."""

    def __init__(self, transport, node=None):
        network(transport)
        self.transport = transport
        self.node = node
        if node is None:
            self.node = node_new()
            node_up(self.node)
        self.initiator = Initiator(transport)

    def login(self, name, address=PORTALS[0], **settings):
        """A session with the target of vdisk @name; no discovery."""
        target = basalt.IQN + ":" + name
        self.initiator.record(target, address)
        self.initiator.set(target, address, **settings)
        return self.initiator.login(target, address)

    def logout(self, session):
        self.initiator.logout(session.target, session.address)
        self.initiator.forget(session.target, session.address)

    def down(self, tap):
        self.initiator.stop()
        tap.check(self.node.stop(120) == 0, "basaltd ends cleanly on SIGTERM",
                  self.node.log_tail())


class Host:
    """A machine of its own to the target: another initiator, with another name."""

    def __init__(self, rig, name):
        self.rig, self.name = rig, name
        adm = rig.initiator.adm
        adm("-m", "iface", "-I", name, "-o", "new")
        for key, value in (("transport_name", rig.transport),
                           ("initiatorname", INITIATOR + "-" + name)):
            adm("-m", "iface", "-I", name, "-o", "update", "-n",
                "iface." + key, "-v", value)

    def login(self, name, address=PORTALS[0], **settings):
        target = basalt.IQN + ":" + name
        self.rig.initiator.record(target, address, iface=self.name)
        self.rig.initiator.set(target, address, iface=self.name, **settings)
        return self.rig.initiator.login(target, address, iface=self.name)

    def logout(self, session):
        for what in (["--logout"], ["-o", "delete"]):
            self.rig.initiator.node(session.target, session.address, *what,
                                    iface=self.name)


def rescan(disk):
    """Ask the target for its size again."""
    with open("/sys/block/%s/device/rescan" % os.path.basename(disk), "w") as f:
        f.write("1")


def drop_caches():
    """What is read next comes from the disk."""
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")
