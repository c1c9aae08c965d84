"""One entity with a value of every type, for whatever goes to Spark and comes back."""

from __future__ import annotations

EVERY_TYPE = """
node All {
  name: String @key
  b: Bool?  i: I32?  l: I64?  u: U32?  w: U64?  f: F32?  d: F64?
  day: Date?  at: DateTime?  raw: Blob?  v: Vector(2)?  mood: enum(calm, wild)?
  texts: [String]?  numbers: [U64]?  times: [DateTime]?
}
"""
ALL = {
    "name": "x",
    "b": True,
    "i": -(2**31),
    "l": 2**63 - 1,
    "u": 2**32 - 1,
    "w": 2**64 - 1,
    "f": 0.5,
    "d": 5e-324,
    "day": "1969-12-31",
    "at": "1969-12-31T23:59:59.999Z",
    "raw": "base64:AP8=",
    "v": [0.5, -1.5],
    "mood": "wild",
    "texts": ["", "ß"],
    "numbers": [0, 2**64 - 1],
    "times": ["2024-02-29T12:00:00Z"],
}
