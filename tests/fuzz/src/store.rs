//! The embedded store, compared with a simple model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use bandana_aggregator::registry::{Experiment, Registry};
use bandana_edge::clock::ManualClock;
use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{
    ArmIndex, CellIndex, Day, ExperimentId, Revision, UnixSeconds, UploadId,
};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;
use bandana_store::{
    AuditAction, AuditEntry, AuditQuery, EmbeddedSettings, EmbeddedStore, ExperimentRecord,
    ExperimentState, Store, StoreError, StoreReader, StoreRefusal, Transition, ValidUpload,
    Verdict, verify_directory,
};
use tempfile::TempDir;

use crate::input::{byte, memory};

/// Small, so that few uploads reach them.
const SETTINGS: EmbeddedSettings = EmbeddedSettings { replay_window_days: 3, ids_max: 12 };
const ARMS_MAX: usize = 4;
const STEPS_MAX: usize = 64;
/// Larger than the sum of all steps.
const TODAY: u32 = 1000;
const DATABASE: &str = "bandana.sqlite3";

/// A new store, made once: that takes longer than all operations of an input.
static EMPTY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = tempfile::tempdir_in(memory()).expect("a temporary folder");
    let store = EmbeddedStore::open(directory.path(), SETTINGS).expect("a new store");
    Box::new(store).close().expect("it is closed");
    std::fs::read(directory.path().join(DATABASE)).expect("its file")
});

/// The expected state of uploads and experiments, according to the documentation.
#[derive(Default)]
struct Model {
    /// Experiments by name.
    experiments: BTreeMap<u8, Modelled>,
    deleted: BTreeSet<u8>,
    /// Upload ids by day.
    seen: BTreeSet<(u32, u8)>,
    oldest: u32,
    /// Whether the clock is too far ahead of all uploads to be trusted, if known.
    doubted: Option<bool>,
    audited: Vec<(AuditAction, u8)>,
}

struct Modelled {
    state: ExperimentState,
    is_archived: bool,
    revisions: usize,
    /// Reports by day, arm and symbol.
    reports: BTreeMap<(u32, usize, u8), u64>,
}

impl Model {
    fn begin(today: u32) -> u32 {
        today.saturating_sub(SETTINGS.replay_window_days - 1)
    }

    /// A clock that has jumped past all remembered days is trusted once an upload confirms it.
    fn expire(&mut self, days: &[u32], today: u32) {
        if today < self.oldest {
            self.doubted = None;
            return;
        }
        let begin = Self::begin(today);
        let newest = self.seen.last().map(|(day, _)| *day);
        let is_doubted = self.doubted.unwrap_or(newest.is_some_and(|newest| newest < begin));
        let is_doubted = is_doubted && !days.iter().any(|day| (begin..=today).contains(day));
        self.doubted = Some(is_doubted);
        if !is_doubted && begin > self.oldest {
            self.oldest = begin;
            self.seen.retain(|(day, _)| *day >= begin);
        }
    }

    fn verdict(&mut self, upload: &Upload, today: u32) -> Verdict {
        let Upload { id, day, experiment, .. } = *upload;
        if self.oldest > today {
            return Verdict::ClockBehind;
        }
        if day > today {
            return Verdict::FutureDay { today: Day::new(today) };
        }
        if day < self.oldest {
            return Verdict::Expired { oldest: Day::new(self.oldest) };
        }
        if self.seen.contains(&(day, id)) {
            return Verdict::Duplicate;
        }
        let modelled = self.experiments.get_mut(&experiment).expect("an experiment");
        match modelled.state {
            ExperimentState::Draft | ExperimentState::Paused => return Verdict::Paused,
            ExperimentState::Stopped => return Verdict::Stopped,
            ExperimentState::Running if self.seen.len() >= SETTINGS.ids_max => {
                return Verdict::Full;
            }
            ExperimentState::Running => {}
        }
        self.seen.insert((day, id));
        for (arm, symbol, count) in &upload.reports {
            *modelled.reports.entry((day, *arm, *symbol)).or_default() += count;
        }
        Verdict::Accepted
    }
}

/// Reports on one or two arms: arm, symbol and count.
struct Upload {
    id: u8,
    day: u32,
    experiment: u8,
    reports: Vec<(usize, u8, u64)>,
}

