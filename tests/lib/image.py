"""The file of a disk, and what is found in it (lsom/format.h)."""
import struct

BLOCK = 4096
START = 1 << 20


class Image:
    """As it was when it was read; what rots is the file."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.bytes = f.read()

    def rot(self, block):
        with open(self.path, "r+b") as f:
            f.seek(block * BLOCK + 100)
            byte = f.read(1)[0]
            f.seek(block * BLOCK + 100)
            f.write(bytes([byte ^ 0x40]))

    def headers(self):
        """{batch: block} of the guests' head in the newest generation."""
        found, newest = {}, 0
        for at in range(START, len(self.bytes), BLOCK):
            if self.bytes[at:at + 4] != b"BBAT":
                continue
            generation, _, batch = struct.unpack_from("<QQQ", self.bytes,
                                                      at + 24)
            head, = struct.unpack_from("<H", self.bytes, at + 64)
            if head != 0 or generation < newest:
                continue
            if generation > newest:
                found, newest = {}, generation
            found[batch] = at // BLOCK
        return found

    def find(self, text):
        """The block that begins with @text, or None."""
        for at in range(START, len(self.bytes), BLOCK):
            if self.bytes[at:at + len(text)] == text:
                return at // BLOCK
        return None


def pattern(lba, seed):
    word = (seed * 0x9e3779b97f4a7c15 + lba * 31) % (1 << 64)
    return struct.pack("<Q", word)
