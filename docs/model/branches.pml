/* Names over lines of versions: branches are deleted, made again, forked, merged and cleaned up beside writers.
 *                                                                                     (docs/model/README.md)
 * WHAT IS MODELLED, and the code that each step stands for (below src/omnigraph/storage):
 *   resolve, capture   manifest/branches.py Branches.head      the name's line, then its newest version
 *   stage, swap        staging.py, publish.py                  as in publish.pml, with one atomic swap
 *   look again         publish.py _recapture, _where_it_landed, _attempt (_made_anew), decide
 *   mark, tombstone, unregister                                Branches.delete
 *   create, register   Branches.create and its `decide`        the line first, then the name
 *   tell, fence        sweep.py Announcer.tell                 every live line, and the registry last
 *   renew, trace, delete                                       cleanup.py Cleaner._announce, run; garbage.py
 *   take over          a merge that pins the source's version  (PublishPlan.adopt)
 *
 * WHAT IS LEFT OUT: rows and lost updates (publish.pml), renames, tags, kept versions below a floor. A file is needed
 *   by every version of a live line from its floor on.
 *
 * BOUND: two names (dev, child) over LINES lines, WRITERS x ATTEMPTS on dev, and of each of DELETE, RECREATE, FORK,
 *   MERGE, CLEAN one if it is defined (HARD: the sweep is a hard drop). DOUBTS swaps of writers whose answer is lost.
 *
 * GUARDS: -DNO_... takes one out.
 */

#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef DOUBTS
#define DOUBTS 0
#endif
#ifndef LINES
#define LINES 4
#endif
#define VERSIONS 9
#define NONE 255
#define MAIN 0
#define DEV 0                   /* names */
#define CHILD 1
#define BIT(n) (1 << (n))
#define HAS(set, n) ((set) & BIT(n))

#ifdef NO_TWICE                 /* rounds of telling all lines */
#define ROUNDS 1
#else
#define ROUNDS 2
#endif

/* ---- the store ---- */
int files;
byte pin[LINES * VERSIONS];
#define PIN(line, v) pin[(line) * VERSIONS + (v)]
byte head[LINES], floor[LINES], swept[LINES], parent[LINES];
byte tombstone, stored;         /* sets of lines */
byte lines = 2;                 /* ids are never used twice */
byte registry = 1, fence = 0;   /* versions of the registry; the last one that a cleanup made */
byte line_of[2];                /* name -> line */
byte marked;                    /* names that are being deleted */

/* ---- for the promises only ---- */
byte landed, unanswered, deleted, made;
byte doubts = DOUBTS;
byte i, j;
int needed;

c_decl { static unsigned long marks; extern int atexit(void (*)(void));
         static void show_marks(void) { printf("marks reached: %lx\n", marks); } };
#define MARK(n) c_code { marks |= 1UL << n; }
#define LANDED 0
#define BRANCH_GONE 1
#define MADE_ANEW 2
#define FOUND_ON_ITS_LINE 3
#define IS_DELETED 4
#define IS_MADE 5
#define TOOK_OVER 6
#define FENCED 7
#define MERGED 8
#define CLEANED 9
#define FORKED 10
#define HAS_CHILDREN 11
#define SOURCE_GOES 12
#define LINE_DELETED 13

#define LIVE(line) ((line) == MAIN || (!HAS(tombstone, line) && (line_of[DEV] == (line) || line_of[CHILD] == (line))))
#define GONE(name) (line_of[name] == NONE || (HAS(marked, name) && HAS(tombstone, line_of[name])))

inline need(line) {
    for (j : floor[line] .. head[line]) { needed = needed | BIT(PIN(line, j)) }
    j = 0
}

inline check_promises() {
    needed = 0;
    for (i : 0 .. LINES - 1) {
        if
        :: LIVE(i) ->
            assert(HAS(stored, i));                     /* a branch has its line ... */
            need(i)
        :: else
        fi
    }
    assert((needed & files) == needed);                 /* ... and every file that its retained versions need */
    if
    :: line_of[CHILD] != NONE && !HAS(tombstone, line_of[CHILD]) ->
        assert(!HAS(tombstone, parent[line_of[CHILD]])) /* no branch hangs from a deleted one */
    :: else
    fi;
    for (i : 0 .. LINES - 1) {                          /* a branch that was made, and not deleted, has its name */
        assert(!HAS(made, i) || HAS(deleted, i) || line_of[DEV] == i || line_of[CHILD] == i)
    }
    i = 0; needed = 0
}

