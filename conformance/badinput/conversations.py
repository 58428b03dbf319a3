"""Conversations that are nearly right: valid commands with one thing changed.

Every command that a node serves is made with values that make sense, and with those at the edges of
what does; then now and then a byte, a length, the order or the end is another one.
"""

import struct

from mcbp import frame

NUMBERS = [0, 1, 2, 3, 5, 8, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
           0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF]  # fmt: skip
KEYS = [b"k1", b"k2", b"k3", b"", b"x" * 250, b"\x08c", b"\x80", b"\xff" * 5]
VALUES = [b"", b"1", b"x", b'{"a":1}', b"[1,2]", b"\xff" * 30, b"18446744073709551615", b"-1", b" 5"]
GROUPS = [b"", b"vbucket", b"vbucket-details 0", b"checkpoint", b"dcp", b"dcpagg :", b"timings",
          b"key k1 0", b"vkey k1 99999", b"failovers", b"reset", b"durability-monitor 0", b"config"]  # fmt: skip
CONTROLS = [
    (b"enable_noop", [b"true", b"false", b"x"]),
    (b"set_noop_interval", [b"1", b"0.1", b"-1", b"nan", b"1e300"]),
    (b"connection_buffer_size", [b"0", b"100", b"16384", b"4294967295", b"4294967296"]),
    (b"force_value_compression", [b"true"]),
    (b"enable_expiry_opcode", [b"true"]),
    (b"enable_stream_id", [b"true"]),
    (b"enable_sync_writes", [b"true"]),
    (b"max_marker_version", [b"2.0", b"2.2", b"9"]),
    (b"send_stream_end_on_client_close_stream", [b"true"]),
]
FILTERS = [b"", b"", b"", b'{"collections":["0"]}', b'{"collections":["8"]}', b'{"sid":1}',
           b'{"sid":65536}', b'{"scope":"0","collections":[]}', b'{"uid":5}', b"{", b"[" * 5000]  # fmt: skip
TOPOLOGIES = [b"", b'{"topology":[["a"]]}', b'{"topology":[["a","b"]]}', b'{"topology":[["a",null]]}',
              b'{"topology":[["a","b"],["a","c"]]}', b'{"topology":[]}', b"{"]  # fmt: skip
INFOS = [b"\x11\x01", b"\x11\x03", b"\x13\x01\x00\x14", b"\x13\x02\xff\xff", b"\x00", b"\x22\x00\x01",
         b"\x50", b"\x44user", b"\xf1\x00\x01", b"\x1f\x00"]  # fmt: skip
FEATURES = [3, 4, 7, 8, 0xA, 0xB, 0xC, 0xE, 0xF, 0x10, 0x11, 0x12, 0x13, 0x14, 0x1D, 0x1E, 0x1F]
# vBuckets whose state may change; others are left to the neighbour.
MOVABLE = range(1000, 1004)
SET_VBUCKET, DEL_VBUCKET = 0x3D, 0x3F


