"""A QEMU that is told what to do while it runs (QMP)."""
import atexit
import json
import os
import select
import shutil
import socket
import tempfile
import time

import basalt
import vm


class Refused(basalt.Failure):
    """QEMU's answer to a command was an error."""


class Qemu:
    """QEMU with @args; commands wait for their answer, events for whom they are."""

    def __init__(self, args, limit=60):
        if shutil.which(vm.QEMU) is None:
            raise basalt.Failure("%s is missing: deploy/deps vm" % vm.QEMU)
        # sockaddr_un has 108 bytes: not below a tree of any depth.
        self.dir = tempfile.mkdtemp(prefix="basalt-")
        atexit.register(shutil.rmtree, self.dir, True)
        path = os.path.join(self.dir, "qmp")
        self.log = os.path.join(self.dir, "log")
        with open(self.log, "w") as log:
            self.proc = basalt.popen(
                [vm.QEMU, "-display", "none", "-no-user-config", "-nodefaults",
                 "-monitor", "none", "-qmp", "unix:%s,server=on,wait=off" % path]
                + list(args), stdout=log, stderr=log)
        self.rest, self.events = b"", []
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            basalt.wait_for("QEMU", limit, lambda: self.connected(path))
        finally:
            if os.path.exists(path):
                os.unlink(path)
        self.line(limit)
        self("qmp_capabilities")

    def connected(self, path):
        """Its socket is there before it listens."""
        if self.proc.poll() is not None:
            raise basalt.Failure("QEMU does not start: " + self.said())
        try:
            self.sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def said(self):
        with open(self.log, errors="replace") as f:
            return f.read()[-2000:]

    def line(self, limit):
        """The next that it says, None if there is nothing within @limit s."""
        until = time.monotonic() + limit
        while b"\n" not in self.rest:
            left = max(0, until - time.monotonic())
            if not select.select([self.sock], [], [], left)[0]:
                return None
            data = self.sock.recv(65536)
            if not data:
                raise basalt.Failure("QEMU ended: " + self.said())
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def __call__(self, command, limit=120, **arguments):
        """What @command returns; an underscore in a name is a dash."""
        arguments = {k.replace("_", "-"): v for k, v in arguments.items()}
        self.sock.sendall(json.dumps({"execute": command, "arguments":
                                      arguments}).encode() + b"\n")
        until = time.monotonic() + limit
        while True:
            said = self.line(max(0, until - time.monotonic()))
            if said is None:
                raise basalt.Failure("QEMU does not answer " + command)
            if "event" in said:
                self.events.append(said)
            elif "error" in said:
                raise Refused("%s: %s" % (command, said["error"]["desc"]))
            else:
                return said["return"]

    def event(self, name, limit=300, **data):
        """Wait for event @name that has @data; those before it are dropped."""
        until = time.monotonic() + limit
        while True:
            while self.events:
                event = self.events.pop(0)
                if event["event"] == name and \
                        data.items() <= event.get("data", {}).items():
                    return event.get("data", {})
            said = self.line(max(0, until - time.monotonic()))
            if said is None:
                raise basalt.Failure("no %s of QEMU within %d s\n%s" %
                                     (name, limit, self.said()))
            self.events.append(said)

    def io(self, device, command):
        """qemu-io's @command on what device @device has for a drive."""
        out = self("human-monitor-command", command_line='qemu-io -d '
                   '/machine/peripheral/%s "%s"' % (device, command))
        if "failed" in out or "rror" in out:
            raise Refused("qemu-io %s: %s" % (command, out))
        return out

    def end(self):
        self.proc.kill()
        self.proc.wait()
        shutil.rmtree(self.dir, True)
