"""A schema with every type, and short ways to checked queries."""

from __future__ import annotations

from omnigraph.catalog.query import CheckedMutation, CheckedRead, compile_query
from tests.support.catalogs import catalog

SCHEMA = """
interface Named { name: String @key }
node Person implements Named {
    age: I32?
    active: Bool?
    kind: enum(staff, guest, former)
    nick: String?
    born: Date?
    joined: DateTime @default(now)
    score: F32?
    ratio: F64?
    big: U64?
    tags: [String]?
    marks: [I32]?
    bio: String?
    vec: Vector(3)?
    photo: Blob?
    visits: I64?
    small: U32?
}
node Company implements Named { city: String  size: I64  founded: Date? }
node Doc { title: String  text: String  vec: Vector(2) @embed("text") }
node Tenant { club: String  number: U32  note: String?  @key(club, number) }
edge Knows: Person -> Person { since: Date?  weight: F64?  scan: Blob? }
edge Likes: Person -> Doc
edge WorksAt: Person -> Company { role: String }
edge Owns: Company -> Company
"""
CATALOG = catalog(SCHEMA)


def read(text: str) -> CheckedRead:
    """Check a read."""
    found = compile_query(text, CATALOG)
    assert isinstance(found, CheckedRead)
    return found


def matched(match: str, output: str = "1", tail: str = "", params: str = "") -> CheckedRead:
    """Check a read given by its parts."""
    return read(f"query q({params}) {{ match {{ {match} }} return {{ {output} }} {tail} }}")


def mutation(text: str, params: str = "") -> CheckedMutation:
    """Check a mutation given by its statements."""
    found = compile_query(f"query q({params}) {{ {text} }}", CATALOG)
    assert isinstance(found, CheckedMutation)
    return found
