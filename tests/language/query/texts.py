"""Queries of every form, for tests that need texts to read, to damage or to check.

They fit the schema of `tests.support.checked_queries`.
"""

LIBRARY = """
// Reads.
query by_name($name: String) @description("One person") @instruction("Use the full name") {
    match { $p: Person { name: $name } }
    return { $p.name, $p.age as years }
}
query friends($name: String, $since: Date?) {
    match {
        $p: Person { name: $name }
        $p $k:knows $f
        $k.since >= $since
        $f <knows> $_
        $f.age != 30 and ($f.age > 18 or not($f.active = false)) and $f.kind in ["staff", "guest"]
        not { $f worksAt $c  $c.name starts_with "Evil" }
        exists { $f knows{1,3} $p }
        count { $f likes $b } >= 2
        optional { $f worksAt $w }
        $f.nick is not null
        ["a", "b"] contains $f.name
        $f.tags contains "x"
        $f.score * 2 - 1 > -0.5
        search($f.bio, "graphs") fuzzy($f.bio, "graf", 1) match_text($f.bio, $name) = false
    }
    return distinct { $f.name as friend, $w.name, $f.@id, $k.@src as source }
    order { friend desc, $w.name }
    limit 20 offset 5
}
query popular($n: I64) {
    match { $p knows $f }
    return { $f.name, count($p) as fans, sum($p.age), avg($p.age) as mean
             count_distinct($p.kind), collect($p.nick) }
    order { fans desc, count($p), $f.name }
    limit $n
}
query similar($q: String, $v: Vector(3)) {
    match { $p: Person }
    return { $p.name, nearest($p.vec, $v) as distance, bm25($p.bio, $q)
             search($p.bio, $q) as hit, now() as at }
    order { rrf(nearest($p.vec, $q), bm25($p.bio, $q), 60) }
    limit 10
}
query paths() {
    match { $a: Person { name: "Ada" } $b: Person { name: "Bo", active: true, born: date("1970-01-02") } }
    return { $a, shortest($a knows{1,10} $b) as path, $a.age + 1 as next, "x" as label, true as yes }
}
/* Mutations. */
query add($name: String, $at: DateTime, $big: U64) {
    insert Person { name: $name, kind: "staff", joined: $at, big: $big, tags: ["a", "b"], vec: [1, 0.5, -2] }
    insert Knows { from: $name to: "Bo" since: date("2020-02-29") }
}
query move($name: String, $old: [String]) {
    update Person set { nick: null, joined: now(), score: 3 }
        where name = $name or (age > 3 and not(kind in $old))
    update Knows set { since: null } where since is null and from = $name
}
query forget($name: String) {
    delete Person where name = $name
    delete Knows where to != "Bo"
}
"""
