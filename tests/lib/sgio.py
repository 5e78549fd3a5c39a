"""SCSI commands by SG_IO: nothing repeats them, nothing caches what they read.

    status, data, sense = sgio.read(sgio.unit("/dev/sda"), block, count)
"""
import ctypes
import errno
import fcntl
import os
import struct
import time

SG_IO = 0x2285
GOOD, CHECK, BUSY, CONFLICT, FULL = 0x00, 0x02, 0x08, 0x18, 0x28
UNIT_ATTENTION, MISCOMPARE = 6, 14
BECOMING_READY = 2, 4, 1

# PERSISTENT RESERVE OUT
REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_ABORT, IGNORE, MOVE = range(8)
SPEC_I_PT, APTPL = 8, 1


class Header(ctypes.Structure):
    """struct sg_io_hdr of scsi/sg.h."""
    _fields_ = [
        ("interface_id", ctypes.c_int), ("dxfer_direction", ctypes.c_int),
        ("cmd_len", ctypes.c_ubyte), ("mx_sb_len", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort), ("dxfer_len", ctypes.c_uint),
        ("dxferp", ctypes.c_void_p), ("cmdp", ctypes.c_void_p),
        ("sbp", ctypes.c_void_p), ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint), ("pack_id", ctypes.c_int),
        ("usr_ptr", ctypes.c_void_p), ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte), ("msg_status", ctypes.c_ubyte),
        ("sb_len_wr", ctypes.c_ubyte), ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort), ("resid", ctypes.c_int),
        ("duration", ctypes.c_uint), ("info", ctypes.c_uint)]


class Lost(Exception):
    """No answer came: what the command did is not known."""


def unit(path):
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def send(fd, cdb, out=None, data_in=0, limit_ms=300000):
    """(status, what came in, sense as (key, asc, ascq) or None)."""
    size = len(out) if out is not None else data_in
    data = ctypes.create_string_buffer(out or b"", max(size, 1))
    command = ctypes.create_string_buffer(bytes(cdb), len(cdb))
    sense = ctypes.create_string_buffer(64)
    h = Header(ord("S"), -2 if out is not None else -3 if data_in else -1,
               len(cdb), len(sense), 0, size, ctypes.addressof(data),
               ctypes.addressof(command), ctypes.addressof(sense), limit_ms)
    try:
        fcntl.ioctl(fd, SG_IO, h)
    except OSError as e:
        if e.errno == errno.ENODEV:     # its session is away
            raise Lost(str(e))
        raise
    if h.host_status:
        raise Lost("host status %#x" % h.host_status)
    s, known = sense.raw[:h.sb_len_wr], None
    if len(s) >= 4 and s[0] & 0x7f >= 0x72:
        known = s[1] & 15, s[2], s[3]
    elif len(s) >= 14:
        known = s[2] & 15, s[12], s[13]
    return h.status, data.raw[:size - h.resid] if data_in else b"", known


def later(status, sense):
    """Is it told to come again?  It has done nothing."""
    return status in (BUSY, FULL) or sense == BECOMING_READY or \
        (sense or (0,))[0] == UNIT_ATTENTION


def patient(command, *args, limit=600):
    """What came in, once the unit takes the command: for what may be repeated."""
    until = time.monotonic() + limit
    while True:
        try:
            status, data, sense = command(*args)
        except Lost as e:
            status, sense = str(e), None
        if status == GOOD:
            return data
        if not isinstance(status, str) and not later(status, sense) or \
                time.monotonic() > until:
            raise OSError("%s: status %s, sense %s" % (
                command.__name__, status, sense))
        time.sleep(0.02)


def attentions(fd):
    """[(asc, ascq)] of the unit attentions that were pending."""
    told = []
    while True:
        _, _, sense = send(fd, bytes(6))
        if sense is None or sense[0] != UNIT_ATTENTION:
            return told
        told.append(sense[1:])


def read(fd, block, count):
    return send(fd, struct.pack(">BBQIBB", 0x88, 0, block, count, 0, 0),
                data_in=count * 512)


def write(fd, block, data):
    return send(fd, struct.pack(">BBQIBB", 0x8a, 0, block, len(data) // 512,
                                0, 0), out=data)


def compare_and_write(fd, block, old, new):
    return send(fd, struct.pack(">BBQ3xBBB", 0x89, 0, block, len(old) // 512,
                                0, 0), out=old + new)


# ---- persistent reservations ----

def pr_out(fd, action, key=0, action_key=0, kind=0, flags=0, more=b""):
    """Its status.  @kind: the type; @flags: byte 20; @more: what follows."""
    return send(fd, struct.pack(">BBB2xIB", 0x5f, action, kind,
                                24 + len(more), 0),
                out=struct.pack(">QQ4xB3x", key, action_key, flags) + more)[0]


def pr_move(fd, key, action_key, port, transport_id, unregister):
    """REGISTER AND MOVE, to relative target port @port; its status."""
    return send(fd, struct.pack(">BBB2xIB", 0x5f, MOVE, 0,
                                24 + len(transport_id), 0),
                out=struct.pack(">QQxBHI", key, action_key, 2 * unregister,
                                port, len(transport_id)) + transport_id)[0]


def pr_in(fd, action):
    return patient(send, fd, struct.pack(">BB5xHB", 0x5e, action, 16384, 0),
                   None, 16384)


def keys(fd):
    d = pr_in(fd, 0)
    return sorted(k for k, in struct.iter_unpack(
        ">Q", d[8:8 + struct.unpack(">I", d[4:8])[0]]))


def holder(fd):
    """(key, type) of the reservation, None without one."""
    d = pr_in(fd, 1)
    if struct.unpack(">I", d[4:8])[0] == 0:
        return None
    return struct.unpack(">Q", d[8:16])[0], d[21] & 15


def registrations(fd):
    """[(key, relative target port, TransportID)]."""
    d, at, found = pr_in(fd, 3), 8, []
    while at < len(d):
        key, port, size = struct.unpack(">Q10xHI", d[at:at + 24])
        found.append((key, port, d[at + 24:at + 24 + size]))
        at += 24 + size
    return found