impl Upload {
    fn read(data: &mut &[u8], experiment: u8, arms: usize, today: u32) -> Self {
        let (id, when, what) = (byte(data) % 24, byte(data) % 8, byte(data));
        let day = (today + 2).saturating_sub(u32::from(when));
        let arm = usize::from(what & 3) % arms;
        let symbols = if is_kary(experiment) { 16 } else { 2 };
        let mut reports = vec![(arm, (what >> 2) % symbols, u64::from(byte(data)) + 1)];
        if what & 0x80 != 0 && arm + 1 < arms {
            reports.push((arm + 1, (what >> 3) % symbols, 7));
        }
        Self { id, day, experiment, reports }
    }

    fn upload(&self, experiment: &Arc<Experiment>) -> ValidUpload {
        let tally = |&(arm, symbol, count): &(usize, u8, u64)| {
            let symbol = Symbol::new(symbol).expect("a symbol");
            let tally = Tally::with_symbols(count, [(symbol, count)]);
            (CellIndex::new(arm).expect("a cell"), tally.expect("so many reports"))
        };
        ValidUpload {
            id: UploadId::new([self.id; 16]),
            day: Day::new(self.day),
            experiment: Arc::<Experiment>::clone(experiment),
            revision: Revision::FIRST,
            tallies: self.reports.iter().map(tally).collect(),
            app: None,
        }
    }
}

/// Whether an experiment has 16 symbols; every other one has.
fn is_kary(name: u8) -> bool {
    name & 1 == 1
}

fn id(name: u8) -> ExperimentId {
    ExperimentId::new(format!("e{name}")).expect("a valid name")
}

fn specification(name: u8) -> Specification {
    let (rewards, mechanism) = match Alphabet::new(16) {
        Ok(alphabet) if is_kary(name) => {
            (Rewards::categorical(alphabet), Mechanism::Kary(alphabet))
        }
        _ => (Rewards::binary(), Mechanism::Linear),
    };
    let arms = ["a", "b"].map(|label| Arm::new(label).expect("a label")).to_vec();
    let epsilon = Epsilon::new(1.0).expect("an epsilon");
    let timing = ReleaseTiming::IMMEDIATE;
    let first = Specification::first(id(name), epsilon, rewards, mechanism, arms, timing);
    first.expect("a valid specification")
}

fn entry(name: u8, action: AuditAction) -> AuditEntry {
    let (at, experiment) = (UnixSeconds::new(1_700_000_000), id(name));
    AuditEntry { at, caller: "anna".to_owned(), action, experiment, detail: String::new() }
}

/// A store, the services over it, and the model of both.
struct World {
    directory: TempDir,
    /// None: between two processes.
    store: Option<Box<EmbeddedStore>>,
    registry: Registry,
    model: Model,
    today: u32,
}

/// Checks that the store counts and reports the same as the model.
pub fn store(mut data: &[u8]) {
    let directory = tempfile::tempdir_in(memory()).expect("a temporary folder");
    std::fs::write(directory.path().join(DATABASE), &*EMPTY).expect("room for a store");
    let store = Some(open(directory.path()));
    let (registry, model) = (registry(), Model::default());
    let mut world = World { directory, store, registry, model, today: TODAY };
    for _ in 0..STEPS_MAX {
        if data.is_empty() {
            break;
        }
        world.step(&mut data);
    }
    world.compare();
    let World { directory, store, .. } = world;
    store.expect("a store").close().expect("it is closed");
    let verification = verify_directory(directory.path()).expect("it can be verified");
    assert!(verification.is_sound(), "{:?}", verification.findings);
}

fn open(directory: &Path) -> Box<EmbeddedStore> {
    Box::new(EmbeddedStore::open(directory, SETTINGS).expect("the store is opened"))
}

fn registry() -> Registry {
    Registry::new(1, Arc::new(ManualClock::at_day(Day::new(TODAY))))
}

impl World {
    fn step(&mut self, data: &mut &[u8]) {
        let (step, name) = (byte(data), byte(data) % 4);
        match step % 12 {
            0 => self.create(name, step & 0x80 != 0),
            1 => self.today += u32::from(step >> 4),
            2 => self.today -= u32::from(step >> 4),
            3 => self.restart(step & 0x80 != 0),
            4 => self.check(),
            5 => self.change_arms(name, byte(data)),
            6 | 7 => self.change_state(name, usize::from(step >> 4)),
            8 => self.end(name, step & 0x80 != 0),
            _ => self.commit(data, usize::from(step >> 4)),
        }
    }

