/* Exactly-once counting by several replicas on one PostgreSQL database.
 *
 * Requests arrive as in counting.pml: at any replica, at any time, any number of times. A replica sends one
 * statement for a group of uploads. The database may commit it or roll it back. Its answer may be lost, and then
 * the statement may still run while the replica tries again over another connection. Replicas die, and their
 * clocks are wrong.
 *
 * Properties, as assertions:
 *   1. An upload counts at most once, acknowledged or not.
 *   2. What was acknowledged is counted.
 *
 * PostgreSQL itself is trusted: a committed transaction is durable, locks and unique indexes work.
 *
 * A comment that begins with a file names the functions that a step stands for. check.py looks whether they
 * exist.
 *
 * Sizes, by -D: UPLOADS, REPLICAS, SESSIONS (statements at the same time), DAYS, WINDOW, LOSSES (most statements
 * whose answer is lost, deaths of a replica included).
 */
#ifndef UPLOADS
#define UPLOADS 1
#endif
#ifndef REPLICAS
#define REPLICAS 2
#endif
#ifndef SESSIONS
#define SESSIONS 3
#endif
#ifndef DAYS
#define DAYS 1
#endif
#ifndef WINDOW
#define WINDOW 1
#endif
#ifndef LOSSES
#define LOSSES 2
#endif

/* The steps of a statement. */
#define FREE 0
#define SENT 1
#define LOCKED 2  /* it has locked the table `upload` against a move of the window, and has read the window */
#define ENDED 3   /* its answer is on the way */

/* The steps of a replica. */
#define IDLE 0
#define HAS_GROUP 1
#define ASKS 2

typedef Session {
    byte step;
    byte replica;        /* who waits for the answer, and 1 more; 0: nobody */
    byte today;          /* by the clock of the replica */
    byte oldest;         /* of the window, as read; later than `latest`: no upload is taken */
    byte latest;
    byte place;          /* the uploads before it are inserted or refused */
    bool group[UPLOADS];
    bool fresh[UPLOADS]
}
typedef Replica {
    byte step;
    bool group[UPLOADS]
}

Session session[SESSIONS];
Replica replica[REPLICAS];

/* The database. */
bool id[UPLOADS];
byte tally[UPLOADS];
byte holder[UPLOADS];    /* whose transaction has inserted the id and is not over, and 1 more */
byte oldest;
byte database_day;
byte day[UPLOADS];       /* the day that an upload carries */

bool acknowledged[UPLOADS];
byte losses;

hidden byte i, r;

#define LEAST(a, b) ((a) < (b) -> (a) : (b))
#define IN_WINDOW(s, u) (day[u] >= session[s].oldest && day[u] <= session[s].latest)

inline free(s) {
    d_step {
        i = 0;
        do
        :: i < UPLOADS -> session[s].group[i] = false; session[s].fresh[i] = false; i++
        :: else -> break
        od;
        session[s].step = FREE; session[s].replica = 0; session[s].today = 0; session[s].oldest = 0;
        session[s].latest = 0; session[s].place = 0
    }
}

inline rest(one) {
    d_step {
        i = 0;
        do
        :: i < UPLOADS -> replica[one].group[i] = false; i++
        :: else -> break
        od;
        replica[one].step = IDLE
    }
}

/* It reads the window. The database's day bounds the replica's. */
inline look(s) {
    if
    :: oldest > session[s].today -> session[s].oldest = 1; session[s].latest = 0
    :: else -> session[s].oldest = oldest; session[s].latest = LEAST(session[s].today, database_day + 1)
    fi;
    session[s].today = 0
}

/* aggregator/store/src/postgres/commit.rs: verdict. aggregator/src/ingest/writer.rs: commit. What is new is
 * accepted. What is in the window and not new is a duplicate. */
inline answer(s) {
    i = 0;
    do
    :: i < UPLOADS ->
        if
        :: session[s].group[i] && (session[s].fresh[i] || IN_WINDOW(s, i)) ->
            printf("acknowledge %d\n", i);
            acknowledged[i] = true;
            assert(tally[i] == 1) /* 2 */
        :: else
        fi;
        i++
    :: else -> break
    od
}

