//! Checks that tallies are the sums of the uploads.

use std::collections::BTreeMap;

use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::Day;
use bandana_shared::stored;
use bandana_shared::tally::{Tally, TallyError};
use rusqlite::{Connection, Row};

use super::experiments::Known;
use super::noted;
use crate::verification::Finding;
use crate::{StoreError, StoredDeltas, Verification, revision_and_cell};

/// The key of a tally: experiment, day and arm.
type TallyKey = (i64, u32, u32);

/// The sums of the uploads of every day, and the upload ids.
#[derive(Debug)]
pub(super) struct Uploads<'e> {
    experiments: &'e BTreeMap<i64, Known>,
    oldest: Option<Day>,
    sums: BTreeMap<TallyKey, Tally>,
    names: BTreeMap<u32, Vec<[u8; 16]>>,
}

impl<'e> Uploads<'e> {
    pub(super) fn new(experiments: &'e BTreeMap<i64, Known>, oldest: Option<Day>) -> Self {
        Self { experiments, oldest, sums: BTreeMap::new(), names: BTreeMap::new() }
    }

    /// Reads the groups of the replay window, and groups of earlier days that are not yet in the
    /// checkpoint.
    pub(super) fn groups(
        &mut self,
        connection: &Connection,
        verification: &mut Verification,
    ) -> Result<(), StoreError> {
        verification.begin("groups of uploads");
        let mut read = || {
            let query = "SELECT day, sum(length(ids)) / 16 FROM upload_group GROUP BY day";
            let mut counts = connection.prepare(query)?;
            let counts =
                counts.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, usize>(1)?)))?;
            for count in counts {
                let (day, ids) = count?;
                self.names.entry(day).or_default().reserve_exact(ids);
            }
            let query = "SELECT key, day, ids, deltas FROM upload_group ORDER BY key";
            let mut statement = connection.prepare(query)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                verification.examined(1);
                self.group(row, verification)?;
            }
            Ok(())
        };
        let outcome = read();
        noted(verification, "the groups of uploads", outcome).map(drop)
    }

    fn group(&mut self, row: &Row<'_>, verification: &mut Verification) -> rusqlite::Result<()> {
        let (key, day): (i64, u32) = (row.get(0)?, row.get(1)?);
        let place = format!("group {key} of day {day}");
        let ids = row.get_ref(2)?.as_blob()?.as_chunks::<16>().0;
        if ids.is_empty() || !ids.is_sorted_by(|one, next| one < next) {
            verification.say(format!("{place}: its ids are not as they were written"));
        }
        self.names.entry(day).or_default().extend_from_slice(ids);
        let deltas = stored::from_bytes::<StoredDeltas>(row.get_ref(3)?.as_blob()?);
        let deltas = match deltas.map_err(StoreError::from).and_then(StoredDeltas::tallies) {
            Ok(deltas) => deltas,
            Err(error) => {
                verification.say(format!("{place}: what its uploads add can't be read: {error}"));
                return Ok(());
            }
        };
        let mut all = Tally::EMPTY;
        for (experiment, arm, tally) in deltas {
            let place = (experiment, day, arm);
            all += tally;
            // The experiment was deleted with its tallies; its upload ids are kept.
            if self.experiments.get(&experiment).is_some_and(|known| known.is_deleted) {
                continue;
            }
            self.place("a group", place, verification);
            *self.sums.entry(place).or_default() += tally;
        }
        // An upload has at least one report.
        if all.reports() < ids.len() as u64 {
            verification.say(format!(
                "{place}: its {} uploads have {} reports only",
                ids.len(),
                all.reports()
            ));
        }
        Ok(())
    }

    /// Checks that no upload was counted twice.
    pub(super) fn names(&mut self, verification: &mut Verification) {
        verification.begin("ids of uploads");
        for (day, mut names) in std::mem::take(&mut self.names) {
            verification.examined(names.len() as u64);
            names.sort_unstable();
            let repeated = names.windows(2).filter(|pair| pair[0] == pair[1]).count();
            if repeated > 0 {
                verification.say(format!("{repeated} ids of day {day} are there more than once"));
            }
        }
    }

    /// Adds the checkpoint of the days before the replay window.
    pub(super) fn checkpoint(
        &mut self,
        connection: &Connection,
        verification: &mut Verification,
    ) -> Result<(), StoreError> {
        verification.begin("rows of the checkpoint");
        let rows = rows(connection, "checkpoint");
        for (place, tally) in noted(verification, "the checkpoint", rows)?.unwrap_or_default() {
            verification.examined(1);
            if self.oldest.is_some_and(|oldest| place.1 >= oldest.get()) {
                let (day, name) = (place.1, self.name(place.0));
                verification.say(format!(
                    "experiment {name}: the checkpoint has day {day}, which is in the replay window"
                ));
            }
            let counted = self.counted("the checkpoint", place, tally, verification);
            if let Some(tally) = counted {
                *self.sums.entry(place).or_default() += tally;
            }
        }
        Ok(())
    }

    /// Compares the tallies with the sum of groups and checkpoint.
    pub(super) fn tallies(
        &mut self,
        connection: &Connection,
        verification: &mut Verification,
    ) -> Result<(), StoreError> {
        verification.begin("tallies, against groups and checkpoint");
        let rows = rows(connection, "tally");
        let Some(rows) = noted(verification, "the tallies", rows)? else { return Ok(()) };
        let mut expected = std::mem::take(&mut self.sums);
        for (place, tally) in rows {
            verification.examined(1);
            let expected = expected.remove(&place).unwrap_or_default();
            let found = self.counted("a tally", place, tally, verification);
            if let Some(found) = found.filter(|found| *found != expected) {
                self.differs(place, found, expected, verification);
            }
        }
        for (place, expected) in expected {
            self.differs(place, Tally::EMPTY, expected, verification);
        }
        Ok(())
    }

    fn differs(
        &self,
        (experiment, day, arm): TallyKey,
        found: Tally,
        expected: Tally,
        verification: &mut Verification,
    ) {
        let (experiment, day) = (self.name(experiment), Day::new(day));
        let arm = revision_and_cell(arm).map_or(arm, |(_, arm)| arm.to_u32());
        let (found, expected) = (Box::new(found), Box::new(expected));
        verification.found(Finding::Difference { experiment, day, arm, found, expected });
    }

    /// Adds a finding when there is no such arm.
    fn place(
        &self,
        whose: &str,
        (experiment, day, arm): TallyKey,
        verification: &mut Verification,
    ) {
        let place = || format!("experiment {}, day {day}", self.name(experiment));
        match self.experiments.get(&experiment).map(|known| known.arms) {
            None => verification.say(format!("{}: {whose} has no such experiment", place())),
            Some(arms) => match revision_and_cell(arm) {
                Ok((_, arm)) if arm.get() < arms => {}
                _ => verification.say(format!("{}: {whose} has an arm {arm} of {arms}", place())),
            },
        }
    }

    /// A valid tally, or none and a finding.
    fn counted(
        &self,
        whose: &str,
        place: TallyKey,
        tally: Result<Tally, TallyError>,
        verification: &mut Verification,
    ) -> Option<Tally> {
        self.place(whose, place, verification);
        if let Err(error) = &tally {
            let (experiment, day, arm) = (self.name(place.0), place.1, place.2);
            verification.say(format!(
                "experiment {experiment}, day {day}, arm {arm}: {whose} is wrong: {error}"
            ));
        }
        tally.ok()
    }

    fn name(&self, experiment: i64) -> String {
        let known = self.experiments.get(&experiment);
        known.map_or_else(|| format!("number {experiment}"), |known| known.id.clone())
    }
}

