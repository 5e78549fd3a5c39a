"""A guest: Debian's kernel under QEMU's TCG, on the file system of this host.

The guest sees the host's root read-only (its own writes stay in memory), so it
runs the tree as it is built, with every package that is installed.  What it
writes to /run/vm is in the host's Guest.share.  No KVM, ever: a /dev/kvm that
opens is no proof that a guest boots on it.

BASALT_KERNEL=6.12 in the environment is the kernel that it boots, of those that
deploy/vm-kernel unpacked; without it the release's own.

Several guests may run at once: each has its own share, disks and console.
"""
import gzip
import lzma
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import threading
import time

import basalt

INIT = os.path.join(basalt.TOP, "tests", "vm", "init")
QEMU = "qemu-system-x86_64"
# Without what costs TCG more than what the guest does instead: five-level page
# tables, a carry-less multiplication bit by bit, a copy by "rep movsb" (a loop of
# one byte each, in the kernel and in the C library).
CPU = "max,la57=off,pclmulqdq=off,erms=off"

# What it takes to reach the host's root; everything else is modprobed inside.
MODULES = ("virtio_pci", "virtio_console", "virtio_blk", "virtio_rng",
           "9pnet_virtio", "9p", "overlay")
CMDLINE = ("console=ttyS0 loglevel=6 panic=-1 oops=panic mitigations=off "
           "audit=0 apparmor=0 tsc=reliable random.trust_cpu=on net.ifnames=0 "
           "rcupdate.rcu_cpu_stall_suppress=1 nmi_watchdog=0 "
           "cryptomgr.notests no_timer_check")
# Of a clock that goes with instructions nothing has to be found out, and to compare
# it with the local APIC's takes 100 ms, of which each turn of a loop costs the host
# as much as a thousand instructions: more than all the rest of a boot.
OWN_TIME = " nolapic_timer tsc_early_khz=1000000"
# On a loaded host TCG loses a boot now and then: a processor spins for ever on
# an instruction that the kernel is patching.
BOOT_S = 240
BOOTS = 4

# Of the environment, what a guest's command gets.
ENV = re.compile(r"^(PATH|HOME|LANG|LC_\w+|O|SAN|PYTHON\w+|BASALT\w*"
                 r"|\w+SAN_OPTIONS)$")


class Died(basalt.Failure):
    """The guest ended, and its command had not."""


class TimedOut(basalt.Failure):
    """The guest was ended because its time was over."""


def size_bytes(text):
    """512M, 8G -> bytes; None if it is no size."""
    m = re.match(r"^(\d+)([MG])$", text)
    return int(m.group(1)) << {"M": 20, "G": 30}[m.group(2)] if m else None


def unpacked(series):
    """(folder, version) of the kernel of a series, or of the release's own."""
    top = os.path.join(basalt.TOP, "build", "vm",
                       "kernel-" + series if series else "kernel")
    version = os.path.join(top, "version")
    if not os.path.exists(version):
        raise basalt.Failure("no kernel is unpacked: " +
                             ("deploy/vm-kernel " + series if series
                              else "deploy/deps vm"))
    with open(version) as f:
        return top, f.read().strip()


def kernel(series=None):
    """(version, vmlinux, initramfs); what is not there yet is made."""
    top, kver = unpacked(series)
    return kver, vmlinux(top), initramfs(top, kver)


def vmlinux(top):
    """The kernel out of its vmlinuz, which QEMU starts too (PVH): a guest takes
    as long to unpack it as for all the rest of its boot."""
    path = os.path.join(top, "vmlinux")
    if os.path.exists(path):
        return path
    with open(os.path.join(top, "vmlinuz"), "rb") as f:
        image = f.read()
    # Linux/x86's boot protocol 2.08: setup_sects, payload_offset and
    # payload_length, of which the last four bytes are the size unpacked.
    offset, length = struct.unpack_from("<II", image, 0x248)
    offset += (image[0x1f1] + 1) * 512
    payload = image[offset:offset + length - 4]
    unpacker = "zstd" if payload.startswith(b"\x28\xb5\x2f\xfd") else "xz"
    new = "%s.%d" % (path, os.getpid())
    with open(new, "wb") as f:
        subprocess.run([unpacker, "-dc"], check=True, input=payload, stdout=f)
    os.rename(new, path)
    return path


