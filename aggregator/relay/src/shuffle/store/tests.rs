//! Reports wait for their batch, count once, and leave in an order of their own.

use bandana_sqlite::acknowledged;

use super::*;

const TODAY: Day = Day::new(20_000);
const LIMITS: ShuffleLimits =
    ShuffleLimits { replay_window_days: 7, reports_max: 100, share_per_address: 1.0 };

fn envelope(number: u8, arm: usize) -> Envelope {
    Envelope {
        id: UploadId::new([number; 16]),
        day: TODAY,
        digest: Digest::new([1; 16]),
        cell: CellIndex::new(arm).unwrap(),
        batch: BatchSize::new(3).unwrap(),
        keys: [8; 16],
        report: [number; ShuffledReport::SEALED_BYTES],
    }
}

fn open(directory: &Path, limits: ShuffleLimits) -> Result<ReportStore, SqliteError> {
    ReportStore::open(Presence::Optional, directory, limits)
}

/// Keeps reports, each of an address of its own.
fn keep(store: &mut ReportStore, envelopes: &[Envelope], today: Day) -> Vec<Verdict> {
    let of_own =
        |envelope: &Envelope| (envelope.clone(), Origin(envelope.report[..8].try_into().unwrap()));
    let reports: Vec<_> = envelopes.iter().map(of_own).collect();
    let verdicts = store.keep(&reports, today).unwrap().verdicts.into_iter();
    verdicts.map(Option::unwrap).collect()
}

fn batches(store: &ReportStore) -> Vec<Batch> {
    let keys = store.batches().unwrap().into_iter();
    keys.map(|key| store.batch(key).unwrap().unwrap()).collect()
}

#[test]
fn reports_wait_for_as_many_of_their_arm_as_a_batch_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), LIMITS).unwrap();
    let few = [envelope(1, 0), envelope(2, 0), envelope(3, 1), envelope(4, 1)];
    assert_eq!(keep(&mut store, &few, TODAY), [Verdict::Accepted; 4]);
    assert!(batches(&store).is_empty());
    drop(store);

    let mut store = open(folder.path(), LIMITS).unwrap();
    let again = [envelope(2, 0), envelope(5, 0), envelope(5, 0)];
    let verdicts = keep(&mut store, &again, TODAY);
    assert_eq!(verdicts, [Verdict::Duplicate, Verdict::Accepted, Verdict::Duplicate]);
    let full = batches(&store);
    assert_eq!(full.len(), 1);
    let reports = full[0].reports.chunks(ShuffledReport::SEALED_BYTES);
    let mut numbers: Vec<u8> = reports.map(|report| report[0]).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 5]);
    assert_eq!((full[0].day, full[0].cell.get()), (TODAY, 0));

    // A settled batch is gone, and its ids are not.
    store.settle(&full[0]).unwrap();
    drop(store);
    let mut store = open(folder.path(), LIMITS).unwrap();
    assert!(batches(&store).is_empty());
    assert_eq!(keep(&mut store, &[envelope(1, 0)], TODAY), [Verdict::Duplicate]);
    let waiting: Vec<u32> = store.waiting_batches().map(|(_, reports)| reports).collect();
    assert_eq!(waiting.iter().sum::<u32>(), 2);
    let dropped = store.drop_experiment(Digest::new([1; 16])).unwrap();
    assert_eq!(dropped, Dropped { reports: 2, batches: 0 });
    assert_eq!(store.waiting_batches().count(), 0);
    assert_eq!(keep(&mut store, &[envelope(3, 1)], TODAY), [Verdict::Duplicate]);
}

