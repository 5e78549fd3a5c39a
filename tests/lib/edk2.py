"""The iSCSI initiator of EDK2, as OVMF has it: its settings, in the flash of a machine.

The firmware makes eight empty attempts at its first start, one variable each
(NetworkPkg/IScsiDxe); the first is filled in here, as its setup would.
"""
import struct

import basalt

CODE = "/usr/share/OVMF/OVMF_CODE_4M.fd"
VARS = "/usr/share/OVMF/OVMF_VARS_4M.fd"
ADDED = 0x3f            # the state of a variable that holds
WRITING = 0xc0          # bits of the state until then
KEPT = 3                # attributes: non-volatile, of boot services
SIZE = 1049             # of an attempt


def variables(flash):
    """([(name, state, guid, where its data is, length)], where the last one ends)"""
    at = struct.unpack_from("<H", flash, 48)[0] + 28
    found = []
    while flash[at:at + 2] == b"\xaa\x55":
        name_len, data_len = struct.unpack_from("<II", flash, at + 36)
        data = at + 60 + name_len
        found.append((flash[at + 60:data].decode("utf-16le").rstrip("\0"),
                      flash[at + 2], bytes(flash[at + 44:at + 60]), data, data_len))
        at = data + data_len + 3 & ~3
    return found, at


def made(path):
    """Has the firmware been there, and is nothing half written?"""
    with open(path, "rb") as f:
        found = variables(f.read())[0]
    return any(v[0] == "Attempt 8" for v in found) and \
        not any(v[1] & WRITING for v in found)


def variable(name, guid, data):
    name = (name + "\0").encode("utf-16le")
    new = struct.pack("<HBBIQ16sIII16s", 0x55aa, ADDED, 0, KEPT, 0, b"", 0,
                      len(name), len(data), guid) + name + data
    return new + b"\xff" * (-len(new) % 4)


def attempt_set(path, initiator, mac, port, target, chap=None):
    """Log in from 10.0.2.15 to @port of 10.0.2.2; @chap: (user, secret, the target's
    user, its secret)."""
    with open(path, "rb") as f:
        flash = bytearray(f.read())
    found, end = variables(flash)
    guid, at = [(v[2], v[3]) for v in found if v[0] == "Attempt 1" and
                v[1] == ADDED and v[4] == SIZE][0]
    if struct.unpack_from("<H", flash, at + 182)[0] != 3260 or \
            struct.unpack_from("<H", flash, at + 473)[0] != 1000:
        raise basalt.Failure("OVMF's attempts have another form")

    def put(offset, data):
        flash[at + offset:at + offset + len(data)] = data
    put(38, mac.upper().encode() + b"\0")
    put(182, struct.pack("<HBB", port, 1, 0))           # enabled, IPv4
    put(186, bytes((10, 0, 2, 15)))
    put(202, bytes((255, 255, 255, 0)))
    put(206, bytes((10, 0, 2, 2)))
    put(224, target.encode() + b"\0")
    put(448, bytes((10, 0, 2, 2)))
    put(473, struct.pack("<HB", 10000, 4))              # ms, and tries
    put(476, b"\0\2\x3d\1\2\3")                         # ISID
    put(757, bytes((1 if chap else 0, 1)))              # CHAP, and mutual
    for offset, text in zip((759, 886, 903, 1030), chap or ()):
        put(offset, text.encode() + b"\0")
    put(1048, b"\1")                                    # active
    group = [v[2] for v in found if v[0] == "InitialAttemptOrder"][0]
    new = variable("AttemptOrder", group, b"\1") + \
        variable("I_NAME", guid, initiator.encode() + b"\0")
    flash[end:end + len(new)] = new
    with open(path, "wb") as f:
        f.write(flash)
