/* One line of versions: writers publish, a cleanup deletes, a handle stays open.   (docs/model/README.md)
 *
 * WHAT IS MODELLED, and the code that each step stands for (below src/omnigraph/storage):
 *   capture      publish.py Publisher._capture             base = the newest version
 *   stage        staging.py Staging.stage                  one new file for each table that is written
 *   look, put    manifest/chain.py MetadataDataset.commit  Lance looks for the newest version, then creates the
 *                                                          next one if that name is free: two steps, and a
 *                                                          process may sleep for any time between them
 *   reply        the same                                  answered, lost, never executed, or executed late
 *   read back    MetadataDataset._confirm, Publisher._swap after a slow commit
 *   look again   Publisher._recapture, _landed, decide     after a lost swap
 *   ask, wait    turns.py Precedences                      with TURNS: a write that lost asks to go first
 *   list, floor, trace, delete                             cleanup.py Cleaner.run, store.py _announce,
 *                                                          sweep.py Sweeper, garbage.py Garbage._chains
 *   probe        MetadataDataset._still_newest             a handle that was opened long ago
 *
 * WHAT IS LEFT OUT: what rows hold (a file is the set of the writers whose rows are in it), other branches (see
 *   branches.pml), tags, hard drops. Time is only this: versions are trimmed when all that was under way before
 *   has become slow. The cleanup announces by one atomic swap, and deletes in one step (what is checked of files
 *   can only break by a file that goes, so deleting a part of them is no worse). A process that dies is one that
 *   takes no further step: the promises are checked after every step, so every such end is among the states.
 *
 * BOUND: WRITERS x ATTEMPTS x 2 tables, CLEANERS x ROUNDS, DOUBTS swaps without a reply; every kind and every set
 *   of tables for each writer, unless KIND and TABLES fix them; OTHERS commits of others. Nothing else is bounded.
 *
 * GUARDS: -DNO_... takes one out; the README says which promise breaks then.
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3      /* RetryPolicy.attempts */
#endif
#ifndef CLEANERS
#define CLEANERS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef DOUBTS
#define DOUBTS 1
#endif
#ifndef OTHERS
#define OTHERS 0        /* commits of others, each in one step */
#endif
#define ASKS_AFTER 1    /* RetryPolicy.asks_after: losses */
#define RECENT 1        /* records.RECENT: commits that every state names, however old they are */
#ifdef TURNS
#define ASKED_FOR (WRITERS * (ATTEMPTS - 1))
#else
#define ASKED_FOR 0
#endif
#define VERSIONS (4 + WRITERS + OTHERS + CLEANERS * ROUNDS + ASKED_FOR)
#define FILES (2 + 2 * WRITERS * ATTEMPTS + OTHERS)
#define NONE 255

/* Kinds of writers: which rows must not have moved under them. */
#define PLAIN 0         /* none: adds its row to whatever is there */
#define STRICT 1        /* those of its own tables decided what it writes     (PublishPlan.decisive) */
#define CONSULTS 2      /* those of the other table were checked by validate  (PublishPlan.consulted) */
#define MAINTAINS 3     /* rewrites a table and changes no row                (optimize) */

#define BIT(n) (1 << (n))
#define HAS(set, n) ((set) & BIT(n))

/* ---- the store ---- */
int files;                      /* which files are stored */
byte rows[FILES];               /* of a file: the writers whose rows it holds */
int stored;                     /* version names that are taken */
byte pin[2 * VERSIONS];         /* of a version: the file of each table */
byte by[VERSIONS];              /* of a version: who committed it, NONE for an announcement */
byte head = 1, floor = 1, swept = 0;
#ifdef TURNS
byte first_at, first_who;       /* the version that asks to let somebody go first; it says nothing once the head moved */
#endif
#define PIN(v, t) pin[2 * (v) + (t)]

/* ---- what the processes know, as far as time passes for all of them at once ---- */
bool flying[WRITERS];           /* between look and put */
bool slow[WRITERS];             /* for so long that the answer is not believed   (confirm_after_s) */
bool handle_is_young;           /* the newest version was listed not long ago */
byte doubts = DOUBTS;

/* ---- for the promises only ---- */
byte landed, acknowledged, content, ended, late;
byte writes_of[WRITERS];
byte i, j;                      /* counters; 0 between steps, like `needed` */
int needed;

