/* Exactly-once counting by one server with the embedded store.
 *
 * A device gives its report an id and a day, once. It sends the same bytes until it hears an answer. Requests
 * are lost, doubled, late and out of order: any request may arrive at any time, any number of times, also after
 * the device has heard an answer. So the model has no network and no device that waits. It has only arrivals.
 *
 * The server takes what has arrived as a group, decides, commits in one transaction, and answers. At any step the
 * process may be killed, the power may fail, the day may change, and the clock of a new start may be wrong.
 *
 * Properties, as assertions:
 *   1. A report counts at most once, acknowledged or not.
 *   2. What was acknowledged is counted, and no crash takes it back.
 *
 * A comment that begins with a file names the functions that a step stands for. check.py looks whether they
 * exist.
 *
 * Sizes, by -D: UPLOADS, DAYS, WINDOW (days whose uploads are taken), STARTS.
 */
#ifndef UPLOADS
#define UPLOADS 2
#endif
#ifndef DAYS
#define DAYS 3
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef STARTS
#define STARTS 3
#endif

#ifdef FRESH_UPLOAD /* MUTANT: a retry of the same report has another id or another day */
#define REPORTS 1
#else
#define REPORTS UPLOADS
#endif

/* What the database has of an upload: a row with its id, and a tally. */
typedef Database {
    bool id[UPLOADS];       /* a group has the id */
    byte tally[UPLOADS];    /* how often the upload is in the tallies or the checkpoint */
    byte oldest             /* the first day of the window */
}

/* The steps of the server. */
#define DOWN 0
#define OPENED 1   /* the database is open, and not yet settled */
#define UP 2       /* waits for uploads */
#define TAKEN 3    /* has a group */
#define DECIDED 4
#define INSERTED 5 /* the transaction is in the log, and not synced */
#define SYNCED 6
#define ANSWERING 7
#define EXPIRED 8  /* the window was moved, and not synced */

byte day[UPLOADS];        /* the day that an upload carries */
Database cached;          /* as the next start of the process finds it */
Database durable;         /* as a power cut leaves it */
bool acknowledged[UPLOADS]; /* an answer has said so, whether or not the device has heard it */

byte server;
byte today;               /* the server's day */
byte oldest;              /* the first day of the window, in memory */
bool seen[UPLOADS];       /* the ids in memory */
bool doubted;
byte arrived[UPLOADS];    /* how often an upload is in the queue, or in the group */
byte verdict[UPLOADS];    /* how many of them are accepted */
bool duplicate[UPLOADS];  /* one of them was counted before */
byte starts;

hidden byte i, j, first, next;

inline copy(to, from) {
    d_step {
        i = 0;
        do
        :: i < UPLOADS -> to.id[i] = from.id[i]; to.tally[i] = from.tally[i]; i++
        :: else -> break
        od;
        to.oldest = from.oldest
    }
}

/* All transactions of the log so far become durable. */
inline sync() { copy(durable, cached) }

/* Without a sync the operating system may have written the log, or not. */
inline perhaps_sync() {
    if
    :: skip
    :: copy(durable, cached)
    fi
}

inline end_group() {
    d_step {
        i = 0;
        do
        :: i < UPLOADS -> arrived[i] = 0; verdict[i] = 0; duplicate[i] = false; i++
        :: else -> break
        od;
        i = 0
    }
}

inline end_process() {
    d_step {
        i = 0;
        do
        :: i < UPLOADS -> seen[i] = false; i++
        :: else -> break
        od;
        server = DOWN; today = 0; oldest = 0; doubted = false
    }
    end_group()
}

/* The first day of the window that ends today. aggregator/store/src/embedded/mod.rs: begin. */
#define BEGIN(day) ((day) >= WINDOW - 1 -> (day) - (WINDOW - 1) : 0)

/* Property 2: whatever happens next, it is counted. */
inline acknowledge(u) {
    acknowledged[u] = true;
    assert(cached.tally[u] == 1 && durable.tally[u] == 1)
}