class Commands:
    """Makes commands, one after the other."""

    def __init__(self, chance):
        self.chance = chance
        self.makers = [self.store, self.store, self.count, self.join, self.keyed, self.timed, self.meta,
                       self.observe, self.numbers, self.vbucket, self.stat, self.dcp_open, self.control,
                       self.stream, self.dcp_small, self.sub_document, self.lonely, self.replicated,
                       self.hello]  # fmt: skip

    def number(self, bits):
        chance = self.chance
        some = chance.choice(NUMBERS) if chance.random() < 0.7 else chance.getrandbits(bits)
        return some & ((1 << bits) - 1)

    def key(self):
        key = self.chance.choice(KEYS)
        return b"\0" + key if self.chance.random() < 0.5 else key

    def store(self):
        extras = struct.pack(">II", self.number(32), self.number(32))
        opcode = self.chance.choice((0x01, 0x02, 0x03, 0x11, 0x12, 0x13))
        return opcode, self.key(), extras, self.chance.choice(VALUES)

    def count(self):
        extras = struct.pack(">QQI", self.number(64), self.number(64), self.number(32))
        return self.chance.choice((0x05, 0x06, 0x15, 0x16)), self.key(), extras, b""

    def join(self):
        opcode = self.chance.choice((0x0E, 0x0F, 0x19, 0x1A))
        return opcode, self.key(), b"", self.chance.choice(VALUES)

    def keyed(self):
        opcode = self.chance.choice((0x00, 0x04, 0x09, 0x0C, 0x0D, 0x14, 0x83, 0x95, 0xB6))
        return opcode, self.key(), b"", b""

    def timed(self):
        extras = struct.pack(">I", self.number(32))
        return self.chance.choice((0x1C, 0x1D, 0x1E, 0x94)), self.key(), extras, b""

    def meta(self):
        return self.chance.choice((0xA0, 0xA1)), self.key(), self.chance.choice((b"", b"\1", b"\2")), b""

    def observe(self):
        keys = self.chance.choices(KEYS, k=self.chance.randrange(4))
        value = b"".join(struct.pack(">HH", self.number(10), len(key)) + key for key in keys)
        return 0x92, b"", b"", value

    def numbers(self):
        extras = struct.pack(">QQ", self.number(64), self.number(64))
        return self.chance.choice((0x48, 0xB5, 0xF3, 0xFE)), b"", extras[: self.chance.choice((0, 4, 8, 16))], b""

    def vbucket(self):
        if self.chance.random() < 0.3:
            return DEL_VBUCKET, b"", b"", self.chance.choice((b"", b"async=0"))
        state = bytes([self.chance.choice((1, 1, 1, 2, 3, 4, 9))])
        return SET_VBUCKET, b"", state, self.chance.choice(TOPOLOGIES)

    def stat(self):
        return 0x10, self.chance.choice(GROUPS), b"", b""

    def dcp_open(self):
        flags = self.chance.choice((1, 1, 1, 5, 8, 0x21, 0x25, 0, 0xFFFFFFFF))
        return 0x50, b"mutant-%d" % self.chance.randrange(4), struct.pack(">II", 0, flags), b""

    def control(self):
        name, values = self.chance.choice(CONTROLS)
        return 0x5E, name, b"", self.chance.choice(values)

    def stream(self):
        start = self.chance.choice((0, 0, 0, 1, 3, self.number(64)))
        end = self.chance.choice((0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, start, 10, self.number(64)))
        flags = self.chance.choice((0, 0, 0, 1, 2, 4, 0x10, 0x20, 0x80, self.number(32)))
        history = self.chance.choice((0, 0, self.number(64)))
        snapshot = [start if self.chance.random() < 0.7 else self.number(64) for _ in range(2)]
        extras = struct.pack(">IIQQQQQ", flags, 0, start, end, history, *snapshot)
        return 0x53, b"", extras, self.chance.choice(FILTERS)

    def dcp_small(self):
        opcode, size = self.chance.choice(((0x52, 0), (0x54, 0), (0x5C, 0), (0x5D, 4), (0x61, 8), (0x51, 4)))
        return opcode, b"", self.number(64).to_bytes(8, "big")[8 - size :], b""

    def sub_document(self):
        path = self.chance.choice((b"a", b"a.b[0]", b"a[", b"`", b"." * 40, b"a" * 1100, b""))
        opcode = self.chance.choice((*range(0xC5, 0xD0), 0xD2))
        extras = struct.pack(">HB", len(path), self.chance.choice((0, 1, 4, 0xFF)))
        return opcode, self.key(), extras, path + self.chance.choice(VALUES)

    def lonely(self):
        return self.chance.choice((0x0A, 0x0B, 0x20, 0x87, 0x96, 0x3E, 0xBA)), b"", b"", b""

    def replicated(self):
        opcode, size = self.chance.choice(
            ((0x55, 4), (0x56, 20), (0x57, 31), (0x58, 18), (0x59, 20), (0x5B, 1), (0x5F, 13),
             (0x60, 31), (0x62, 16), (0x63, 16), (0x64, 8), (0x65, 4), (0xA2, 24), (0xA8, 24))
        )  # fmt: skip
        key = b"" if opcode in (0x55, 0x56, 0x5B, 0x64, 0x65) else self.key()
        return opcode, key, self.chance.randbytes(size), self.chance.choice(VALUES)

    def hello(self):
        some = self.chance.sample(FEATURES, self.chance.randrange(len(FEATURES)))
        return 0x1F, b"mutant", b"", b"".join(struct.pack(">H", feature) for feature in some)

    def next(self):
        """Bytes of a command, or of nearly one."""
        chance = self.chance
        opcode, key, extras, value = chance.choice(self.makers)()
        movable = opcode in (SET_VBUCKET, DEL_VBUCKET) or chance.random() < 0.3
        more = {
            "vbucket": chance.choice(MOVABLE) if movable else chance.randrange(4),
            "datatype": 1 if opcode == SET_VBUCKET and value else chance.choice((0,) * 20 + (1, 2, 4, 255)),
            "opaque": chance.getrandbits(31),
            "cas": chance.choice((0,) * 8 + (self.number(64),)),
        }
        if chance.random() < 0.25:
            more["framing"] = b"".join(chance.choices(INFOS, k=chance.choice((1, 1, 2))))
        if chance.random() < 0.03:
            lie = chance.choice(("key_len", "extras_len", "body_len"))
            more[lie] = chance.choice((0, 1, 255, 65535, len(extras) + 1, len(key) + 1))
        return self.changed(frame(opcode, key, extras, value, **more))

    def changed(self, data):
        chance = self.chance
        fate = chance.random()
        if fate < 0.06:
            changed = bytearray(data)
            at = chance.randrange(len(data))
            changed[at] = chance.choice((0, 1, 0x7F, 0xFF, changed[at] ^ 1 << chance.randrange(8)))
            # The states of other vBuckets are the neighbour's.
            return bytes(changed) if changed[1] not in (SET_VBUCKET, DEL_VBUCKET) else data
        if fate < 0.07:
            return data[: chance.randrange(len(data))]
        return data * 2 if fate < 0.08 else data