    fn store(&mut self) -> &mut EmbeddedStore {
        self.store.as_mut().expect("a store")
    }

    fn create(&mut self, name: u8, is_draft: bool) {
        let state = if is_draft { ExperimentState::Draft } else { ExperimentState::Running };
        let (config, entry) =
            (LearnerConfig::new(Learner::Uniform), entry(name, AuditAction::Create));
        let is_known = self.model.experiments.contains_key(&name);
        let created = self.store().create_experiment(&specification(name), config, state, &entry);
        if self.model.deleted.contains(&name) {
            assert!(
                matches!(created, Err(StoreError::Refused(StoreRefusal::ExperimentWasDeleted(_)))),
                "{created:?}"
            );
        } else if is_known {
            assert!(
                matches!(created, Err(StoreError::Refused(StoreRefusal::ExperimentExists(_)))),
                "{created:?}"
            );
        } else {
            let (is_archived, reports) = (false, BTreeMap::new());
            let modelled = Modelled { state, is_archived, revisions: 1, reports };
            self.model.experiments.insert(name, modelled);
            self.done(name, AuditAction::Create, created);
        }
    }

    /// Applies a change to the services, and records it in the model.
    fn done(
        &mut self,
        name: u8,
        action: AuditAction,
        changed: Result<ExperimentRecord, StoreError>,
    ) {
        self.registry.publish(changed.expect("it is changed")).expect("it can be served");
        self.model.audited.push((action, name));
    }

    fn served(&self, name: u8) -> Option<Arc<Experiment>> {
        let served = self.registry.by_id(&id(name));
        assert_eq!(served.is_some(), self.model.experiments.contains_key(&name));
        served
    }

    fn record(&mut self, name: u8) -> Option<ExperimentRecord> {
        let key = self.served(name)?.key();
        self.store().load().expect("it is read").into_iter().find(|record| record.key == key)
    }

    fn restart(&mut self, is_crash: bool) {
        // Two stores can't open the directory at once.
        let store = self.store.take().expect("a store");
        if is_crash {
            drop(store);
        } else {
            store.close().expect("it is closed");
        }
        self.store = Some(open(self.directory.path()));
        self.model.doubted = None;
        self.compare();
        self.serve_anew();
    }

    fn serve_anew(&mut self) {
        self.registry = registry();
        for record in self.store().load().expect("it is read") {
            self.registry.publish(record).expect("it can be served");
        }
    }

    fn check(&mut self) {
        let today = Day::new(self.today);
        self.store().check(today).expect("it is where it was");
        self.model.expire(&[], self.today);
    }

    fn change_arms(&mut self, name: u8, how: u8) {
        let Some(record) = self.record(name) else { return };
        let (expected, newest) = (record.expected(), record.revisions.last());
        let (expected, newest) = (expected.expect("it stands"), newest.expect("a revision"));
        let arms = newest.arms().len();
        let retired = ArmIndex::new(usize::from(how >> 1) % arms).expect("an arm");
        let (action, revised) = if how & 1 == 0 && arms < ARMS_MAX {
            let arm = Arm::new(format!("arm {arms}")).expect("a label");
            (AuditAction::AddArm, newest.with_arm(arm))
        } else {
            (AuditAction::RetireArm, newest.without_arm(retired))
        };
        // The last arm in play can't be retired.
        let Ok(revised) = revised else { return };
        let entry = entry(name, action);
        let changed = self.store().add_revision(expected, &revised, &entry);
        self.done(name, action, changed);
        self.model.experiments.get_mut(&name).expect("it is known").revisions += 1;
        // A change based on the previous revision is refused with the current one.
        let outdated = self.store().set_state(expected, ExperimentState::Stopped, &entry);
        assert!(
            matches!(outdated, Err(StoreError::Refused(StoreRefusal::Outdated(_)))),
            "{outdated:?}"
        );
    }