/* Whether any statement is between its lock and its end. */
#define IS_LOCKED(s) (session[s].step == LOCKED)
#if SESSIONS > 2
#define IS_BUSY (IS_LOCKED(0) || IS_LOCKED(1) || IS_LOCKED(2))
#else
#define IS_BUSY (IS_LOCKED(0) || IS_LOCKED(1))
#endif

/* ---- A statement: aggregator/store/src/postgres/commit.rs: statement, run, commit, COMMIT. ---- */

proctype statement(byte s) {
end:
    do
    /* It locks the table, with the other statements and against a move of the window. Then it reads the
     * window: the snapshot is taken behind the lock. */
#ifdef EARLY_LOOK /* MUTANT: reads the window before it locks the table */
    :: atomic { session[s].step == SENT && session[s].latest == 0 && session[s].oldest == 0 -> look(s) }
    :: atomic { session[s].step == SENT && session[s].latest + session[s].oldest > 0 -> session[s].step = LOCKED }
#else
    :: atomic { session[s].step == SENT -> printf("statement %d sees that day %d is the oldest\n", s, oldest);
        look(s); session[s].step = LOCKED }
#endif

    /* It inserts the ids in their order. ON CONFLICT DO NOTHING waits for a transaction that has inserted
     * the same id and is not over. */
    :: atomic { session[s].step == LOCKED && session[s].place < UPLOADS &&
        (!session[s].group[session[s].place] || !IN_WINDOW(s, session[s].place)) -> session[s].place++ }
#ifdef PLAIN_INSERT /* MUTANT: looks for the id first, and inserts without a unique index */
    :: atomic { session[s].step == LOCKED && session[s].place < UPLOADS && session[s].group[session[s].place] &&
        IN_WINDOW(s, session[s].place) ->
        session[s].fresh[session[s].place] = !id[session[s].place]; session[s].place++ }
#else
    :: atomic { session[s].step == LOCKED && session[s].place < UPLOADS && session[s].group[session[s].place] &&
        IN_WINDOW(s, session[s].place) && holder[session[s].place] == 0 ->
        if
        :: id[session[s].place]
        :: else -> session[s].fresh[session[s].place] = true; holder[session[s].place] = s + 1
        fi;
        session[s].place++ }
#ifdef NO_WAIT /* MUTANT: takes an id for known that another transaction has not committed */
    :: atomic { session[s].step == LOCKED && session[s].place < UPLOADS && session[s].group[session[s].place] &&
        IN_WINDOW(s, session[s].place) && holder[session[s].place] != 0 -> session[s].place++ }
#endif
#endif
    /* The transaction ends. Ids and tallies of the new uploads are added, or nothing is. */
    :: atomic { session[s].step == LOCKED && session[s].place == UPLOADS -> printf("statement %d commits\n", s);
        i = 0;
        do
        :: i < UPLOADS ->
            if
            :: session[s].fresh[i] ->
                id[i] = true; tally[i]++; holder[i] = 0;
                assert(tally[i] <= 1) /* 1 */
            :: else
            fi;
            i++
        :: else -> break
        od;
        if :: session[s].replica == 0 -> free(s) :: else -> session[s].step = ENDED fi }
    :: atomic { session[s].step > FREE && session[s].step < ENDED && losses < LOSSES ->
        printf("statement %d is rolled back\n", s); losses++;
        i = 0;
        do
        :: i < UPLOADS -> if :: holder[i] == s + 1 -> holder[i] = 0 :: else fi; i++
        :: else -> break
        od;
        if
        :: session[s].replica > 0 -> replica[session[s].replica - 1].step = HAS_GROUP
        :: else
        fi;
        free(s) }

    /* The answer is lost, or the connection is. aggregator/store/src/postgres/mod.rs: patiently, try_commit.
     * The replica does not know whether the statement was carried out, or still is. It sends the same
     * uploads again. */
    :: atomic { session[s].step > FREE && session[s].replica > 0 && losses < LOSSES ->
        printf("the answer to statement %d is lost\n", s); losses++;
        r = session[s].replica - 1;
#ifdef HOPE /* MUTANT: takes the uploads of a lost answer for counted */
        i = 0;
        do
        :: i < UPLOADS -> session[s].fresh[i] = session[s].group[i]; i++
        :: else -> break
        od;
        answer(s);
#endif
        replica[r].step = HAS_GROUP; session[s].replica = 0;
        if :: session[s].step == ENDED -> free(s) :: else fi }

    /* The answer arrives. */
    :: atomic { session[s].step == ENDED -> printf("statement %d is answered\n", s);
        answer(s); r = session[s].replica - 1; rest(r); free(s) }
    od
}