inline new_version(line, file) {
    PIN(line, head[line] + 1) = file;
    head[line]++
}

#ifdef NO_OWN_LINE              /* Publisher._where_it_landed: after a lost answer, look on the line that was meant */
#define OWN_LINE false
#else
#define OWN_LINE true
#endif

proctype Writer(byte me) {
    byte line, meant = NONE, base, file, since;
    byte tries = 1;
    bool doubtful, ours;

resolve:
    atomic { skip; d_step { line = line_of[DEV] } }
capture:
    atomic { if
    :: d_step { line != NONE && !HAS(tombstone, line) ->
        printf("writer %d captures version %d of line %d\n", me, head[line], line) }
    :: line != NONE && HAS(tombstone, line) && line_of[DEV] != line -> goto resolve  /* its list of names was old */
    :: line == NONE || (HAS(tombstone, line) && line_of[DEV] == line) -> goto missing
    fi;
    if
    :: meant == NONE -> meant = line; base = head[line]; since = base
    :: meant != NONE && meant != line && doubtful && HAS(landed, me) && OWN_LINE -> goto found
#ifdef NO_LIFETIMES
    :: meant != NONE && meant != line -> d_step { base = head[line]; since = base }
#else
    :: meant != NONE && meant != line && !(doubtful && HAS(landed, me) && OWN_LINE) ->
        d_step { MARK(MADE_ANEW) } goto refused
#endif
    :: meant == line && HAS(landed, me) -> goto done    /* its commit is on the line: recognised */
    :: meant == line && !HAS(landed, me) && swept[line] <= since && PIN(line, base) == PIN(line, head[line]) ->
        base = head[line]; goto swap                    /* publish again what was staged */
    :: meant == line && !HAS(landed, me) && !(swept[line] <= since && PIN(line, base) == PIN(line, head[line])) ->
        base = head[line]; since = base
    fi }

stage:
    atomic { if
    :: d_step { HAS(files, PIN(line, base)) ->
        file = 2 + me * ATTEMPTS + tries - 1;
        files = files | BIT(file);
        printf("writer %d stages file %d\n", me, file)
        }
    :: d_step { !HAS(files, PIN(line, base)) -> skip } goto lost    /* its base is gone: look at the newest */
    fi }

swap:
    atomic { if
    :: d_step { head[line] == base ->
        new_version(line, file);
        printf("writer %d lands on line %d\n", me, line);
        assert(!HAS(deleted, line) && !HAS(tombstone, line));       /* nothing lands on a deleted branch */
        assert(line == meant);                          /* nor on another one that has its name by now */
        assert(!HAS(landed, me));
        landed = landed | BIT(me);
        check_promises(); MARK(LANDED)
        }
        if
        :: goto done
#if DOUBTS > 0
        :: d_step { doubts > 0 -> doubts--; doubtful = true; printf("writer %d gets no answer\n", me) }
#endif
        fi
    :: head[line] != base
    fi }

lost:
    atomic { if
    :: tries < ATTEMPTS -> tries++; goto resolve
    :: else ->
        if
        :: HAS(landed, me) -> goto done
        :: else -> goto refused
        fi
    fi }

missing:
    atomic { skip; d_step { MARK(BRANCH_GONE) }
    if
    :: doubtful && HAS(landed, me) && OWN_LINE -> goto found    /* its line has no name any more */
    :: else
    fi
    }
refused:
    atomic { skip; d_step { printf("writer %d is refused\n", me); assert(!HAS(landed, me)) } goto done }
found:
    atomic { skip; d_step { MARK(FOUND_ON_ITS_LINE) } }
done:
    atomic { skip; d_step { line = 0; meant = 0; base = 0; file = 0; since = 0; tries = 0; doubtful = false } }
}