def initramfs(top, kver):
    path = os.path.join(top, "initramfs")
    made_of = (INIT, os.path.abspath(__file__), os.path.join(top, "version"))
    if os.path.exists(path) and \
            os.path.getmtime(path) > max(os.path.getmtime(f) for f in made_of):
        return path
    root = basalt.scratch("initramfs")
    for d in ("bin", "dev", "proc", "sys", "modules", "lower", "upper", "new",
              "tmp"):
        os.mkdir(os.path.join(root, d))
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin", "busybox"))
    shutil.copy(INIT, os.path.join(root, "init"))
    os.chmod(os.path.join(root, "init"), 0o755)
    with open(os.path.join(root, "settings"), "w") as f:
        f.write("tree=%s\nmodules=%s\n" %
                (shlex.quote(basalt.TOP),
                 shlex.quote(os.path.join(top, "lib", "modules"))))
    with open(os.path.join(root, "modules", "order"), "w") as f:
        for module in module_files(top, kver):
            f.write(unpack(module, os.path.join(root, "modules")) + "\n")
    new = "%s.%d" % (path, os.getpid())
    archive(root, new)
    os.rename(new, path)
    shutil.rmtree(root, True)
    return path


def unpack(module, to):
    """Copy a module into the directory @to, not compressed any more: its name."""
    name, packed = os.path.splitext(os.path.basename(module))
    if packed != ".xz":
        shutil.copy(module, to)
        return name + packed
    with lzma.open(module) as f, open(os.path.join(to, name), "wb") as plain:
        shutil.copyfileobj(f, plain)
    return name


def archive(root, out):
    """The directory @root as the kernel unpacks an initramfs."""
    names = subprocess.run(["find", "."], cwd=root, check=True,
                           stdout=subprocess.PIPE).stdout
    packed = subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=root,
                            check=True, input=names,
                            stdout=subprocess.PIPE).stdout
    with open(out, "wb") as f:
        f.write(gzip.compress(packed, 1))


def small(out, init, programs=(), modules=()):
    """An initramfs that is all of a guest: busybox, @init, and what else of this
    host @programs need; @init loads /modules in the order of /modules/order."""
    root = basalt.scratch("initrd")
    for d in ("bin", "dev", "proc", "sys", "modules", "tmp", "run"):
        os.mkdir(os.path.join(root, d))
    wanted = {shutil.which("busybox"): "/bin/busybox"}
    for name in programs:
        path = shutil.which(name, path=os.environ.get("PATH", "") +
                            ":/usr/sbin:/sbin")
        if path is None:
            raise basalt.Failure("%s is missing: deploy/deps vm" % name)
        wanted[path] = "/sbin/" + name
        linked = basalt.run(["ldd", path])[1]
        wanted.update((p, p) for p in re.findall(r"(/\S+) \(0x", linked))
    order = [unpack(f, root + "/modules")
             for f in module_files(*unpacked(None), modules)]
    for source, to in wanted.items():
        os.makedirs(os.path.dirname(root + to), exist_ok=True)
        shutil.copy(source, root + to)
    with open(root + "/modules/order", "w") as f:
        f.writelines(name + "\n" for name in order)
    with open(root + "/init", "w") as f:
        f.write(init)
    os.chmod(root + "/init", 0o755)
    archive(root, out)
    shutil.rmtree(root, True)


def module_files(top, kver, modules=MODULES):
    """The files of @modules and of what they need, in the order to load them."""
    modprobe = shutil.which("modprobe", path=os.environ.get("PATH", "") +
                            ":/usr/sbin:/sbin")
    files = []
    for name in modules:
        status, out = basalt.run([modprobe, "-d", top, "-S", kver,
                                  "--show-depends", name])
        if status != 0:
            raise basalt.Failure("modprobe %s: %s" % (name, out))
        for line in out.split("\n"):
            word = line.split()
            if word[:1] == ["insmod"] and word[1] not in files:
                files.append(word[1])
    return files


def pump(source, sink):
    """Copy to the end; what nobody takes any more is dropped."""
    while True:
        data = os.read(source, 65536)
        if not data:
            break
        while data and sink is not None:
            try:
                data = data[os.write(sink, data):]
            except OSError:
                sink = None
    os.close(source)


def clock():
    """For the kernel's command line: how fast its clock goes.  On a busy host it finds
    a third of that now and then, and time flies."""
    status, out = basalt.run([basalt.tool("t_tsc")], 60)
    return " tsc_early_khz=" + out.strip() if status == 0 else ""