/* Which interesting steps the search took; printed at the end, and each must have been. */
c_decl { static unsigned long marks; extern int atexit(void (*)(void));
         static void show_marks(void) { printf("marks reached: %lx\n", marks); } };
#define MARK(n) c_code { marks |= 1UL << n; }
#define ACKED 0
#define STALE 1
#define CONTENTION 2
#define UNKNOWN 3
#define AS_STAGED 4
#define PART_STAGED 5
#define SWEPT 6
#define VALIDATED 7
#define RECOGNISED 8
#define OFF_THE_LINE 9
#define READ_BACK 10
#define BASE_GONE 11
#define LATE 12
#define DELETED 13
#define TRIMMED 14
#define ASKED 15

/* Whoever finds that somebody else is to go first waits until the head has moved, or its time is over: at any moment,
 * but with PATIENT, where every attempt ends before the time that it asked for. */
#define GOES_ON(me) true
#ifdef TURNS
#ifdef PATIENT
#ifndef NO_TURN
#undef GOES_ON
#define GOES_ON(me) (first_at != head || first_who == me)
#endif
#endif
#endif

inline check_promises() {
    needed = 0;
    for (i : floor .. head) { needed = needed | BIT(PIN(i, 0)) | BIT(PIN(i, 1)) }
    assert((needed & files) == needed);                 /* every file that a retained version needs is there */
    assert((acknowledged & landed) == acknowledged);    /* whoever was told "done" is in the line */
    for (i : 0 .. WRITERS - 1) {
        for (j : 0 .. 1) {
            if
            :: HAS(landed & content, i) && HAS(writes_of[i], j) ->
                assert(HAS(rows[PIN(head, j)], i))      /* no update is lost */
            :: else
            fi
        }
    }
    assert(((rows[PIN(head, 0)] | rows[PIN(head, 1)]) & ~landed) == 0);     /* no orphan is visible */
    i = 0; j = 0; needed = 0
}

/* A swap that was made: version base + 1, on the line or, if that name was trimmed meanwhile, off it. */
inline create_version(base, me, writes, file0, file1) {
    stored = stored | BIT(base + 1);
    if
    :: base == head ->
        assert(!HAS(landed, me));                       /* a commit is in the line once */
        PIN(head + 1, 0) = (HAS(writes, 0) -> file0 : PIN(base, 0));
        PIN(head + 1, 1) = (HAS(writes, 1) -> file1 : PIN(base, 1));
        by[head + 1] = me;
        landed = landed | BIT(me);
        head++
    :: else -> MARK(OFF_THE_LINE)
    fi
}

#ifdef NO_SWAP                          /* two commits from one base both land, the later on top of the other */
#define REFUSED(base) false
#define BASE_OF_SWAP(base) head
#else
#define REFUSED(base) HAS(stored, (base) + 1)
#define BASE_OF_SWAP(base) base
#endif