#[test]
fn no_address_has_more_than_its_share_of_a_batch_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ShuffleLimits { share_per_address: 0.5, ..LIMITS };
    let of = |number, address| {
        let envelope = Envelope { batch: BatchSize::new(4).unwrap(), ..envelope(number, 0) };
        (envelope, Origin([address; 8]))
    };
    let mut store = open(folder.path(), limits).unwrap();
    let accepted = Some(Verdict::Accepted);
    let keep =
        |store: &mut ReportStore, reports: &[_]| store.keep(reports, TODAY).unwrap().verdicts;
    let verdicts = keep(&mut store, &[of(1, 1), of(2, 1), of(3, 1), of(2, 1)]);
    assert_eq!(verdicts, [accepted, accepted, None, Some(Verdict::Duplicate)]);
    drop(store);
    let mut store = open(folder.path(), limits).unwrap();
    // What was turned away is not known, and comes again.
    assert_eq!(keep(&mut store, &[of(3, 1), of(4, 2)]), [None, accepted]);
    assert!(batches(&store).is_empty());
    assert_eq!(keep(&mut store, &[of(5, 3), of(3, 1)]), [accepted, accepted]);
    assert_eq!(batches(&store).len(), 1);
}

#[test]
fn one_report_of_an_address_is_always_taken_and_all_where_an_address_may_have_all() {
    let most = |share_per_address, batch| {
        let limits = ShuffleLimits { share_per_address, ..LIMITS };
        limits.most_of_address(BatchSize::new(batch).unwrap())
    };
    assert_eq!([most(0.1, 2), most(0.1, 10), most(0.1, 19), most(0.1, 1000)], [1, 1, 1, 100]);
    assert_eq!([most(1.0, 2), most(1.0, 16_384), most(1e-300, 16_384)], [2, 16_384, 1]);
}

#[test]
fn a_store_of_the_version_before_is_taken_with_what_it_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), LIMITS).unwrap();
    keep(&mut store, &[envelope(1, 0), envelope(2, 0)], TODAY);
    drop(store);
    let database = Connection::open(folder.path().join("bandana.sqlite3")).unwrap();
    let before = "DROP INDEX report_by_origin; ALTER TABLE report DROP COLUMN origin;
        ALTER TABLE batch DROP COLUMN keys;
        CREATE INDEX report_by_pile ON report (pile); PRAGMA user_version = 1;";
    database.execute_batch(before).unwrap();
    drop(database);
    let mut store = open(folder.path(), LIMITS).unwrap();
    keep(&mut store, &[envelope(3, 0)], TODAY);
    assert_eq!(batches(&store).len(), 1);
}

#[test]
fn reports_for_other_keys_are_in_no_batch_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), LIMITS).unwrap();
    let other = |number| Envelope { keys: [9; 16], ..envelope(number, 0) };
    let mixed = [envelope(1, 0), other(2), envelope(3, 0), other(4)];
    keep(&mut store, &mixed, TODAY);
    assert!(batches(&store).is_empty());
    drop(store);
    let mut store = open(folder.path(), LIMITS).unwrap();
    keep(&mut store, &[other(5)], TODAY);
    let full = batches(&store);
    assert_eq!(full.len(), 1);
    let reports = full[0].reports.chunks(ShuffledReport::SEALED_BYTES);
    assert!(reports.map(|report| report[0]).all(|number| [2, 4, 5].contains(&number)));
}

#[test]
fn days_outside_of_the_window_are_refused_and_the_window_never_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), LIMITS).unwrap();
    let of_day = |day| Envelope { day, ..envelope(1, 0) };
    let oldest = TODAY.back(6);
    let days = [TODAY.back(7), TODAY.forward(1), oldest];
    let verdicts = keep(&mut store, &days.map(of_day), TODAY);
    let future = Verdict::FutureDay { today: TODAY };
    assert_eq!(verdicts, [Verdict::Expired { oldest }, future, Verdict::Accepted]);
    // The next day forgets the id, and refuses its day.
    let oldest = oldest.forward(1);
    let verdicts = keep(&mut store, &[of_day(TODAY.back(6))], TODAY.forward(1));
    assert_eq!(verdicts, [Verdict::Expired { oldest }]);
    let verdicts = keep(&mut store, &[of_day(TODAY.back(6))], TODAY);
    assert_eq!(verdicts, [Verdict::Expired { oldest }]);
    let verdicts = keep(&mut store, &[of_day(TODAY.back(8))], TODAY.back(8));
    assert_eq!(verdicts, [Verdict::ClockBehind]);
}

