//! A simulated disk for tests: loses unsynced data at a crash, tears writes, and fails on request.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::Files;

/// Unit of atomic writes, in bytes.
const SECTOR: usize = 512;

/// The fault at the given operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is killed and the power fails.
    Crash,
    /// The operation fails and may be partly done. Later operations succeed.
    Error,
    /// The operation fails like [`Self::Error`], and so does this number of operations after it.
    Errors(u32),
}

#[derive(Clone, Debug, Default)]
struct File {
    cached: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug)]
struct Platter {
    files: Vec<File>,
    /// File names, before and after a reboot.
    cached: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    operations: u32,
    syncs: u32,
    /// Bytes of all writes.
    written: u64,
    fault: Option<(u32, Fault)>,
    crashed: bool,
    chance: ChaCha20Rng,
}

/// Clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<Platter>>);

impl Disk {
    /// An empty disk with `fault` at one operation, counted from 0.
    pub(crate) fn new(seed: u64, fault: Option<(u32, Fault)>) -> Self {
        Self(Arc::new(Mutex::new(Platter {
            files: Vec::new(),
            cached: BTreeMap::new(),
            durable: BTreeMap::new(),
            operations: 0,
            syncs: 0,
            written: 0,
            fault,
            crashed: false,
            chance: ChaCha20Rng::seed_from_u64(seed),
        })))
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of operations so far.
    pub(crate) fn operations(&self) -> u32 {
        self.platter().operations
    }

    /// Number of syncs of files and of the directory so far.
    pub(crate) fn syncs(&self) -> u32 {
        self.platter().syncs
    }

    /// Bytes written so far, to all files.
    pub(crate) fn written(&self) -> u64 {
        self.platter().written
    }

    /// Sets the next fault. Operations are counted from the first on the disk.
    pub(crate) fn fail_at(&self, fault: Option<(u32, Fault)>) {
        self.platter().fault = fault;
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.platter().crashed
    }

    /// Starts a new process after a kill, without a power failure: nothing is lost.
    pub(crate) fn revive(&self) {
        self.platter().crashed = false;
    }

    /// Reboots after a power failure: of all unsynced data, any part survives.
    pub(crate) fn reboot(&self) {
        let platter = &mut *self.platter();
        platter.crashed = false;
        let names: Vec<String> =
            platter.cached.keys().chain(platter.durable.keys()).cloned().collect();
        for name in names {
            let found = if platter.chance.next_u32().is_multiple_of(2) {
                platter.durable.get(&name).copied()
            } else {
                platter.cached.get(&name).copied()
            };
            match found {
                Some(file) => platter.durable.insert(name, file),
                None => platter.durable.remove(&name),
            };
        }
        platter.cached = platter.durable.clone();
        for file in &mut platter.files {
            file.durable = mix(&file.durable, &file.cached, &mut platter.chance);
            file.cached = file.durable.clone();
        }
    }

    /// Writes back everything, as the operating system does after some seconds.
    pub(crate) fn write_back(&self) {
        let platter = &mut *self.platter();
        platter.durable = platter.cached.clone();
        for file in &mut platter.files {
            file.durable = file.cached.clone();
        }
    }

    /// The content of a file that no power cut takes back.
    pub(crate) fn durable(&self, name: &str) -> Option<Vec<u8>> {
        let platter = self.platter();
        platter.durable.get(name).map(|file| platter.files[*file].durable.clone())
    }

    /// The content of a file as processes see it.
    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        let platter = self.platter();
        platter.cached.get(name).map(|file| platter.files[*file].cached.clone())
    }
}

/// Takes each sector, and the length, from `old` or `new` at random.
fn mix(old: &[u8], new: &[u8], chance: &mut ChaCha20Rng) -> Vec<u8> {
    let length = if chance.next_u32().is_multiple_of(2) { old.len() } else { new.len() };
    let mut mixed = vec![0; length];
    for (sector, place) in mixed.chunks_mut(SECTOR).enumerate() {
        let from = if chance.next_u32().is_multiple_of(2) { old } else { new };
        let rest = from.get(sector * SECTOR..).unwrap_or_default();
        let there = rest.len().min(place.len());
        place[..there].copy_from_slice(&rest[..there]);
    }
    mixed
}

impl Platter {
    /// Counts an operation. Returns whether it is to be done only in part, and its outcome. A
    /// process that was killed does nothing more.
    ///
    /// # Errors
    /// After a crash: nothing is to be done.
    fn operate(&mut self) -> io::Result<(bool, io::Result<()>)> {
        let failure = || io::Error::new(io::ErrorKind::StorageFull, "the test's disk failed");
        if self.crashed {
            return Err(failure());
        }
        let operation = self.operations;
        self.operations += 1;
        Ok(match self.fault {
            Some((at, Fault::Crash)) if operation == at => {
                self.crashed = true;
                (true, Err(failure()))
            }
            Some((at, Fault::Error)) if operation == at => (true, Err(failure())),
            Some((at, Fault::Errors(more))) if (at..=at + more).contains(&operation) => {
                (true, Err(failure()))
            }
            _ => (false, Ok(())),
        })
    }

    fn file(&mut self, name: &str) -> usize {
        let next = self.files.len();
        let file = *self.cached.entry(name.to_owned()).or_insert(next);
        if file == next {
            self.files.push(File::default());
        }
        file
    }

    /// Replaces the content of a file, or a random part of it when the operation fails.
    fn write(
        &mut self,
        name: &str,
        length: usize,
        new: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> io::Result<()> {
        let (partly, outcome) = self.operate()?;
        self.written += length as u64;
        let file = self.file(name);
        let after = new(&self.files[file].cached);
        self.files[file].cached = if partly {
            let before = std::mem::take(&mut self.files[file].cached);
            mix(&before, &after, &mut self.chance)
        } else {
            after
        };
        outcome
    }
}

impl Files for Disk {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.content(name))
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.platter().write(name, bytes.len(), |before| {
            let mut after = before.to_vec();
            after.resize(before.len().max(offset + bytes.len()), 0);
            after[offset..offset + bytes.len()].copy_from_slice(bytes);
            after
        })
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.platter().write(name, bytes.len(), |before| [before, bytes].concat())
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.platter().write(name, bytes.len(), |_| bytes.to_vec())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let platter = &mut *self.platter();
        platter.syncs += 1;
        let (partly, outcome) = platter.operate()?;
        let file = platter.file(name);
        let File { cached, durable } = &mut platter.files[file];
        *durable = if partly { mix(durable, cached, &mut platter.chance) } else { cached.clone() };
        outcome
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let platter = &mut *self.platter();
        let (partly, outcome) = platter.operate()?;
        if !partly || platter.chance.next_u32().is_multiple_of(2) {
            let file = platter.cached.remove(from).ok_or(io::ErrorKind::NotFound)?;
            platter.cached.insert(to.to_owned(), file);
        }
        outcome
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let platter = &mut *self.platter();
        let (partly, outcome) = platter.operate()?;
        if !partly {
            platter.cached.remove(name);
        }
        outcome
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let platter = &mut *self.platter();
        platter.syncs += 1;
        let (partly, outcome) = platter.operate()?;
        if !partly {
            platter.durable = platter.cached.clone();
        }
        outcome
    }
}
