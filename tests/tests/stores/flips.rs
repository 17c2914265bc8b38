//! Flipped bits: each is detected or harmless.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::{CellIndex, Day, UnixSeconds, UploadId};
use bandana_shared::signing::SigningKey;
use bandana_shared::specification::Arm;
use bandana_shared::tally::Tally;
use bandana_shared::transparency::{Frontier, leaf_hash};
use bandana_store::{
    AuditAction, AuditQuery, CuratorChange, CuratorName, EmbeddedSettings, EmbeddedStore,
    EpochToAdd, ExperimentState, SessionRound, SessionUpdate, Store, StoreReader, StoredEpoch,
    TrustedChange, TrustedCommit, TrustedVersion, ValidUpload, verify_file,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::Case;
use super::places::{Place, WINDOW, commit, create, entry, experiment, upload};
use super::queries::{debit, register, session};
use super::trusted;

pub(crate) const OF_FILES: &[(&str, Case)] =
    &[("a_bit_of_the_file_that_is_another_is_noticed_or_means_nothing", of_a_file)];

/// Number of bits to flip, one at a time, and the variable that raises it.
const FLIPS: usize = 150;
pub(crate) const MORE: &str = "BANDANA_BIT_FLIPS";

/// The newest day in the store.
pub(crate) const TODAY: u32 = 104;

fn flips() -> anyhow::Result<usize> {
    std::env::var(MORE).map_or(Ok(FLIPS), |number| number.parse().context(MORE))
}

fn name(text: &str) -> anyhow::Result<CuratorName> {
    Ok(CuratorName::new(text)?)
}

fn symbols(upload: ValidUpload) -> anyhow::Result<ValidUpload> {
    let symbol = |number| Symbol::new(number).context("no symbol");
    let tally = Tally::with_symbols(9, [(symbol(1)?, 2), (symbol(2)?, 3), (symbol(15)?, 1)])?;
    Ok(ValidUpload { tallies: vec![(CellIndex::new(1)?, tally)], ..upload })
}

/// A round of the session, which was an update.
fn round(number: u32) -> anyhow::Result<SessionRound> {
    let (session, predicate) = (name("habits")?, format!("age={number}"));
    let update = SessionUpdate { session: session.clone(), number, predicate, answer: 4 };
    Ok(SessionRound { session, number: number.into(), update: Some(update) })
}

/// Adds epochs to the log, of which the last ones keep what they say.
fn log(store: &mut dyn Store) -> anyhow::Result<()> {
    let mut log = Frontier::default();
    for number in 0..5_u8 {
        let entry = [number; 32];
        log.push(leaf_hash(&entry));
        let (number, content) = (number.into(), vec![7; 40]);
        let time = UnixSeconds::new(60 * (number + 1));
        let epoch = StoredEpoch { number, time, entry, log: log.clone(), content };
        store.add_epoch(&EpochToAdd { epoch, keep_from: number.saturating_sub(2) })?;
    }
    Ok(())
}

/// Adds rows to every table.
pub(crate) fn fill(store: &mut dyn Store) -> anyhow::Result<()> {
    let (first, second) = (create(store, "first")?, create(store, "second")?);
    let specification = &first.revisions[0];
    let revised = specification.with_arm(Arm::new("c")?)?;
    let expected = first.expected().context("no revision")?;
    store.add_revision(expected, &revised, &entry("first", AuditAction::AddArm)?)?;
    let signature = SigningKey::from_secret(&[1; 32]).sign(&revised, UnixSeconds::new(100));
    let signing = entry("first", AuditAction::AddSignature)?;
    store.add_signature(first.key, &revised, &signature, UnixSeconds::new(1), &signing)?;
    let expected = second.expected().context("no revision")?;
    let (one, two) = (experiment(&first)?, experiment(&second)?);
    for day in 98..=TODAY {
        let of_day = |number: u128| upload(&one, number, day, 2);
        let mut uploads = (0..20).map(of_day).collect::<Result<Vec<_>, _>>()?;
        uploads.push(symbols(upload(&two, 21, day, 1)?)?);
        commit(store, &uploads, day)?;
        commit(store, &[upload(&one, 30, day, 1)?], day)?;
    }
    for group in 1..6 {
        let many = (group * 1000..group * 1000 + 700).map(|number| upload(&one, number, TODAY, 1));
        commit(store, &many.collect::<Result<Vec<_>, _>>()?, TODAY)?;
    }
    store.set_state(expected, ExperimentState::Paused, &entry("second", AuditAction::Pause)?)?;
    register(store, "people", 100_000)?;
    register(store, "others", 5)?;
    for price in 1..40 {
        store.apply_query_change(&CuratorChange::Debit(debit("people", price)?, None))?;
    }
    store.apply_query_change(&CuratorChange::Open(
        debit("people", 1)?,
        session("habits", "people")?,
    ))?;
    for number in 0..10 {
        store.apply_query_change(&CuratorChange::Round(round(number)?, None))?;
    }
    log(store)?;
    trusted::add(store, "sidebar")?;
    let mut record = trusted::add(store, "headlines")?;
    for number in 0..3 {
        let name = |of: u128| (Day::new(TODAY), UploadId::new((number * 100 + of).to_be_bytes()));
        let change = trusted::next(&record, (0..1).map(name).collect())?;
        store.apply_trusted_change(&TrustedChange::Commit(change.clone()))?;
        record.version = change.to;
        record.private = Some(change.private);
        record.released = change.released;
    }
    Ok(())
}

/// All output of a store, before and after some work, and the final rows of all tables.
fn serve(folder: &Path) -> anyhow::Result<String> {
    let settings = EmbeddedSettings { replay_window_days: WINDOW, ids_max: 100_000 };
    let mut store = EmbeddedStore::open(folder, settings)?;
    let mut said = told(&mut store, folder)?;
    let records = store.load()?;
    let one = experiment(records.first().context("no experiment")?)?;
    let days = TODAY - 2..=TODAY + 1;
    let of_day = |day| [upload(&one, 3, day, 2), upload(&one, 9_000, day, 2)];
    let uploads = days.flat_map(of_day).collect::<Result<Vec<_>, _>>()?;
    writeln!(said, "{:?}", commit(&mut store, &uploads, TODAY + 1)?)?;
    store.apply_query_change(&CuratorChange::Debit(debit("people", 7)?, None))?;
    store.apply_query_change(&CuratorChange::Round(round(10)?, None))?;
    let record = StoreReader::new(folder).trusted(None)?.remove(0);
    let names = vec![(Day::new(TODAY), UploadId::new([9; 16]))];
    let to = TrustedVersion { sequence: record.version.sequence + 1, stamp: 5 };
    let change = TrustedCommit { to, ..trusted::next(&record, names)? };
    store.apply_trusted_change(&TrustedChange::Commit(change))?;
    create(&mut store, "third")?;
    said += &told(&mut store, folder)?;
    Box::new(store).close()?;
    said += &tables(&folder.join("bandana.sqlite3"))?;
    Ok(said)
}

fn told(store: &mut dyn Store, folder: &Path) -> anyhow::Result<String> {
    let reader = StoreReader::new(folder);
    let people = name("people")?;
    let mut said = format!("{:?}\n", store.load()?);
    let query = AuditQuery { experiment: None, limit: 1000, before: None };
    writeln!(said, "{:?}", reader.audit(&query)?)?;
    writeln!(said, "{:?}", reader.data_sets(None)?)?;
    writeln!(said, "{:?}", reader.debits((&people, None), None, 1000)?)?;
    writeln!(said, "{:?}", reader.session(&name("habits")?)?.map(|s| (s.plan, s.threshold_noise)))?;
    writeln!(said, "{:?}", reader.session_updates(&name("habits")?, 0, 1000)?)?;
    for record in reader.trusted(None)? {
        writeln!(said, "{record:?} {:?} {:?}", record.private, record.released)?;
    }
    Ok(said)
}

/// All rows of all tables, as SQLite returns them.
fn tables(file: &Path) -> anyhow::Result<String> {
    let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name";
    let mut said = rows(&database, schema)?;
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut names = database.prepare(names)?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in names {
        said += &rows(&database, &format!("SELECT * FROM \"{table}\" ORDER BY 1, 2"))?;
    }
    Ok(said)
}

fn rows(database: &Connection, query: &str) -> anyhow::Result<String> {
    let mut statement = database.prepare(query)?;
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        (0..columns).map(|column| row.get(column)).collect::<rusqlite::Result<Vec<Value>>>()
    };
    let rows = statement.query_map([], row)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let lines: Vec<_> = rows.iter().map(|row| format!("{row:?}\n")).collect();
    Ok(lines.concat())
}

