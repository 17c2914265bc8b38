/* The privacy ledger of a device, and what leaves.
 *
 * A user sees an arm. The device pays for its report, draws a bit, gives it a name, writes both files, and
 * then sends the report. At any step the process may be killed, the power may fail, or a write may fail.
 *
 * Properties, as assertions:
 *   1. Whatever leaves was paid before: the ledger that any start reads covers every report that has left.
 *   2. A report that has left never leaves with another bit or under another name.
 *   3. No more reports leave than the cap allows.
 *   4. No crash and no failed write leaves files that the client refuses (where NO_REFUSAL is defined).
 *
 * A comment that begins with a file names the functions that a step stands for. check.py looks whether they
 * exist. A step is whatever stands behind one `::` of the loop. Steps of the disk, of the process and of the
 * core interleave in every order.
 *
 * Sizes, by -D: ASSIGNMENTS, CAP, STARTS (most starts of a client), ERRORS (most failed operations).
 * Worlds, by -D: TWO (another client that no lock keeps out), RESTORE (somebody puts one old file in place).
 * A definition with MUTANT beside it is a change that must break a property.
 */
#ifndef ASSIGNMENTS
#define ASSIGNMENTS 2
#endif
#ifndef CAP
#define CAP ASSIGNMENTS
#endif
#ifndef STARTS
#define STARTS 3
#endif
#ifndef ERRORS
#define ERRORS 1
#endif
#ifdef TWO
#define CLIENTS 2
#else
#define CLIENTS 1
#endif

/* The stages of an assignment. */
#define NONE 0
#define OPEN 1    /* drawn and paid */
#define BIT 2     /* the bit is drawn */
#define SEALED 3  /* the upload has a name and a day */
#define SETTLED 4 /* nothing is left to do */

/* The steps of a write. */
#define IDLE 0
#define CHECK 1
#define SLOT 2
#define SLOT_SYNC 3
#define STATE 4
#define STATE_SYNC 5
#define DONE 6
#define INSTALL 7
#define WRITTEN 8
#define APPEND 9
#define SETTLE 10

/* The steps of a start. Others are negative answers to "does it run?". */
#define DOWN 0
#define MARKED 1
#define HAS_LEDGER 2
#define UP 3
#define REFUSED 4 /* the files are damaged: the client draws arms and never reports */

/* What a client, a write or a file has of the assignments. An upload is a bit with a name and a day. Those of an
 * assignment are numbered as they are made, so another number is another bit or another name. */
typedef Content {
    byte stage[ASSIGNMENTS];
    byte upload[ASSIGNMENTS];
    byte spent;  /* of a file: at its last synced write */
    byte after;  /* of a file: what changes behind that write add */
    byte number  /* of a file: of its last synced write; 0: there is no file */
}
typedef Ledger {
    byte number[2]; /* 0: the slot is empty or torn */
    byte spent[2];
    byte done
}
typedef Client {
    byte phase;
    byte last;              /* the last id that it has given */
    byte write;             /* the step of the write under way */
    byte next;              /* number of the next synced write */
    bool pending;           /* changes are to be written */
    bool sealing;           /* one of them seals */
    bool whole;             /* the next write replaces the file */
    bool is_synced;         /* the write under way */
    bool is_whole;
    bool is_settled;        /* this start has synced what it has read */
    bool owns;              /* its handle of `state` is that of the file with this name */
    bool durable[ASSIGNMENTS]; /* the last change of this report is durable */
    byte ledger_number;     /* what a start has read of the ledger */
    byte ledger_spent;
    byte ledger_done
}

Client client[CLIENTS];
Content memory[CLIENTS];
Content written[CLIENTS]; /* what the write under way holds */
Content cached;           /* the file `state`, as the next start of a process reads it */
Content durable;          /* the same, as a power cut leaves it */
Ledger cached_ledger;
Ledger durable_ledger;
bool cached_installed;
bool durable_installed;
byte mark;                /* who has marked the file of the lock, and 1 more */
byte starts;
byte errors;