proctype Writer(byte me; byte writes; byte kind) {
    byte base, since, file[2], first, checked, now, table;
    byte tries = 1;
    bool tried, doubtful, again, ours;

capture:
    atomic { GOES_ON(me); d_step {
        base = head; first = base; since = base;
        file[0] = NONE; file[1] = NONE;
        printf("writer %d captures version %d\n", me, base)
    } }

stage:
    table = 0;
    do
    :: d_step { table < 2 && (!HAS(writes, table) || file[table] != NONE) -> table++ }
    :: d_step { table < 2 && HAS(writes, table) && file[table] == NONE && HAS(files, PIN(base, table)) ->
        file[table] = 2 + 2 * (me * ATTEMPTS + tries - 1) + table;
        files = files | BIT(file[table]);
        rows[file[table]] = rows[PIN(base, table)] | (kind == MAINTAINS -> 0 : BIT(me));
        printf("writer %d stages file %d of table %d\n", me, file[table], table);
        checked = base;
        table++
        }
    :: d_step { table < 2 && HAS(writes, table) && file[table] == NONE && !HAS(files, PIN(base, table)) ->
        table = 0;
        printf("writer %d finds that its base was deleted\n", me);
        MARK(BASE_GONE)                         /* _attempt answers None */
        }
        if
        :: tried -> goto lost                   /* what it had before will lose again */
        :: !tried && tries < ATTEMPTS -> tries++; goto capture
        :: else -> goto refused
        fi
    :: table == 2 -> break
    od;

look:
    atomic { skip; d_step {
        table = 0; tried = true;
        again = (base != head);
        flying[me] = !again
    }
#ifndef NO_SWAP
    if
    :: again -> goto lost
    :: else
    fi
#endif
    }

put:
    atomic { if
    :: d_step { REFUSED(base) -> again = true }
    :: d_step { !REFUSED(base) ->               /* it lands, and the answer arrives */
        again = false;
        printf("writer %d swaps on version %d\n", me, base);
        create_version(BASE_OF_SWAP(base), me, writes, file[0], file[1]);
        if
        :: kind == STRICT && by[head] == me ->          /* what decided has not moved */
            assert(!HAS(writes, 0) || rows[PIN(head - 1, 0)] == rows[PIN(first, 0)]);
            assert(!HAS(writes, 1) || rows[PIN(head - 1, 1)] == rows[PIN(first, 1)])
        :: kind == CONSULTS && by[head] == me ->        /* what was checked has not moved */
            assert(HAS(writes, 0) || rows[PIN(head - 1, 0)] == rows[PIN(checked, 0)]);
            assert(HAS(writes, 1) || rows[PIN(head - 1, 1)] == rows[PIN(checked, 1)])
        :: else
        fi;
        check_promises()
        }
#if DOUBTS > 0
    :: d_step { !REFUSED(base) && doubts > 0 -> /* it lands, and the answer is lost */
        doubts--; doubtful = true; again = true;
        printf("writer %d swaps on version %d, and the answer is lost\n", me, base);
        create_version(BASE_OF_SWAP(base), me, writes, file[0], file[1]);
        check_promises()
        }
    :: d_step { !REFUSED(base) && doubts > 0 -> /* it fails, and never lands */
        doubts--; doubtful = true; again = true;
        printf("writer %d gets no answer to a swap that never lands\n", me)
        }
    :: d_step { !REFUSED(base) && doubts > 0 -> /* it seems to fail, and lands at any time later, or never */
        doubts--; doubtful = true; again = true; late = late | BIT(me);
        printf("writer %d gets no answer to a swap that may land later\n", me)
        }
        run Late(me, base, writes, file[0], file[1])
#endif
    fi;
    d_step {
#ifndef NO_READ_BACK
        if
        :: !again && slow[me] && head != base + 1 ->    /* the newest is not what it made */
            again = true; doubtful = true; MARK(READ_BACK)
        :: else
        fi;
#endif
        flying[me] = false; slow[me] = false
    }
    if
    :: again -> goto lost
    :: else -> goto done
    fi }

lost:
#ifdef TURNS
    do
    :: d_step { tries % ASKS_AFTER != 0 || tries == ATTEMPTS || doubtful -> skip } break
    :: d_step { tries % ASKS_AFTER == 0 && tries < ATTEMPTS && !doubtful && GOES_ON(me) -> now = head }
        if
        :: d_step { now == head ->
            stored = stored | BIT(head + 1);
            PIN(head + 1, 0) = PIN(head, 0); PIN(head + 1, 1) = PIN(head, 1);
            by[head + 1] = NONE;
            head++;
            first_at = head; first_who = me;
            printf("writer %d asks to go first, as version %d\n", me, head);
            check_promises(); MARK(ASKED)
            } break
        :: d_step { now != head -> skip }
        fi
    od;
#endif
    atomic { GOES_ON(me); d_step {
        flying[me] = false; slow[me] = false;
        now = head;
        ours = false; j = 0;
        for (i : 1 .. head) {                   /* Chain.find: newest first, by `recent`; else from the floor on */
            if
            :: by[head + 1 - i] != NONE && (j < RECENT || head + 1 - i >= floor) ->
                j++;
                ours = (ours || by[head + 1 - i] == me)
            :: else
            fi
        }
        j = 0;                                  /* commits since its base: does `recent` reach back so far? */
        for (i : 1 .. head) { j = j + (i > base && by[i] != NONE -> 1 : 0) }
        again = (doubtful && j > RECENT && floor > base + 1);
        i = 0; j = 0;
        printf("writer %d has lost, and looks again: version %d\n", me, now)
    }
#ifndef NO_RECOGNISE
    if
    :: d_step { ours -> printf("writer %d finds its own commit\n", me); MARK(RECOGNISED) } goto done
    :: else
    fi;
#ifndef NO_FORGOTTEN
    if
    :: d_step { again -> MARK(UNKNOWN) } goto end_of_it         /* OutcomeUnknown */
    :: else
    fi;
#endif
#endif
    if
    :: d_step { tries == ATTEMPTS -> MARK(CONTENTION);
#ifdef PATIENT
        assert(false)                           /* whoever asks lands: nobody loses until it gives up */
#endif
        } goto refused                          /* PublishContention */
    :: else -> tries++
    fi;

    d_step {                                    /* decide, by the state just read */
        again = false; ours = false;            /* prepare again; StaleVersion */
#ifndef NO_STALE
        ours = (kind == STRICT
            && ((HAS(writes, 0) && rows[PIN(base, 0)] != rows[PIN(now, 0)])
             || (HAS(writes, 1) && rows[PIN(base, 1)] != rows[PIN(now, 1)])));
#endif
        for (table : 0 .. 1) {
            if
            :: HAS(writes, table) && file[table] == NONE -> again = true
            :: else
            fi;
#ifndef NO_MOVED
            if
            :: HAS(writes, table) && PIN(base, table) != PIN(now, table) -> file[table] = NONE; again = true
            :: else
            fi
#endif
        }
#ifndef NO_SWEPT
        if
        :: swept > since ->
            file[0] = NONE; file[1] = NONE; again = true; since = now; MARK(SWEPT)
        :: else
        fi;
#endif
#ifndef NO_VALIDATE
        checked = now;
#endif
        if
        :: ours -> MARK(STALE)
        :: !ours && !again -> MARK(AS_STAGED)
            if
            :: kind == CONSULTS && base != now -> MARK(VALIDATED)
            :: else
            fi
        :: !ours && again && (file[0] != NONE || file[1] != NONE) -> MARK(PART_STAGED)
        :: else
        fi;
        base = now;
        table = 0; now = 0
    }
    if
    :: ours -> goto refused
    :: !ours && again -> goto stage
    :: else -> goto look
    fi }

refused:
    atomic { skip; d_step {                                    /* a typed error: nothing of the write is visible */
        printf("writer %d is refused\n", me);
        assert(!HAS(landed, me) || HAS(late, me))
    }
    goto end_of_it }

done:
    atomic { skip; d_step {
        acknowledged = acknowledged | BIT(me);
        printf("writer %d is acknowledged\n", me);
        check_promises(); MARK(ACKED)
    } }

end_of_it:
    atomic { skip; d_step {
        ended++; base = 0; since = 0; first = 0; checked = 0; now = 0; file[0] = 0; file[1] = 0;
        tried = false; again = false; ours = false; doubtful = false; tries = 0
    } }
}