/* ---- delete ---- */
proctype Deleter() {
    byte line, read, seen;
    do
    :: d_step { read = registry; line = line_of[DEV] }
        atomic { if
        :: d_step { line_of[CHILD] != NONE && parent[line_of[CHILD]] == line && !GONE(CHILD) -> MARK(HAS_CHILDREN) }
            goto done                                   /* BranchHasDescendants */
        :: else
        fi }
#ifdef NO_MARK
        break
#else
        atomic { if
        :: d_step { registry == read ->
            marked = marked | BIT(DEV); registry++;
            printf("delete: marks the name\n")
            }
            break
        :: registry != read
        fi }
#endif
    od;
    seen = head[line];
#ifndef NO_TOMBSTONE
    do
    :: d_step { head[line] == seen ->
#ifndef NO_TOMBSTONE_WRITE
        new_version(line, PIN(line, head[line]));
#endif
        tombstone = tombstone | BIT(line); deleted = deleted | BIT(line);
        printf("delete: writes the tombstone on line %d\n", line);
        check_promises()
        }
        break
    :: head[line] != seen -> seen = head[line]
    od;
#endif
    do
    :: d_step { read = registry; seen = line_of[DEV] }
        atomic { if
#ifndef NO_SAME_LINE
        :: seen != line -> break                        /* somebody took the name over */
        :: d_step { seen == line && registry == read ->
#else
        :: d_step { registry == read ->
#endif
            line_of[DEV] = NONE; marked = marked & ~BIT(DEV); registry++; deleted = deleted | BIT(line);
            printf("delete: takes the name away\n");
            check_promises(); MARK(IS_DELETED)
            }
            break
        :: registry != read
        fi }
    od;
done:
    atomic { skip; d_step { line = 0; read = 0; seen = 0 } }
}

/* ---- create `name` from the head of a source: main, or dev ---- */
proctype Creator(byte name; bool from_dev) {
    byte line, source, origin, read, began, was;
end_again:
    atomic { d_step { GONE(name) && lines < LINES ->    /* else BranchExists, or the bound */
        read = registry; began = fence;                 /* before the source is read */
        source = (from_dev -> line_of[DEV] : MAIN)
        }
        if
        :: source == NONE -> goto done
        :: else
        fi }
    atomic { if
    :: d_step { source != MAIN && HAS(tombstone, source) -> skip } goto done
    :: d_step { source == MAIN || !HAS(tombstone, source) ->
        origin = head[source]; was = PIN(source, origin);
        printf("create: forks from version %d of line %d\n", origin, source)
        }
    fi }
    d_step {
        line = lines; lines++;
        stored = stored | BIT(line);
        head[line] = 1; floor[line] = 1; parent[line] = source;
        PIN(line, 1) = was;
        printf("create: stores line %d, which has no name yet\n", line)
    }
    do
    :: atomic { if
        :: !GONE(name) -> goto done                     /* BranchExists */
        :: from_dev && (line_of[DEV] != source || HAS(marked, DEV)) -> d_step { MARK(SOURCE_GOES) } goto done
#ifndef NO_FENCE_LOOK
        :: registry != read && fence != began -> d_step { MARK(FENCED) }
            if
            :: lines < LINES -> goto end_again          /* what no name led to may be gone */
            :: else -> goto done
            fi
#endif
        :: else -> read = registry
        fi }
        atomic { if
        :: d_step { registry == read ->
            if
            :: line_of[name] != NONE -> MARK(TOOK_OVER)
            :: else
            fi;
            line_of[name] = line; marked = marked & ~BIT(name); registry++; made = made | BIT(line);
            printf("create: line %d gets its name\n", line);
            check_promises(); MARK(IS_MADE);
            if
            :: from_dev -> MARK(FORKED)
            :: else
            fi
            }
            break
        :: registry != read
        fi }
    od;
done:
    atomic { skip; d_step { line = 0; source = 0; origin = 0; read = 0; began = 0; was = 0 } }
}

/* ---- merge dev into main, by taking dev's version over ---- */
proctype Merger() {
    byte base, line, taken, tries;
again:
    atomic { d_step { tries < ATTEMPTS -> base = head[MAIN]; line = line_of[DEV]; tries++ }
        if
        :: line == NONE || HAS(tombstone, line) -> goto done
        :: else
        fi }
    atomic { if
    :: d_step { !HAS(tombstone, line) ->
        taken = PIN(line, head[line]);
        printf("merge: looks at version %d of line %d, file %d\n", head[line], line, taken)
        }
    :: HAS(tombstone, line) -> goto done
    fi }
    atomic { if
    :: d_step { head[MAIN] == base ->
        new_version(MAIN, taken);
        printf("merge: main takes it over\n");
        check_promises(); MARK(MERGED)
        }
    :: head[MAIN] != base && tries < ATTEMPTS -> goto again
    :: else
    fi }
done:
    atomic { skip; d_step { base = 0; line = 0; taken = 0; tries = 0 } }
}

/* ---- cleanup ---- */
#define UNTOLD(name) (line_of[name] != NONE && !HAS(tombstone, line_of[name]) && !HAS(told, line_of[name]))

#ifdef HARD                     /* a hard drop (reclaim.py) keeps what is in force when a line is told ... */
#define FLOOR(line) head[line]
#else                           /* ... a cleanup what was so when it began */
#define FLOOR(line) goal[line]
#endif

inline tell_line() {
    d_step {
        if
        :: !HAS(tombstone, line) ->
            new_version(line, PIN(line, head[line]));
            swept[line] = head[line];
            floor[line] = (FLOOR(line) > floor[line] -> FLOOR(line) : floor[line]);
            printf("cleanup: tells line %d\n", line)
        :: else                                         /* deleted just now */
        fi;
        told = told | BIT(line);
        check_promises()
    }
}

proctype Cleaner() {
    int listed, kept;
    byte old, told, read, round, line, goal[LINES], dev, child;
    d_step {
        listed = files; old = stored;
        for (i : 0 .. LINES - 1) { goal[i] = (LIVE(i) -> head[i] : 0) }
        i = 0;
        printf("cleanup: lists\n")
    }
    do
    :: round < ROUNDS ->
        told = 0;
tell:
        read = registry;
        do
        :: d_step { !HAS(told, MAIN) -> line = MAIN } tell_line()
        :: d_step { UNTOLD(DEV) -> line = line_of[DEV] } tell_line()
        :: d_step { UNTOLD(CHILD) -> line = line_of[CHILD] } tell_line()
        :: d_step { HAS(told, MAIN) && !UNTOLD(DEV) && !UNTOLD(CHILD) -> skip } break
        od;
#ifndef NO_FENCE
        atomic { if
        :: d_step { registry == read -> registry++; fence = registry; printf("cleanup: moves the registry\n") }
        :: registry != read -> goto tell
        fi;
#else
        atomic {
#endif
        d_step { dev = line_of[DEV]; child = line_of[CHILD]; round++ } }
        d_step {                                        /* renew: what is in force for these names */
            needed = 0; need(MAIN);
            if
            :: dev != NONE && !HAS(tombstone, dev) -> need(dev)
            :: else
            fi;
            if
            :: child != NONE && !HAS(tombstone, child) -> need(child)
            :: else
            fi;
            kept = kept | needed; needed = 0;
            printf("cleanup: traces what stays\n")
        }
    :: else -> break
    od;
    atomic { skip; d_step {
        if
        :: files & listed & ~kept -> MARK(CLEANED)
        :: else
        fi;
        files = files & ~(listed & ~kept);
        for (i : 1 .. LINES - 1) {                      /* lines that never got a name */
            if
            :: HAS(old, i) && i != dev && i != child && head[i] == 1 -> stored = stored & ~BIT(i); MARK(LINE_DELETED)
            :: else
            fi;
            goal[i] = 0
        }
        i = 0; goal[0] = 0;
        printf("cleanup: deletes\n");
        check_promises();
        listed = 0; kept = 0; old = 0; told = 0; read = 0; round = 0; line = 0; dev = 0; child = 0
    } }
}

init {
    byte n;
    atomic { d_step {
            c_code { atexit(show_marks); };
            files = 3; stored = 3;
            head[MAIN] = 1; floor[MAIN] = 1; PIN(MAIN, 1) = 0;
            head[1] = 1; floor[1] = 1; PIN(1, 1) = 1; parent[1] = MAIN;      /* dev has a file of its own */
            line_of[DEV] = 1; line_of[CHILD] = NONE
        }
        for (n : 1 .. WRITERS) { run Writer(n - 1) }
        n = 0;
#ifdef DELETE
        run Deleter();
#endif
#ifdef RECREATE
        run Creator(DEV, false);
#endif
#ifdef FORK
        run Creator(CHILD, true);
#endif
#ifdef MERGE
        run Merger();
#endif
#ifdef CLEAN
        run Cleaner();
#endif
    }
}
