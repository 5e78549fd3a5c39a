"""An initiator of bytes: sends what a test wants to send, right or wrong.

RFC 7143 layouts; nothing here retries, repairs or hides anything.
"""
import hashlib
import os
import socket
import struct
import time

LOGIN, LOGIN_RSP = 0x03, 0x23
NOP_OUT, NOP_IN = 0x00, 0x20
SCSI, SCSI_RSP = 0x01, 0x21
TMF, TMF_RSP = 0x02, 0x22
TEXT, TEXT_RSP = 0x04, 0x24
DATA_OUT, DATA_IN = 0x05, 0x25
LOGOUT, LOGOUT_RSP = 0x06, 0x26
R2T, ASYNC, REJECT = 0x31, 0x32, 0x3f
SNACK = 0x10
NO_TAG = 0xffffffff

INITIATOR = "iqn.2026-11.internal.basalt:raw"


def crc32c_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82f63b78 if i & 1 else 0)
        table.append(i)
    return table


_TABLE = crc32c_table()


def crc32c(data):
    crc = 0xffffffff
    for b in data:
        crc = _TABLE[(crc ^ b) & 255] ^ (crc >> 8)
    return crc ^ 0xffffffff


def text(pairs):
    """Keys and values as they travel; a plain string goes as it is."""
    return b"".join((p if isinstance(p, str) else "%s=%s" % p).encode("latin1")
                    + b"\0" for p in pairs)


def read10(lba, blocks=1):
    return struct.pack(">BBIBHB", 0x28, 0, lba, 0, blocks, 0)


def write10(lba, blocks=1):
    return struct.pack(">BBIBHB", 0x2a, 0, lba, 0, blocks, 0)


class Closed(Exception):
    """The target ended the connection."""


class Pdu:
    def __init__(self, bhs, data):
        self.bhs, self.data = bhs, data
        self.opcode = bhs[0] & 0x3f
        self.itt = struct.unpack(">I", bhs[16:20])[0]
        self.ttt = struct.unpack(">I", bhs[20:24])[0]
        self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn = \
            struct.unpack(">III", bhs[24:36])
        # SCSI Response / Data-In with status, Login Response
        self.response, self.status = bhs[2], bhs[3]
        self.login_status = struct.unpack(">H", bhs[36:38])[0]

    def keys(self):
        out = {}
        for part in self.data.split(b"\0"):
            if b"=" in part:
                k, v = part.decode("latin1").split("=", 1)
                out[k] = v
        return out

    def sense(self):
        """(key, asc, ascq) of a SCSI Response, fixed or descriptor."""
        if len(self.data) < 2:
            return None
        s = self.data[2:]
        if len(s) >= 4 and s[0] & 0x7f in (0x72, 0x73):
            return s[1] & 15, s[2], s[3]
        if len(s) >= 14:
            return s[2] & 15, s[12], s[13]
        return None