/* A request that the writer has given up on, and that the store executes all the same. */
proctype Late(byte me; byte base; byte writes; byte file0; byte file1) {
    if
    :: d_step { !REFUSED(base) -> create_version(base, me, writes, file0, file1); MARK(LATE); check_promises() }
    :: REFUSED(base)
    fi
}

#if OTHERS > 0
/* Others, who never lose: they only move the line on. */
proctype Others() {
    byte n;
    do
    :: d_step { n < OTHERS ->
        files = files | BIT(FILES - OTHERS + n);
        rows[FILES - OTHERS + n] = rows[PIN(head, 0)];
        stored = stored | BIT(head + 1);
        PIN(head + 1, 0) = FILES - OTHERS + n; PIN(head + 1, 1) = PIN(head, 1);
        by[head + 1] = WRITERS;
        head++; n++;
        printf("somebody else makes version %d\n", head);
        check_promises()
        }
    :: n == OTHERS -> break
    od
}
#endif

#ifdef NO_ALWAYS_WRITTEN                /* a floor that is there already is not written again */
#define ANNOUNCED (floor >= goal)
#else
#define ANNOUNCED (swept > called_at && floor >= goal)
#endif
#ifdef NO_HISTORY                       /* only what the head needs is traced, whatever the floor promises */
#define TRACED_FROM head
#else
#define TRACED_FROM floor
#endif