/* Property 1. With FRESH_UPLOAD all uploads are of one report. */
inline check_tallies() {
    d_step {
        i = 0; next = 0;
        do
        :: i < UPLOADS ->
            assert(cached.tally[i] <= 1);
            assert(!acknowledged[i] || cached.tally[i] == 1);
            next = next + cached.tally[i];
            i++
        :: else -> break
        od;
        assert(REPORTS > 1 || UPLOADS == 1 || next <= 1)
    }
}

proctype counting() {
end:
    do
    /* aggregator/store/src/embedded/sqlite.rs: open_with. The clock of a start may be wrong. */
    :: atomic { server == DOWN && starts < STARTS -> printf("start\n");
        starts++; server = OPENED;
        today = 0;
        do
        :: today < DAYS -> today++
        :: break
        od;
        check_tallies() }

    /* aggregator/store/src/embedded/sqlite.rs: settle. What was in the log of a killed process is synced before
     * anything is answered. aggregator/store/src/decide/seen.rs: gather. aggregator/store/src/embedded/mod.rs:
     * start_on, is_doubtful. The ids of the window's days are read. */
    :: atomic { server == OPENED -> printf("open on day %d\n", today);
#ifndef NO_SETTLE /* MUTANT: answers before that */
        sync();
#endif
        oldest = cached.oldest;
        i = 0; first = 0;
        do
        :: i < UPLOADS ->
#ifndef NO_LOAD /* MUTANT: begins without the ids */
            seen[i] = cached.id[i] && day[i] >= oldest;
#endif
            if :: seen[i] && day[i] + 1 > first -> first = day[i] + 1 :: else fi;
            i++
        :: else -> break
        od;
        doubted = first > 0 && first - 1 < BEGIN(today);
        server = UP }

    /* An upload arrives. aggregator/src/ingest/mod.rs: submit. client/src/outbox.rs: take. A retry has the same
     * bytes. */
    :: atomic { server == UP && arrived[0] < 2 -> arrived[0]++ }
#if UPLOADS > 1
    :: atomic { server == UP && arrived[1] < 2 -> arrived[1]++ }
#endif
#if UPLOADS > 2
    :: atomic { server == UP && arrived[2] < 2 -> arrived[2]++ }
#endif

    /* aggregator/edge/src/day_guard.rs: get. Time passes. Within a process the day never goes back. */
    :: atomic { server == UP && today < DAYS -> today++; printf("day %d\n", today) }

    /* aggregator/src/ingest/writer.rs: work, commit. aggregator/store/src/embedded/mod.rs: commit_here,
     * expire. aggregator/store/src/embedded/expiry.rs: expire_before. aggregator/store/src/decide/seen.rs:
     * forget_before. The window moves on, unless the clock is doubted and no upload bears it out. */
    :: atomic { server == UP -> printf("take a group on day %d\n", today);
        server = TAKEN;
        first = BEGIN(today);
        if
        :: today >= oldest ->
            i = 0;
            do
            :: i < UPLOADS ->
                if
                :: arrived[i] > 0 && day[i] >= first && day[i] <= today -> doubted = false
                :: else
                fi;
                i++
            :: else -> break
            od;
            if
            :: !doubted && first > oldest -> cached.oldest = first; perhaps_sync(); server = EXPIRED
            :: else
            fi
        :: else
        fi }
    :: atomic { server == EXPIRED -> printf("the window begins with day %d\n", cached.oldest);
        sync(); oldest = cached.oldest;
        i = 0;
        do
        :: i < UPLOADS ->
#ifdef SHORT_MEMORY /* MUTANT: forgets the ids of one day more than it refuses */
            if :: day[i] <= oldest -> seen[i] = false :: else fi;
#else
            if :: day[i] < oldest -> seen[i] = false :: else fi;
#endif
            i++
        :: else -> break
        od;
        server = TAKEN }

    /* aggregator/store/src/decide/mod.rs: decide, judge. */
    :: atomic { server == TAKEN -> printf("decide\n");
        i = 0;
        do
        :: i < UPLOADS ->
            if
            :: arrived[i] > 0 && oldest <= today && day[i] <= today && day[i] >= oldest ->
                if
                :: seen[i] -> duplicate[i] = true
                :: else ->
#ifdef NO_FRESH /* MUTANT: does not look for an id within the group */
                    verdict[i] = arrived[i]
#else
                    verdict[i] = 1; duplicate[i] = arrived[i] > 1
#endif
                fi
            :: else
            fi;
            i++
        :: else -> break
        od;
        /* Without anything to add there is no transaction, and so no sync. */
        i = 0;
        do
        :: i < UPLOADS && verdict[i] == 0 -> i++
        :: else -> break
        od;
        server = (i < UPLOADS -> DECIDED : ANSWERING) }

    /* aggregator/store/src/embedded/sqlite.rs: commit_group, insert_group, add_to_tally.
     * aggregator/store/src/embedded/expiry.rs: fold. Ids and tallies are added in one transaction. Some
     * groups of days before the window lose their ids, and keep their tallies. */
    :: atomic { server == DECIDED -> printf("commit\n");
#ifdef TWO_TRANSACTIONS /* MUTANT: adds the tallies in a transaction before that of the ids */
        i = 0;
        do
        :: i < UPLOADS -> cached.tally[i] = cached.tally[i] + verdict[i]; i++
        :: else -> break
        od;
        perhaps_sync();
        if :: sync(); end_process(); goto end :: skip fi;
#endif
        i = 0;
        do
        :: i < UPLOADS ->
#ifndef TWO_TRANSACTIONS
            cached.tally[i] = cached.tally[i] + verdict[i];
#endif
            if :: verdict[i] > 0 -> cached.id[i] = true :: else fi;
            i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < UPLOADS ->
            if
            :: cached.id[i] && day[i] < cached.oldest -> cached.id[i] = false
            :: skip
            fi;
            i++
        :: else -> break
        od;
        perhaps_sync();
        server = INSERTED; check_tallies() }
    /* aggregator/store/src/embedded/sqlite.rs: commit_group. The log is synced. */
    :: atomic { server == INSERTED -> printf("sync\n");
#ifndef EARLY_ANSWER /* MUTANT: answers before the sync */
        sync();
#endif
        server = SYNCED }

    /* aggregator/store/src/embedded/mod.rs: commit_here. aggregator/store/src/decide/seen.rs: insert. */
    :: atomic { server == SYNCED ->
        i = 0;
        do
        :: i < UPLOADS -> if :: verdict[i] > 0 -> seen[i] = true :: else fi; i++
        :: else -> break
        od;
        server = ANSWERING }

    /* aggregator/src/ingest/writer.rs: commit. aggregator/src/api/device.rs: answer_to. The answers
     * leave one by one. */
    :: atomic { server == ANSWERING ->
        j = 0;
        do
        :: j < UPLOADS && !(verdict[j] > 0 || duplicate[j]) -> j++
        :: else -> break
        od;
        if
        :: j < UPLOADS -> printf("acknowledge %d\n", j); acknowledge(j); verdict[j] = 0; duplicate[j] = false
        :: else -> end_group(); server = UP
        fi }

    /* The process is killed, or ends since a commit has failed. aggregator/src/ingest/writer.rs: run. */
    :: atomic { server != DOWN -> printf("kill\n"); end_process() }
    /* The power fails. */
    :: atomic { starts > 0 && starts < STARTS -> printf("power cut\n");
        end_process(); copy(cached, durable); check_tallies() }

    /* aggregator/store/src/embedded/watermark.rs: move_watermark_back, read. An operator moves the window
     * back, but only over days of which nothing was counted. */
    :: atomic { server == DOWN && starts > 0 && starts < STARTS && cached.oldest > 0 ->
        first = 0;
        i = 0;
        do
        :: i < UPLOADS ->
            if
            :: cached.tally[i] > 0 && day[i] < cached.oldest && day[i] + 1 > first -> first = day[i] + 1
            :: else
            fi;
            i++
        :: else -> break
        od;
#ifdef FAR_BACK /* MUTANT: also over others */
        first = 0;
#endif
        if
        :: first < cached.oldest ->
            cached.oldest--; sync(); printf("the window begins with day %d again\n", cached.oldest)
        :: else
        fi }
    od
}

init {
    atomic {
        /* An upload has its day for good: client/src/outbox.rs: seal. */
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
        run counting()
    }
}