/* What nobody in the program knows. */
byte given;               /* ids that were ever given */
byte uploads[ASSIGNMENTS]; /* uploads that were ever made for an assignment */
byte left_as[ASSIGNMENTS]; /* the one that has left; 0: none */
byte left;                /* assignments with a report that has left */

#ifdef RESTORE
Content copied;
Ledger copied_ledger;
bool has_copied;
bool has_restored;
#endif

hidden byte i, slot, number, spent; /* of the step that is being made */

inline copy(to, from) {
    d_step {
        i = 0;
        do
        :: i < ASSIGNMENTS ->
            to.stage[i] = from.stage[i]; to.upload[i] = from.upload[i];
            i++
        :: else -> break
        od;
        to.spent = from.spent; to.after = from.after; to.number = from.number
    }
}

inline copy_ledger(to, from) {
    d_step {
        to.number[0] = from.number[0]; to.number[1] = from.number[1];
        to.spent[0] = from.spent[0]; to.spent[1] = from.spent[1];
        to.done = from.done
    }
}

/* A process ends: its memory is gone. */
inline forget(one) {
    d_step {
        i = 0;
        do
        :: i < ASSIGNMENTS ->
            memory[one].stage[i] = NONE; memory[one].upload[i] = 0;
            written[one].stage[i] = NONE; written[one].upload[i] = 0;
            client[one].durable[i] = false;
            i++
        :: else -> break
        od;
        memory[one].spent = 0; written[one].spent = 0;
        client[one].phase = DOWN; client[one].last = 0; client[one].write = IDLE; client[one].next = 0;
        client[one].pending = false; client[one].sealing = false; client[one].whole = false;
        client[one].is_synced = false; client[one].is_whole = false; client[one].owns = false;
        client[one].is_settled = false;
        client[one].ledger_number = 0; client[one].ledger_spent = 0; client[one].ledger_done = 0
    }
}

/* What is not synced may be on the disk or not. A slot of more than a sector may be torn: the first record
 * fits in one. Later syncs overrule this choice. */
inline perhaps_durable_slot() {
    if
    :: skip
    :: durable_ledger.number[slot] = cached_ledger.number[slot];
       durable_ledger.spent[slot] = cached_ledger.spent[slot]
    :: number > 1 -> durable_ledger.number[slot] = 0; durable_ledger.spent[slot] = 0
    fi
}

/* Numbers matter by their order and their parity alone, but for the first three. So all of them are lowered by
 * two from time to time, which keeps the search small. */
#define IS_HIGH(number) (number == 0 || number > 4)
inline lower(number_of) {
    if :: number_of > 2 -> number_of = number_of - 2 :: else fi
}
inline lower_numbers() {
#ifndef RESTORE
    if
    :: cached.number > 4 && durable.number > 4 &&
        IS_HIGH(cached_ledger.number[0]) && IS_HIGH(cached_ledger.number[1]) &&
        IS_HIGH(durable_ledger.number[0]) && IS_HIGH(durable_ledger.number[1]) &&
        IS_HIGH(client[0].next) && IS_HIGH(client[CLIENTS - 1].next) &&
        client[0].phase != HAS_LEDGER && client[CLIENTS - 1].phase != HAS_LEDGER ->
        d_step {
            lower(cached.number); lower(durable.number);
            lower(cached_ledger.number[0]); lower(cached_ledger.number[1]);
            lower(durable_ledger.number[0]); lower(durable_ledger.number[1]);
            lower(client[0].next);
            if :: CLIENTS > 1 -> lower(client[CLIENTS - 1].next) :: else fi;
            lower(cached_ledger.done); lower(durable_ledger.done)
        }
    :: else
    fi
#else
    skip
#endif
}

/* A slot is written in part. */
inline tear() {
    number = client[c].next; slot = number % 2;
    cached_ledger.number[slot] = 0; cached_ledger.spent[slot] = 0;
    perhaps_durable_slot()
}

/* Changes are appended, so what a power cut leaves is a beginning of the file. To choose after each change
 * gives every beginning. A torn frame at the end is not read. */