/// The rows of a table of counts, and those of its table for symbols beyond 1. Stores of earlier
/// versions have bits only.
fn rows(
    connection: &Connection,
    table: &str,
) -> rusqlite::Result<Vec<(TallyKey, Result<Tally, TallyError>)>> {
    let mut counts: BTreeMap<TallyKey, (u64, Vec<(Symbol, u64)>)> = BTreeMap::new();
    let bits = format!("SELECT experiment, day, arm, reports, ones FROM {table}");
    let mut bits = connection.prepare(&bits)?;
    let mut rows = bits.query([])?;
    while let Some(row) = rows.next()? {
        let place = (row.get(0)?, row.get(1)?, row.get(2)?);
        counts.insert(place, (row.get(3)?, vec![(Symbol::from(true), row.get(4)?)]));
    }
    let beyond = format!("symbol_{table}");
    if connection.table_exists(None, beyond.as_str())? {
        let beyond = format!("SELECT experiment, day, arm, symbol, reports FROM {beyond}");
        let mut beyond = connection.prepare(&beyond)?;
        let mut rows = beyond.query([])?;
        while let Some(row) = rows.next()? {
            let place = (row.get(0)?, row.get(1)?, row.get(2)?);
            let number: u8 = row.get(3)?;
            let unknown = rusqlite::Error::IntegralValueOutOfRange(3, i64::from(number));
            let symbol = Symbol::new(number).ok_or(unknown)?;
            counts.entry(place).or_default().1.push((symbol, row.get(4)?));
        }
    }
    let tally = |(place, (reports, symbols))| (place, Tally::with_symbols(reports, symbols));
    Ok(counts.into_iter().map(tally).collect())
}