/// Flips a bit of a file.
#[expect(clippy::print_stderr, reason = "the figures are what a long run is made for")]
fn of_a_file(place: &Place) -> anyhow::Result<()> {
    let Place::Embedded(folder) = place else { anyhow::bail!("not a file") };
    let mut store = place.open()?;
    fill(&mut *store)?;
    store.close()?;
    let intact = fs::read(folder.path().join("bandana.sqlite3"))?;
    let copy = tempfile::tempdir()?;
    let file = copy.path().join("bandana.sqlite3");
    fs::write(&file, &intact)?;
    let before = tables(&file)?;
    let expected = serve(copy.path())?;
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let (mut kinds, mut missed) = (BTreeMap::new(), Vec::new());
    for _ in 0..flips()? {
        let bit = random.random_range(0..intact.len() * 8);
        let mut bytes = intact.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Files left by a failed start would be read together with the next file.
        for left in ["wal", "shm", "acknowledged"] {
            drop(fs::remove_file(copy.path().join(format!("bandana.sqlite3-{left}"))));
        }
        fs::write(&file, &bytes)?;
        let verified = verify_file(&file);
        let is_found = verified.as_ref().map_or(true, |verified| !verified.is_sound());
        let is_same = tables(&file).is_ok_and(|found| found == before);
        let served = serve(copy.path());
        let is_served_as_before = served.as_ref().map(|said| *said == expected);
        let part = part(&intact, bit / 8);
        let kind = match (is_found, &is_served_as_before) {
            (true, Err(_)) => "found, and no start",
            // The length of the list of free pages, which is in no row and follows from nothing else.
            (true, Ok(true)) => "found, and served as before",
            (false, Ok(true)) if is_same => "without meaning",
            _ => "missed",
        };
        if kind == "missed" {
            missed.push((bit / 8, bit % 8, part, is_found, is_same, is_served_as_before.ok()));
        }
        *kinds.entry((kind, part)).or_insert(0) += 1;
    }
    if std::env::var_os(MORE).is_some() {
        eprintln!("{} bytes: {kinds:#?}", intact.len());
    }
    ensure!(missed.is_empty(), "{} missed: {missed:?}", missed.len());
    Ok(())
}