inline perhaps_durable_state() {
    if
    :: skip
    :: copy(durable, cached)
    fi
}

inline end_write() {
    d_step {
        i = 0;
        do
        :: i < ASSIGNMENTS -> written[c].stage[i] = NONE; written[c].upload[i] = 0; i++
        :: else -> break
        od;
        written[c].spent = 0;
        client[c].write = IDLE; client[c].is_synced = false; client[c].is_whole = false
    }
}

/* client/src/core/journal.rs: on_written. A failed write is followed by the whole state under the same
 * number. */
inline fail() {
    end_write(); client[c].whole = true
}

#ifdef EARLY_REPORT /* MUTANT: leaves before it is written */
#define MAY_LEAVE true
#else
#define MAY_LEAVE client[c].durable[a]
#endif

#ifdef NO_COVER /* MUTANT: takes a ledger that lacks what the state has. Breaks a property with BLIND_APPEND. */
#define COVERS true
#else
#define COVERS (spent >= cached.spent + cached.after)
#endif

#ifdef NO_MARK /* MUTANT: does not look for its mark */
#define HAS_MARK true
#else
#define HAS_MARK (mark == c + 1)
#endif

#ifdef BLIND_APPEND /* MUTANT: appends without a look for its mark. Breaks a property with NO_COVER. */
#define APPEND_MARK true
#else
#define APPEND_MARK HAS_MARK
#endif

/* RACE is a limit, not a promise: the second client begins between the look for the mark and the end of the
 * write. */
#if defined(TWO) && !defined(RACE)
#define MAY_START (client[1 - c].write < SLOT || client[1 - c].write == APPEND)
#else
#define MAY_START true
#endif

/* ---- The core: one process for each assignment ---- */

proctype report(byte c; byte a) {
end:
    do
    /* client/src/core/choosing.rs: draw_by, why_unreported. client/src/ledger.rs: admits, debit.
     * client/src/core/state.rs: draw. An arm is drawn if the cap has room, and paid at once. Its id is the next
     * one of this start. */
    :: atomic { client[c].phase == UP && client[c].last == a && memory[c].spent < CAP ->
        printf("draw %d.%d\n", c, a);
        client[c].last++;
        if :: given < client[c].last -> given = client[c].last :: else fi;
        memory[c].stage[a] = OPEN; memory[c].upload[a] = 0;
#ifndef LATE_PAYMENT /* MUTANT: pays when the report is sealed */
        memory[c].spent++;
#endif
        client[c].pending = true }

    /* client/src/core/reporting.rs: privatize. client/src/core/state.rs: privatize. The window has ended, and
     * the bit is drawn. */
    :: atomic { client[c].phase == UP && memory[c].stage[a] == OPEN -> printf("privatize %d.%d\n", c, a);
        memory[c].stage[a] = BIT; client[c].pending = true }

    /* client/src/core/reporting.rs: due_task. client/src/outbox.rs: seal. The report is due, and gets its name
     * and its day. */
    :: atomic { client[c].phase == UP && memory[c].stage[a] == BIT -> printf("seal %d.%d\n", c, a);
        uploads[a]++; memory[c].upload[a] = uploads[a]; memory[c].stage[a] = SEALED;
#ifdef LATE_PAYMENT
        memory[c].spent++;
#endif
        client[c].pending = true; client[c].sealing = true }

    /* client/src/core/reporting.rs: due_task. client/src/outbox.rs: take. client/src/core/journal.rs:
     * durable. The upload leaves, for the first time or again: after a lost answer, a wait, a timeout, or by
     * a clock that goes back. Nothing but durability holds it. */
    :: atomic { client[c].phase == UP && memory[c].stage[a] == SEALED && MAY_LEAVE ->
        printf("leave %d.%d as %d\n", c, a, memory[c].upload[a]);
#ifdef FRESH_RETRY /* MUTANT: a retry draws anew */
        if
        :: left_as[a] != 0 && uploads[a] < 3 -> uploads[a]++; memory[c].upload[a] = uploads[a]
        :: else
        fi;
#endif
        if
        :: left_as[a] == 0 -> left++; left_as[a] = memory[c].upload[a]
        :: else -> assert(left_as[a] == memory[c].upload[a]) /* 2 */
        fi;
        assert(left <= memory[c].spent); /* 1 */
        assert(left <= CAP)              /* 3 */ }

    /* client/src/core/reporting.rs: on_upload_result, drop_expired. A final answer has come, or the report is
     * 60 days old. */
    :: atomic { client[c].phase == UP && memory[c].stage[a] >= BIT && memory[c].stage[a] < SETTLED ->
        printf("settle %d.%d\n", c, a);
        memory[c].stage[a] = SETTLED; memory[c].upload[a] = 0;
        client[c].durable[a] = false; client[c].pending = true }
    od
}