/* ---- A replica ---- */

proctype server(byte me) {
end:
    do
    /* aggregator/src/ingest/writer.rs: work. aggregator/store/src/postgres/mod.rs: commit. It takes a group. */
    :: atomic { replica[me].step == IDLE -> printf("replica %d takes a group\n", me);
        if
        :: replica[me].group[0] = true
#if UPLOADS > 1
        :: replica[me].group[1] = true
        :: replica[me].group[0] = true; replica[me].group[1] = true
#endif
        fi;
        replica[me].step = HAS_GROUP }

    /* aggregator/store/src/postgres/commit.rs: statement. It sends the statement over a free connection, on a
     * day that only its own clock knows. */
    :: atomic { replica[me].step == HAS_GROUP &&
        (session[0].step == FREE || session[1].step == FREE || session[SESSIONS - 1].step == FREE) ->
        r = 0;
        do
        :: session[r].step != FREE -> r++
        :: else -> break
        od;
        printf("replica %d sends statement %d\n", me, r);
        session[r].step = SENT; session[r].replica = me + 1; 
        do
        :: session[r].today < DAYS -> session[r].today++
        :: break
        od;
        i = 0;
        do
        :: i < UPLOADS -> session[r].group[i] = replica[me].group[i]; i++
        :: else -> break
        od;
#ifdef EARLY_ANSWER /* MUTANT: answers when the statement is sent */
        session[r].latest = DAYS; answer(r); session[r].latest = 0;
#endif
        replica[me].step = ASKS }

    /* aggregator/src/ingest/writer.rs: commit. It gives up, and acknowledges nothing. */
    :: atomic { replica[me].step == HAS_GROUP -> printf("replica %d gives up\n", me); rest(me) }
    /* It dies. What it has sent may still run. */
    :: atomic { replica[me].step == ASKS && losses < LOSSES -> printf("replica %d dies\n", me);
        losses++;
        r = 0;
        do
        :: r < SESSIONS && session[r].replica == me + 1 && session[r].step == ENDED -> free(r); r++
        :: r < SESSIONS && session[r].replica == me + 1 && session[r].step != ENDED -> session[r].replica = 0; r++
        :: r < SESSIONS && session[r].replica != me + 1 -> r++
        :: else -> break
        od;
        rest(me) }
    od
}

/* ---- The window ---- */

proctype window() {
end:
    do
    :: atomic { database_day < DAYS -> database_day++; printf("day %d\n", database_day) }
    /* aggregator/store/src/postgres/days.rs: expire. A replica, with whatever clock, moves the window. The
     * database's day bounds it. It waits for all statements, and they for it. */
    :: atomic { !IS_BUSY ->
        r = 0;
        do
        :: r < database_day -> r++
        :: break
        od;
        r = (r >= WINDOW - 1 -> r - (WINDOW - 1) : 0);
        if
        :: r > oldest ->
            oldest = r; printf("the window begins with day %d\n", oldest);
            i = 0;
            do
            :: i < UPLOADS -> if :: day[i] < oldest -> id[i] = false :: else fi; i++
            :: else -> break
            od;
#ifdef SHORT_MEMORY /* MUTANT: forgets the ids of one day more than it refuses */
            i = 0;
            do
            :: i < UPLOADS -> if :: day[i] <= oldest -> id[i] = false :: else fi; i++
            :: else -> break
            od;
#endif
            skip
        :: else
        fi }
    od
}

init {
    atomic {
        i = 0;
        do
        :: i < UPLOADS ->
            do
            :: day[i] < DAYS -> day[i]++
            :: break
            od;
            i++
        :: else -> break
        od;
        r = 0;
        do
        :: r < SESSIONS -> run statement(r); r++
        :: else -> break
        od;
        r = 0;
        do
        :: r < REPLICAS -> run server(r); r++
        :: else -> break
        od;
        run window()
    }
}