/// The part of a database file to which a byte belongs.
fn part(file: &[u8], place: usize) -> &'static str {
    const PAGE: usize = 4096;
    let two = |at: usize| usize::from(u16::from_be_bytes([file[at], file[at + 1]]));
    let four = |at: usize| two(at) << 16 | two(at + 2);
    if place < 100 {
        return "header of the file";
    }
    let mut trunk = four(32);
    while trunk != 0 {
        let begin = (trunk - 1) * PAGE;
        let leaves = (0..four(begin + 4)).map(|leaf| four(begin + 8 + 4 * leaf));
        if place / PAGE + 1 == trunk || leaves.into_iter().any(|leaf| leaf == place / PAGE + 1) {
            return "free pages";
        }
        trunk = four(begin);
    }
    let page = place / PAGE * PAGE;
    let header = if page == 0 { 100 } else { page };
    let length = match file[header] {
        2 | 5 => 12,
        10 | 13 => 8,
        _ => return "pages of long rows",
    };
    let pointers = header + length + 2 * two(header + 3);
    let content = page + if two(header + 5) == 0 { 65536 } else { two(header + 5) };
    if place < header + length {
        "headers of pages"
    } else if (pointers..content).contains(&place) {
        "unused space of pages"
    } else {
        "rows, and keys of indexes"
    }
}