/* ---- The writer, the start and the end of a process ---- */

proctype process(byte c) {
end:
    do
    /* client/src/core/journal.rs: take_write. All changes so far are written. A write with a seal is synced,
     * and so is a whole state. The state is whole at a start, after a failure, and now and then. */
    :: atomic { client[c].phase == UP && client[c].write == IDLE && (client[c].whole || client[c].pending) ->
        printf("take write %d\n", c);
        copy(written[c], memory[c]);
        if
#ifdef WHOLE
        :: true -> client[c].is_whole = true
#else
        :: client[c].whole -> client[c].is_whole = true
#endif
        :: !client[c].whole -> client[c].is_whole = false
        fi;
        client[c].is_synced = client[c].is_whole || client[c].sealing;
        client[c].whole = false; client[c].pending = false; client[c].sealing = false;
        client[c].write = (client[c].is_synced -> CHECK : APPEND) }

    /* client/src/storage/mod.rs: commit. client/src/storage/directory.rs: append. What is handed out depends on
     * none of these changes, so they are appended and not synced. */
    :: atomic { client[c].write == APPEND -> printf("append %d\n", c);
        if
        :: !APPEND_MARK -> fail()
        :: APPEND_MARK && client[c].owns ->
            number = cached.number; spent = cached.spent;
            copy(cached, written[c]);
            cached.number = number; cached.spent = spent; cached.after = written[c].spent - spent;
            perhaps_durable_state(); end_write()
        :: else -> end_write() /* nobody finds the file any more */
        fi }

    /* client/src/storage/mod.rs: commit. client/src/storage/directory.rs: check. Nobody else has marked the
     * file of the lock, and the open files have their names. */
    :: atomic { client[c].write == CHECK -> printf("look for the mark %d\n", c);
        if
        :: HAS_MARK && client[c].is_settled -> client[c].write = SLOT
        :: HAS_MARK && !client[c].is_settled -> client[c].write = SETTLE
        :: else -> fail()
        fi }

    /* client/src/storage/mod.rs: settle. Before the first write of a start, what a killed process has left
     * to the operating system is made durable. */
    :: atomic { client[c].write == SETTLE -> printf("settle what was read %d\n", c);
#ifndef NO_SETTLE /* MUTANT: does not */
        copy(durable, cached);
        durable_ledger.number[0] = cached_ledger.number[0]; durable_ledger.spent[0] = cached_ledger.spent[0];
        durable_ledger.number[1] = cached_ledger.number[1]; durable_ledger.spent[1] = cached_ledger.spent[1];
#endif
        client[c].is_settled = true; client[c].write = SLOT }

    /* client/src/storage/mod.rs: write_ledger. The ledger goes first, to the slot that is not the last one. */
    :: atomic { client[c].write == SLOT -> printf("write slot %d, number %d\n", c, client[c].next);
        number = client[c].next; slot = number % 2;
        cached_ledger.number[slot] = number; cached_ledger.spent[slot] = written[c].spent;
        perhaps_durable_slot();
        client[c].write = SLOT_SYNC }
    :: atomic { client[c].write == SLOT_SYNC -> printf("sync ledger %d\n", c);
        slot = client[c].next % 2;
        durable_ledger.number[slot] = cached_ledger.number[slot];
        durable_ledger.spent[slot] = cached_ledger.spent[slot];
        client[c].write = STATE }

    /* client/src/storage/mod.rs: commit, replace. client/src/storage/directory.rs: append, create, rename.
     * Changes are appended to the state. A whole one is written to another file, synced and renamed. */
    :: atomic { client[c].write == STATE -> printf("write state %d\n", c);
        if
        :: client[c].is_whole || client[c].owns ->
            copy(cached, written[c]);
            cached.number = client[c].next; cached.after = 0;
            perhaps_durable_state();
            if
            :: client[c].is_whole ->
                client[0].owns = false; client[CLIENTS - 1].owns = false; client[c].owns = true
            :: else
            fi
        :: else
        fi;
        client[c].write = STATE_SYNC }
    /* client/src/storage/directory.rs: sync, sync_directory. */
    :: atomic { client[c].write == STATE_SYNC -> printf("sync state %d\n", c);
#ifndef NO_SYNC /* MUTANT: does not sync the state */
        if :: client[c].owns -> copy(durable, cached) :: else fi;
#endif
        client[c].write = DONE }

    /* client/src/storage/mod.rs: commit. The number of the completed write, which is not synced. */
    :: atomic { client[c].write == DONE -> printf("note that it is done %d\n", c);
        cached_ledger.done = client[c].next;
        client[c].write = (cached_installed -> WRITTEN : INSTALL) }
    /* client/src/storage/mod.rs: mark. */
    :: atomic { client[c].write == INSTALL -> printf("mark as installed %d\n", c);
        cached_installed = true; durable_installed = true; client[c].write = WRITTEN }

    /* client/src/core/journal.rs: on_written. What was sealed when the write was taken may leave now. */
    :: atomic { client[c].write == WRITTEN -> printf("written %d\n", c);
            i = 0;
            do
            :: i < ASSIGNMENTS && written[c].stage[i] == SEALED && memory[c].stage[i] == SEALED ->
                client[c].durable[i] = true; i++
            :: i < ASSIGNMENTS && (written[c].stage[i] != SEALED || memory[c].stage[i] != SEALED) -> i++
            :: else -> break
            od;
            client[c].next++; end_write(); lower_numbers() }

    /* An operation fails, after it has done all, a part, or nothing of its work. */
    :: atomic { client[c].write > CHECK && client[c].write != WRITTEN && errors < ERRORS ->
        printf("error %d\n", c);
        errors++; fail() }
    :: atomic { client[c].write == SLOT && errors < ERRORS && client[c].next > 1 ->
        printf("error in a slot %d\n", c);
        errors++; tear(); fail() }

    /* client/src/storage/directory.rs: lock, marked. client/src/sdk/disk.rs: open, open_again. The lock keeps a
     * second client out, unless it was lost, or is that of another copy of the library. */
    :: atomic { client[c].phase == DOWN && starts < STARTS && MAY_START -> printf("start %d\n", c);
        starts++; mark = c + 1; client[c].phase = MARKED }

    /* client/src/storage/mod.rs: read_ledger. The later valid slot, and the number of the last completed
     * write. */
    :: atomic { client[c].phase == MARKED -> printf("read ledger %d\n", c);
        slot = (cached_ledger.number[1] > cached_ledger.number[0] -> 1 : 0);
        client[c].ledger_number = cached_ledger.number[slot];
        client[c].ledger_spent = cached_ledger.spent[slot];
        client[c].ledger_done = cached_ledger.done;
        client[c].phase = HAS_LEDGER }

    /* client/src/storage/mod.rs: open, read, read_state, begin_epoch. client/src/core/journal.rs: restored,
     * stored. client/src/core/state.rs: AS_READ. What was read is not durable before the first write. */
    :: atomic { client[c].phase == HAS_LEDGER -> printf("read state %d\n", c);
        copy(memory[c], cached);
        memory[c].spent = cached.spent + cached.after; memory[c].after = 0; memory[c].number = 0;
        number = client[c].ledger_number; spent = client[c].ledger_spent;
        client[c].phase = UP; client[c].next = cached.number + 1;
        if
        /* A first start, or the very first write was interrupted. */
        :: cached.number == 0 && number <= 1 && !cached_installed -> memory[c].spent = spent
        :: cached.number > 0 && number > 0 ->
            if
            :: number == cached.number && spent < cached.spent -> client[c].phase = REFUSED
            :: number == cached.number && spent >= cached.spent -> memory[c].spent = spent + cached.after
            /* The ledger is one ahead: it includes what the state lacks. */
            :: number == cached.number + 1 && !COVERS -> client[c].phase = REFUSED
            :: number == cached.number + 1 && COVERS -> memory[c].spent = spent
            /* The slot of that write is to be written again, not the only valid one. */
            :: cached.number == number + 1 -> client[c].next = cached.number
            :: else -> client[c].phase = REFUSED
            fi;
#ifndef NO_DONE /* MUTANT: does not compare with the last completed write */
            if :: cached.number < client[c].ledger_done -> client[c].phase = REFUSED :: else fi
#endif
        :: else -> client[c].phase = REFUSED
        fi;
        if
        :: client[c].phase == REFUSED ->
#ifdef NO_REFUSAL
            assert(false); /* 4 */
#endif
            forget(c); client[c].phase = REFUSED
        :: else ->
            assert(left <= memory[c].spent); /* 1 */
            client[c].whole = true;
            client[c].ledger_number = 0; client[c].ledger_spent = 0; client[c].ledger_done = 0;
            /* Ids of earlier starts never come again. */
            client[c].last = given;
#ifdef READ_IS_DURABLE /* MUTANT: takes what was read for durable */
            i = 0;
            do
            :: i < ASSIGNMENTS -> client[c].durable[i] = (memory[c].stage[i] == SEALED); i++
            :: else -> break
            od
#endif
        fi }

    /* The process is killed, perhaps in the middle of a slot. What the operating system has stays. */
    :: atomic { client[c].phase != DOWN && client[c].phase != REFUSED -> printf("kill %d\n", c); forget(c) }
    :: atomic { client[c].write == SLOT && client[c].next > 1 ->
        printf("kill in a slot %d\n", c); tear(); forget(c) }
    od
}