class Guest:
    """One boot, one command; made, it is running.

    @argv runs in the directory of the tree, as root, its output in one stream
    to the descriptor @out.  @disks: sizes (a fresh disk, gone with the guest)
    or whatever QEMU takes as a file of a raw image; /dev/vda, vdb, ...  @smp:
    processors; without it 1, in the soak 2: for the host a second one is as much
    work again, most of it waiting.  @qemu: further arguments of QEMU.  @share: a
    directory to keep; without it, one that is gone with this script.  @own_time:
    one processor, whose clock goes with its instructions, 1 ns each: a host that
    is busy makes such a guest slow, but nothing in it late.
    """

    def __init__(self, argv, disks=(), smp=None, mem="2G", out=1, env=None,
                 qemu=(), share=None, own_time=False):
        if shutil.which(QEMU) is None:
            raise basalt.Failure("%s is missing: deploy/deps vm" % QEMU)
        self.dir = basalt.scratch("vm")
        self.share = share or os.path.join(self.dir, "share")
        os.makedirs(self.share, exist_ok=True)
        self.console = os.path.join(self.share, "console.log")
        self.write_command(argv, env or {})
        _, image, initrd = kernel(os.environ.get("BASALT_KERNEL"))
        thread, cmdline = "multi", CMDLINE
        smp = smp or (2 if basalt.SOAK else 1)
        if own_time:
            thread, smp = "single", 1
            cmdline += OWN_TIME
            qemu = list(qemu) + ["-icount", "shift=0,sleep=on"]
        else:
            cmdline += clock()
        args = [QEMU, "-M", "q35", "-accel", "tcg,thread=" + thread,
                "-cpu", CPU, "-smp", str(smp),
                "-m", mem, "-display", "none", "-monitor", "none",
                "-no-reboot", "-no-user-config", "-nodefaults",
                "-serial", "file:" + self.console,
                "-kernel", image, "-initrd", initrd, "-append", cmdline,
                "-device", "virtio-rng-pci"]
        args += self.mount("root", "/") + self.mount("run", self.share)
        for i, disk in enumerate(disks):
            args += self.disk(i, disk)
        self.args = args + list(qemu)
        self.log = os.path.join(self.dir, "qemu.log")
        for _ in range(BOOTS):
            self.spawn(out)
            if self.booted():
                return
            self.kill()
        raise TimedOut("%d boots came to nothing\n%s" % (BOOTS, self.tail()))

    def spawn(self, out):
        for name in ("started", "status", "console.log"):
            path = os.path.join(self.share, name)
            if os.path.exists(path):
                os.unlink(path)
        # Not QEMU's stdio: the end of its input would close the port.
        output, end = os.pipe()
        args = ["-add-fd", "fd=%d,set=1" % end,
                "-chardev", "file,id=out,path=/dev/fdset/1,append=on",
                "-device", "virtio-serial-pci",
                "-device", "virtserialport,chardev=out,name=out"]
        with open(self.log, "w") as log:
            self.proc = basalt.popen(self.args + args, stdout=log, stderr=log,
                                     pass_fds=[end])
        os.close(end)
        self.pump = threading.Thread(target=pump, args=(output, out),
                                     daemon=True)
        self.pump.start()

    def booted(self):
        """Wait until the command starts or QEMU ends; False after BOOT_S."""
        until = time.monotonic() + BOOT_S
        while time.monotonic() < until:
            if self.proc.poll() is not None or \
                    os.path.exists(os.path.join(self.share, "started")):
                return True
            time.sleep(0.1)
        return False

    def write_command(self, argv, env):
        keep = {k: v for k, v in os.environ.items() if ENV.match(k)}
        keep.update(env)
        with open(os.path.join(self.share, "command"), "w") as f:
            for k, v in sorted(keep.items()):
                f.write("export %s=%s\n" % (k, shlex.quote(v)))
            f.write("cd %s || exit 125\nexec %s\n" %
                    (shlex.quote(basalt.TOP), shlex.join(argv)))

    @staticmethod
    def mount(tag, path):
        read_only = ",readonly=on" if tag == "root" else ""
        return ["-virtfs", "local,path=%s,mount_tag=%s,security_model=none,"
                "multidevs=remap%s" % (path.replace(",", ",,"), tag, read_only)]

    def disk(self, i, spec):
        size = size_bytes(spec)
        cache = "none"
        if size is not None:
            # What it holds ends with the guest: its flushes need not be real.
            cache = "unsafe"
            spec = os.path.join(self.dir, "disk%d" % i)
            with open(spec, "wb") as f:
                f.truncate(size)
        return ["-drive", "if=none,id=disk%d,format=raw,discard=unmap,"
                "cache=%s,file=%s" % (i, cache, spec.replace(",", ",,")),
                "-device", "virtio-blk-pci,drive=disk%d,serial=disk%d" % (i, i)]

    def wait(self, limit):
        """The command's exit status; raises Died or TimedOut."""
        try:
            self.proc.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimedOut("no end within %d s\n%s" % (limit, self.tail()))
        self.pump.join()
        try:
            with open(os.path.join(self.share, "status")) as f:
                return int(f.read())
        except (OSError, ValueError):
            raise Died("the guest died (QEMU's status %s)\n%s" %
                       (self.proc.returncode, self.tail()))

    def freeze(self):
        """It does nothing any more, and its initiators see nothing of that."""
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.proc.pid,
                      os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self):
        """kill -9, as when the power goes."""
        self.proc.kill()
        self.proc.wait()
        self.pump.join()

    def tail(self, lines=60):
        """The end of its console, and what QEMU had to say."""
        text = []
        for path in (self.console, self.log):
            try:
                with open(path, errors="replace") as f:
                    text += f.read().replace("\r", "").split("\n")[-lines:]
            except OSError:
                pass
        return "\n".join(text).rstrip()