#[test]
fn a_full_store_takes_no_more_and_still_knows_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ShuffleLimits { reports_max: 2, ..LIMITS };
    let mut store = open(folder.path(), limits).unwrap();
    let many = [envelope(1, 0), envelope(2, 0), envelope(3, 0), envelope(1, 0)];
    let verdicts = keep(&mut store, &many, TODAY);
    let [accepted, duplicate] = [Verdict::Accepted, Verdict::Duplicate];
    assert_eq!(verdicts, [accepted, accepted, Verdict::Full, duplicate]);
}

#[test]
fn a_directory_has_one_owner_and_must_stay_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("relay");
    let mut store = open(&directory, LIMITS).unwrap();
    let second = open(&directory, LIMITS).unwrap_err();
    assert!(matches!(second, SqliteError::Locked { .. }), "{second}");
    std::fs::rename(&directory, folder.path().join("elsewhere")).unwrap();
    assert!(store.keep(&[(envelope(1, 0), Origin([0; 8]))], TODAY).is_err());
}

#[test]
fn a_store_that_lacks_what_was_acknowledged_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = ReportStore::open(Presence::Required, folder.path(), LIMITS).unwrap_err();
    assert!(matches!(missing, SqliteError::Missing { .. }), "{missing}");
    let mut store = open(folder.path(), LIMITS).unwrap();
    keep(&mut store, &[envelope(1, 0)], TODAY);
    let copy = tempfile::tempdir().unwrap();
    drop(store);
    let database = folder.path().join("bandana.sqlite3");
    std::fs::copy(&database, copy.path().join("old")).unwrap();
    let mut store = open(folder.path(), LIMITS).unwrap();
    keep(&mut store, &[envelope(2, 0)], TODAY);
    // As of a process that was killed: the log is not copied into the database.
    store.database.keep_log();
    drop(store);
    let log = folder.path().join("bandana.sqlite3-wal");
    assert!(std::fs::metadata(&log).unwrap().len() > 0);
    std::fs::remove_file(&log).unwrap();
    let refused = open(folder.path(), LIMITS).unwrap_err();
    assert!(format!("{refused:?}").contains("acknowledged"), "{refused:?}");
    std::fs::copy(copy.path().join("old"), &database).unwrap();
    assert!(open(folder.path(), LIMITS).is_err());
    // Whoever has nothing better can say so.
    std::fs::remove_file(acknowledged::path(folder.path())).unwrap();
    let mut store = open(folder.path(), LIMITS).unwrap();
    let both = [envelope(1, 0), envelope(2, 0)];
    let verdicts = keep(&mut store, &both, TODAY);
    assert_eq!(verdicts, [Verdict::Duplicate, Verdict::Accepted]);
    // Another program writes while it is open.
    let other = Connection::open(&database).unwrap();
    other.execute("DELETE FROM seen", []).unwrap();
    assert!(store.keep(&[(envelope(3, 0), Origin([0; 8]))], TODAY).is_err());
}

#[test]
fn every_order_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ShuffleLimits { reports_max: 10_000, ..LIMITS };
    let mut store = open(folder.path(), limits).unwrap();
    let mut orders: HashMap<Vec<u8>, u32> = HashMap::new();
    for round in 0..200_u16 {
        let three = [1, 2, 3].map(|number| {
            let mut id = [number; 16];
            id[..2].copy_from_slice(&round.to_be_bytes());
            Envelope { id: UploadId::new(id), ..envelope(number, 0) }
        });
        keep(&mut store, &three, TODAY);
        let batch = batches(&store).pop().unwrap();
        let reports = batch.reports.chunks(ShuffledReport::SEALED_BYTES);
        *orders.entry(reports.map(|report| report[0]).collect()).or_default() += 1;
        store.settle(&batch).unwrap();
    }
    // Each of the six has a sixth: fewer than 8 of 200 has odds below 1e-7.
    assert_eq!(orders.len(), 6);
    assert!(orders.values().all(|times| *times >= 8), "{orders:?}");
}