/* ---- What happens to the disk ---- */

proctype world() {
end:
    do
#if !defined(RESTORE) || defined(POWER)
    /* The power fails. */
    :: atomic { starts > 0 && starts < STARTS -> printf("power cut\n");
        forget(0); forget(CLIENTS - 1);
        copy(cached, durable);
        if :: durable_ledger.done = cached_ledger.done :: true fi;
        copy_ledger(cached_ledger, durable_ledger);
        cached_installed = durable_installed }
#endif
#ifdef RESTORE
    /* Somebody copies the directory, and later puts one of the two files in place. */
    :: atomic { !has_copied && client[0].write == IDLE && cached.number > 0 ->
        has_copied = true; copy(copied, cached); copy_ledger(copied_ledger, cached_ledger) }
    :: atomic { has_copied && !has_restored && client[0].phase == DOWN ->
        has_restored = true;
        if
#ifndef BOTH
        :: copy(cached, copied); copy(durable, copied)
        :: copy_ledger(cached_ledger, copied_ledger); copy_ledger(durable_ledger, copied_ledger)
#else
        /* BOTH is a limit, not a promise: both files are put in place. */
        :: copy(cached, copied); copy(durable, copied);
           copy_ledger(cached_ledger, copied_ledger); copy_ledger(durable_ledger, copied_ledger)
#endif
        fi }
#endif
    :: atomic { false -> skip }
    od
}

init {
    atomic {
        byte one = 0;
        byte another = 0;
        do
        :: one < CLIENTS ->
            another = 0;
            do
            :: another < ASSIGNMENTS -> run report(one, another); another++
            :: else -> break
            od;
            run process(one);
            one++
        :: else -> break
        od;
        run world();
        one = 0; another = 0
    }
}