proctype Cleaner() {
    int listed, names;
    byte goal, called_at, seen, round;
    do
    :: round < ROUNDS ->
#ifndef NO_LIST_FIRST
        d_step { listed = files; names = stored; printf("the cleanup lists\n") }
#endif
        d_step {                                        /* keep=0: the newest commit only */
            called_at = head; seen = head; goal = head;
            do
            :: goal > floor && by[goal] == NONE -> goal--
            :: else -> break
            od
        }
        do
        :: d_step { ANNOUNCED -> skip } break           /* by whomever */
        :: d_step { !ANNOUNCED && seen == head ->
            stored = stored | BIT(head + 1);
            PIN(head + 1, 0) = PIN(head, 0); PIN(head + 1, 1) = PIN(head, 1);
            by[head + 1] = NONE;
            head++;
            swept = head;
            floor = (goal > floor -> goal : floor);
            seen = head;
            printf("the cleanup announces, as version %d: the floor is %d\n", head, floor);
            check_promises()
            }
        :: d_step { !ANNOUNCED && seen != head -> seen = head }
        od;
        atomic {
#ifdef NO_LIST_FIRST
            d_step { listed = files; names = stored; printf("the cleanup lists\n") }
#endif
            d_step {                                    /* trace */
                needed = 0;
                for (i : TRACED_FROM .. head) { needed = needed | BIT(PIN(i, 0)) | BIT(PIN(i, 1)) }
                listed = listed & ~needed;
                names = names & (BIT(floor) - 1);
                needed = 0; i = 0; goal = 0; called_at = 0; seen = 0;
                printf("the cleanup traces what stays\n")
            }
        }
        d_step {
            if
            :: names & stored -> MARK(TRIMMED)
#ifndef NO_STALL_AGE                                    /* versions are so old that whatever looked before is slow */
                for (i : 0 .. WRITERS - 1) { slow[i] = flying[i] }
                handle_is_young = false
#endif
            :: else
            fi;
            stored = stored & ~names;
            if
            :: files & listed -> MARK(DELETED)
            :: else
            fi;
            files = files & ~listed;
            printf("the cleanup deletes\n");
            check_promises();
            listed = 0; names = 0;
            round++
        }
    :: else -> break
    od;
    atomic { skip; d_step { round = 0; ended++ } }
}

#ifdef HANDLE
#ifdef NO_PROBE_AGE                     /* a handle never lists while its own version is there and the next is not */
#define PROBED true
#else
#define PROBED handle_is_young
#endif
#define UNCHANGED(version) (HAS(stored, version) && !HAS(stored, version + 1) && PROBED)

/* A handle of a version that looks on local disk whether that is still the newest. */
proctype Handle() {
    byte version;
    d_step { version = head; handle_is_young = true }
end:
    do
    :: d_step { UNCHANGED(version) && version != head ->
        printf("the handle takes version %d for the newest\n", version);
        assert(false)                                   /* nobody goes on reading what is not the newest */
        }
    :: d_step { !UNCHANGED(version) && (version != head || !handle_is_young) ->
        version = head; handle_is_young = true;         /* it asks Lance, which lists */
        printf("the handle is at version %d\n", version)
        }
    od
}
#endif

init {
    byte n, writes, kind;
    d_step {
        c_code { atexit(show_marks); };
        files = 3; stored = 2;
        PIN(1, 0) = 0; PIN(1, 1) = 1;
        by[1] = WRITERS                                 /* the first commit is nobody's of these */
    }
    atomic {
        for (n : 0 .. WRITERS - 1) {
#ifdef TABLES
            writes = TABLES;
#else
            select (writes : 1 .. 3);
#endif
#ifdef KIND
            kind = KIND;
#else
            select (kind : PLAIN .. MAINTAINS);
#endif
            writes_of[n] = writes;
            if
            :: kind != MAINTAINS -> content = content | BIT(n)
            :: else
            fi;
            run Writer(n, writes, kind)
        }
#if CLEANERS > 0
        for (n : 1 .. CLEANERS) { run Cleaner() }
#endif
#if OTHERS > 0
        run Others();
#endif
#ifdef HANDLE
        run Handle();
#endif
        n = 0; writes = 0; kind = 0
    }
}

#ifdef LIVENESS
ltl everybody_ends { <> (ended == WRITERS + CLEANERS) }
#endif