class Conn:
    def __init__(self, port, timeout=60, host="127.0.0.1"):
        self.sock = socket.create_connection((host, port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.isid = b"\x80" + os.urandom(5)
        self.tsih = 0
        self.cmd_sn, self.exp_stat_sn, self.itt = 1, 0, 0
        self.header_digest = self.data_digest = False

    def close(self):
        self.sock.close()

    # ---- bytes ----

    def raw(self, data):
        self.sock.sendall(data)

    def recv_exact(self, n):
        out = b""
        while len(out) < n:
            try:
                part = self.sock.recv(n - len(out))
            except ConnectionError:
                raise Closed
            if not part:
                raise Closed
            out += part
        return out

    def recv(self):
        bhs = self.recv_exact(48)
        ahs = self.recv_exact(bhs[4] * 4)
        if self.header_digest:
            got = struct.unpack("<I", self.recv_exact(4))[0]
            assert got == crc32c(bhs + ahs), "header digest of the target"
        n = int.from_bytes(bhs[5:8], "big")
        padded = self.recv_exact((n + 3) & ~3)
        if n and self.data_digest:
            got = struct.unpack("<I", self.recv_exact(4))[0]
            assert got == crc32c(padded), "data digest of the target"
        pdu = Pdu(bhs, padded[:n])
        if pdu.opcode not in (R2T,) and pdu.bhs[0] != 0xff:
            self.exp_stat_sn = (pdu.stat_sn + 1) & 0xffffffff
        return pdu

    def closed_within(self, seconds):
        """Does the target end the connection?  What it sends before is read."""
        self.sock.settimeout(seconds)
        try:
            while self.sock.recv(65536):
                pass
            return True
        except socket.timeout:
            return False
        except ConnectionError:
            return True

    def next_itt(self):
        self.itt += 1
        return self.itt

    def send(self, op, flags=0x80, data=b"", lun=0, itt=None, ttt=NO_TAG,
             immediate=False, b2=0, b3=0, tail=b"", ahs=b"", length=None,
             cmd_sn=None, word20=None, spoil_header=False, spoil_data=False):
        """One request.  Fields a test does not name are right."""
        itt = self.next_itt() if itt is None else itt
        length = len(data) if length is None else length
        sn = self.cmd_sn if cmd_sn is None else cmd_sn
        bhs = struct.pack(">BBBBB3sQIIII", op | (0x40 if immediate else 0),
                          flags, b2, b3, len(ahs) // 4,
                          length.to_bytes(3, "big"), lun << 48, itt,
                          ttt if word20 is None else word20, sn & 0xffffffff,
                          self.exp_stat_sn)
        bhs += tail.ljust(16, b"\0")
        out = bhs + ahs
        if self.header_digest:
            out += struct.pack("<I", crc32c(bhs + ahs) ^ (1 if spoil_header
                                                         else 0))
        if data:
            padded = data + bytes(-len(data) % 4)
            out += padded
            if self.data_digest:
                out += struct.pack("<I", crc32c(padded) ^ (1 if spoil_data
                                                          else 0))
        self.raw(out)
        if not immediate and op in (SCSI, TMF, TEXT, LOGOUT, NOP_OUT) and \
                cmd_sn is None:
            self.cmd_sn = (self.cmd_sn + 1) & 0xffffffff
        return itt

    # ---- login ----

    def login_pdu(self, data, csg=1, nsg=3, transit=True, cont=False, itt=0,
                  cid=0, version_min=0, isid=None, tsih=None, flags=None,
                  opcode=0x43, length=None):
        if flags is None:
            flags = (0x80 if transit else 0) | (0x40 if cont else 0) | \
                csg << 2 | nsg
        length = len(data) if length is None else length
        bhs = struct.pack(">BBBBB3s6sHIHHII", opcode, flags, version_min,
                          version_min, 0, length.to_bytes(3, "big"),
                          self.isid if isid is None else isid,
                          self.tsih if tsih is None else tsih, itt, cid, 0,
                          self.cmd_sn, self.exp_stat_sn)
        self.raw(bhs.ljust(48, b"\0") + data + bytes(-len(data) % 4))

    def login(self, target, extra=(), initiator=INITIATOR, csg=1):
        """The usual login; returns the last response, whatever it says."""
        pairs = [("InitiatorName", initiator)]
        pairs += [("SessionType", "Normal"), ("TargetName", target)] \
            if target else [("SessionType", "Discovery")]
        self.login_pdu(text(pairs + list(extra)), csg=csg)
        rsp = self.recv()
        if rsp.login_status == 0 and rsp.bhs[1] & 0x83 == 0x83:
            self.tsih = struct.unpack(">H", rsp.bhs[14:16])[0]
            keys = rsp.keys()
            self.header_digest = keys.get("HeaderDigest") == "CRC32C"
            self.data_digest = keys.get("DataDigest") == "CRC32C"
        return rsp

    def logout(self):
        """Close the session; the target has ended it when this returns."""
        itt = self.send(LOGOUT, word20=0)
        while self.recv().itt != itt:
            pass
        self.closed_within(60)
        self.close()

    # ---- full feature ----

    def scsi(self, cdb, read=0, write=b"", lun=0, edtl=None, flags=None, **kw):
        """Send a command with its data immediate; returns its tag."""
        if flags is None:
            flags = 0x80 | (0x40 if read else 0) | (0x20 if write else 0)
        edtl = (read or len(write)) if edtl is None else edtl
        return self.send(SCSI, flags, data=write, lun=lun, word20=edtl,
                         tail=cdb, **kw)

    def result(self, itt):
        """(status, data, response) of command @itt; other PDUs are read over."""
        data = b""
        while True:
            pdu = self.recv()
            if pdu.itt != itt:
                if pdu.opcode == REJECT:
                    return None, data, pdu
                continue
            if pdu.opcode == DATA_IN:
                data += pdu.data
                if pdu.bhs[1] & 1:
                    return pdu.status, data, pdu
            elif pdu.opcode == SCSI_RSP:
                return pdu.status, data, pdu
            else:
                return None, data, pdu

    def ready(self, lun=0, limit=60):
        """TEST UNIT READY until the unit attentions are gone, and for @limit
        seconds while it becomes ready; True if good."""
        until = time.monotonic() + limit
        others = 0
        while others < 10 and time.monotonic() < until:
            status, _, rsp = self.result(self.scsi(bytes(6), lun=lun))
            if status == 0:
                return True
            if status == 2 and (rsp.sense() or (0,))[0] == 2:
                # NOT READY: it is being opened
                time.sleep(0.01)
            else:
                others += 1
        return False

    def ping(self, data=b"pingpong"):
        itt = self.send(NOP_OUT, data=data)
        while True:
            pdu = self.recv()
            if pdu.opcode == NOP_IN and pdu.itt == itt:
                return pdu.data == data


# ---- CHAP ----

DIGESTS = {5: "md5", 6: "sha1", 7: "sha256", 8: "sha3_256"}


def chap_response(alg, ident, secret, challenge):
    return hashlib.new(DIGESTS[alg], bytes([ident]) + secret +
                       challenge).digest()


def chap_login(conn, target, user, secret, algs="5", mutual=None,
               alter=lambda pairs, got: pairs, reflect=False,
               initiator=INITIATOR):
    """(last response, what the target proved) of a CHAP login.

    @mutual: (user, secret) expected of the target.  @alter changes the keys of
    the answer; @got are the target's CHAP_A, CHAP_I and CHAP_C.
    """
    conn.login_pdu(text([("InitiatorName", initiator),
                         ("SessionType", "Normal"), ("TargetName", target),
                         ("AuthMethod", "CHAP")]), csg=0, nsg=1, transit=False)
    rsp = conn.recv()
    if rsp.login_status or rsp.keys().get("AuthMethod") != "CHAP":
        return rsp, None
    conn.login_pdu(text([("CHAP_A", algs)]), csg=0, nsg=1, transit=False)
    rsp = conn.recv()
    got = rsp.keys()
    if rsp.login_status or "CHAP_C" not in got:
        return rsp, None
    alg, ident = int(got["CHAP_A"]), int(got["CHAP_I"])
    challenge = bytes.fromhex(got["CHAP_C"][2:])
    proof = chap_response(alg, ident, secret, challenge)
    pairs = [("CHAP_N", user), ("CHAP_R", "0x" + proof.hex())]
    mine = challenge if reflect else os.urandom(16)
    if mutual:
        pairs += [("CHAP_I", "17"), ("CHAP_C", "0x" + mine.hex())]
    conn.login_pdu(text(alter(pairs, got)), csg=0, nsg=1, transit=True)
    rsp = conn.recv()
    if rsp.login_status:
        return rsp, None
    proved = None
    if mutual:
        keys = rsp.keys()
        want = chap_response(alg, 17, mutual[1], mine)
        proved = keys.get("CHAP_N") == mutual[0] and \
            keys.get("CHAP_R", "").lower() == "0x" + want.hex()
    conn.login_pdu(b"", csg=1, nsg=3)
    rsp = conn.recv()
    return rsp, proved