    fn change_state(&mut self, name: u8, which: usize) {
        use Transition::{Pause, Resume, Start, Stop};
        let Some(record) = self.record(name) else { return };
        let transition = [Start, Pause, Resume, Stop][which % 4];
        if transition.from().contains(&record.state) {
            let (expected, entry) = (record.expected(), entry(name, transition.action()));
            let to = transition.to();
            let changed = self.store().set_state(expected.expect("it stands"), to, &entry);
            self.done(name, transition.action(), changed);
            self.model.experiments.get_mut(&name).expect("it is known").state = to;
        }
    }

    /// Archives or deletes a stopped experiment.
    fn end(&mut self, name: u8, for_good: bool) {
        let Some(record) = self.record(name) else { return };
        let expected = record.expected().expect("it stands");
        if record.state != ExperimentState::Stopped {
            return;
        }
        if for_good {
            let action = AuditAction::Delete;
            self.store().delete(expected, &entry(name, action)).expect("it is deleted");
            self.model.audited.push((action, name));
            self.model.experiments.remove(&name);
            self.model.deleted.insert(name);
            self.serve_anew();
        } else {
            let action = AuditAction::Archive;
            let archived = self.store().archive(expected, &entry(name, action));
            self.done(name, action, archived);
            self.model.experiments.get_mut(&name).expect("it is known").is_archived = true;
        }
    }

    fn commit(&mut self, data: &mut &[u8], count: usize) {
        let mut uploads = Vec::new();
        let mut arrivals = Vec::new();
        for _ in 0..count {
            let name = byte(data) % 4;
            let Some(experiment) = self.served(name) else { continue };
            let arms = experiment.serving().specification.arms().len();
            let upload = Upload::read(data, name, arms, self.today);
            arrivals.push(upload.upload(&experiment));
            uploads.push(upload);
        }
        let days: Vec<u32> = uploads.iter().map(|upload| upload.day).collect();
        self.model.expire(&days, self.today);
        let expected: Vec<Verdict> =
            uploads.iter().map(|upload| self.model.verdict(upload, self.today)).collect();
        let today = Day::new(self.today);
        let committed = self.store().commit(&arrivals, today).expect("a commit");
        assert_eq!(committed.verdicts, expected);
        let window = self.store().window(today);
        assert_eq!(window.ids, Some((self.model.seen.len(), SETTINGS.ids_max)));
        assert_eq!(window.oldest, Day::new(self.model.oldest));
    }

    /// Compares the persistent state with the model.
    fn compare(&mut self) {
        let records = self.store().load().expect("it is read");
        let reader = StoreReader::new(self.directory.path());
        assert_eq!(records.len(), self.model.experiments.len());
        for record in records {
            let newest = record.revisions.last().expect("a revision");
            let name = newest.experiment_id().as_str()[1..].parse().expect("a number");
            let modelled = &self.model.experiments[&name];
            assert_eq!(record.state, modelled.state);
            assert_eq!(record.is_archived, modelled.is_archived);
            assert_eq!(record.revisions.len(), modelled.revisions);
            let mut sums = BTreeMap::new();
            for ((_, arm, symbol), count) in &modelled.reports {
                *sums.entry((*arm, *symbol)).or_default() += count;
            }
            let tallies = record.tallies.iter().enumerate();
            assert_eq!(tallies.flat_map(counts).collect::<BTreeMap<_, _>>(), sums);
            let all = Day::new(0)..=Day::new(u32::MAX);
            let daily = reader.daily_tallies(record.key, &all).expect("it is read");
            let daily = daily.iter().flat_map(|daily| {
                let counts = counts((daily.cell.get(), &daily.tally));
                counts.map(|((arm, symbol), count)| ((daily.day.get(), arm, symbol), count))
            });
            assert_eq!(daily.collect::<BTreeMap<_, _>>(), modelled.reports);
        }
        let query = AuditQuery { experiment: None, limit: 1000, before: None };
        let audited = reader.audit(&query).expect("it is read").into_iter().rev();
        let audited = audited.map(|record| (record.entry.action, record.entry.experiment));
        let expected = self.model.audited.iter().map(|(action, name)| (*action, id(*name)));
        assert!(audited.eq(expected), "{:?}", self.model.audited);
    }
}

/// The count of each symbol, by arm.
fn counts((arm, tally): (usize, &Tally)) -> impl Iterator<Item = ((usize, u8), u64)> {
    let symbols = (0..16).filter_map(Symbol::new);
    let counts = symbols.map(move |symbol| ((arm, symbol.get()), tally.count(symbol)));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    counts.into_iter()
}
