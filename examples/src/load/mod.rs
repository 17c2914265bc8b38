//! Load of uploads on one or several servers, with a given number in flight.
//!
//! Each upload is retried with the same bytes until it is acknowledged or finally refused. Options
//! lose answers, repeat acknowledged uploads, and change servers with every call.

mod database;
mod device;
mod disk;
mod figures;
pub mod reference;
mod servers;
pub mod stalls;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_shared::wire::v1::{UploadRequest, UploadStatus};
use hdrhistogram::Histogram;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Code;

pub use database::{Database, statement};
pub use device::Device;
pub use disk::syncs_per_second;
pub use figures::{Figures, ProcessorTimes};
pub use servers::{Servers, Target};

/// Timeout of a call.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Pause after a failed call.
const PAUSE: Duration = Duration::from_millis(20);

/// Latencies of acknowledged calls, in microseconds.
pub type Latencies = Histogram<u64>;

/// Makes the upload with a given number.
pub type Make = dyn Fn(u64) -> anyhow::Result<UploadRequest> + Send + Sync;

/// Misbehaviour of the clients.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Share of calls whose caller disconnects within milliseconds.
    pub lose: f64,
    /// Share of acknowledged uploads that are sent again.
    pub repeat: f64,
    /// Whether every call uses a random connection. Otherwise a worker keeps its connection until a
    /// call fails.
    pub wander: bool,
    /// The seed of all randomness.
    pub seed: u64,
}

/// An upload to be sent again.
#[derive(Clone, Copy, Debug)]
struct Again {
    number: u64,
    is_acknowledged: bool,
}

/// Uploads, numbered from 0, and their outcomes.
pub struct Load {
    devices: Mutex<Arc<[Device]>>,
    make: Box<Make>,
    manners: Manners,
    again: Mutex<Vec<Again>>,
    made: AtomicU64,
    /// Number of uploads to make.
    limit: AtomicU64,
    is_over: AtomicBool,
    calls: AtomicU64,
    acknowledged: AtomicU64,
    duplicates: AtomicU64,
    refused: AtomicU64,
    /// Number of each server message about failed uploads.
    complaints: Mutex<BTreeMap<String, u64>>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("manners", &self.manners).finish_non_exhaustive()
    }
}

impl Load {
    /// A load of `limit` uploads over these connections.
    pub fn new(
        devices: Vec<impl Into<Device>>,
        limit: u64,
        manners: Manners,
        make: Box<Make>,
    ) -> Arc<Self> {
        Arc::new(Self {
            devices: Mutex::new(all(devices)),
            make,
            manners,
            again: Mutex::default(),
            made: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            is_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            complaints: Mutex::default(),
        })
    }

    /// Starts one worker per call in flight. A worker ends when nothing is left to send.
    pub fn start(self: &Arc<Self>, in_flight: usize) -> JoinSet<anyhow::Result<Latencies>> {
        let mut workers = JoinSet::new();
        for worker in 0..in_flight {
            let load = Arc::clone(self);
            workers.spawn(async move { load.work(worker).await });
        }
        workers
    }

    /// Replaces the connections for all further calls.
    pub fn replace(&self, devices: Vec<impl Into<Device>>) {
        *lock(&self.devices) = all(devices);
    }

    /// Stops making uploads; those already made are still sent.
    pub fn stop(&self) {
        self.limit.store(0, Ordering::SeqCst);
    }

    /// Stops sending.
    pub fn give_up(&self) {
        self.stop();
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Number of uploads sent at least once.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Number of acknowledged uploads.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Number of uploads with a final refusal.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    /// Number of calls, including failed and repeated ones.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Number of answers that reported a duplicate.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::SeqCst)
    }

    /// The servers' messages about uploads that did not count, most frequent first.
    pub fn complaints(&self) -> Vec<(String, u64)> {
        let complaints = lock(&self.complaints).clone();
        let mut complaints: Vec<_> = complaints.into_iter().collect();
        complaints.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        complaints
    }

    async fn work(&self, worker: usize) -> anyhow::Result<Latencies> {
        let seed = self.manners.seed ^ (worker as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // Three digits of precision; the histogram resizes itself.
        let mut latencies = Latencies::new(3)?;
        let mut place = worker;
        while !self.is_done() {
            let Some(upload) = self.next(&mut random) else {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            };
            let request = (self.make)(upload.number)?;
            let mut device = self.device(place, &mut random);
            self.calls.fetch_add(1, Ordering::Relaxed);
            let loses = random.random_bool(self.manners.lose);
            let patience =
                if loses { Duration::from_millis(random.random_range(0..5)) } else { PATIENCE };
            let begin = Instant::now();
            let told = tokio::time::timeout(patience, device.submit_upload(request)).await;
            match told {
                Ok(Ok(answer)) => {
                    let status = answer.status();
                    if matches!(status, UploadStatus::Accepted | UploadStatus::Duplicate) {
                        let took = u64::try_from(begin.elapsed().as_micros())?;
                        latencies.record(took)?;
                    }
                    self.hear(upload, status, &answer.message, &mut random).await;
                }
                Ok(Err(status)) => {
                    place += 1;
                    self.fail(upload, &status).await;
                }
                Err(_) => {
                    place += usize::from(!loses);
                    self.send_again(upload);
                }
            }
        }
        Ok(latencies)
    }

    fn is_done(&self) -> bool {
        let settled = self.acknowledged() + self.refused();
        let made = self.made();
        let all_made = made >= self.limit.load(Ordering::SeqCst);
        self.is_over.load(Ordering::SeqCst) || (all_made && settled >= made)
    }

    /// The next upload: a new one, or sometimes one that is to be sent again.
    fn next(&self, random: &mut ChaCha8Rng) -> Option<Again> {
        let limit = self.limit.load(Ordering::SeqCst);
        let mut again = lock(&self.again);
        let is_fresh = self.made() < limit && (again.is_empty() || random.random_bool(0.75));
        if !is_fresh && !again.is_empty() {
            let place = random.random_range(0..again.len());
            return Some(again.swap_remove(place));
        }
        drop(again);
        let next = |made: u64| (made < limit).then_some(made + 1);
        let number = self.made.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        Some(Again { number, is_acknowledged: false })
    }

    fn device(&self, place: usize, random: &mut ChaCha8Rng) -> Device {
        let devices = Arc::clone(&lock(&self.devices));
        let drawn = if self.manners.wander { devices.choose(random) } else { None };
        drawn.unwrap_or_else(|| &devices[place % devices.len()]).clone()
    }

    async fn hear(
        &self,
        upload: Again,
        status: UploadStatus,
        message: &str,
        random: &mut ChaCha8Rng,
    ) {
        match status {
            UploadStatus::Accepted | UploadStatus::Duplicate => {
                let is_duplicate = status == UploadStatus::Duplicate;
                self.duplicates.fetch_add(u64::from(is_duplicate), Ordering::Relaxed);
                let is_news = u64::from(!upload.is_acknowledged);
                self.acknowledged.fetch_add(is_news, Ordering::SeqCst);
                if random.random_bool(self.manners.repeat) {
                    self.send_again(Again { is_acknowledged: true, ..upload });
                }
            }
            // The experiment may be resumed.
            UploadStatus::Paused => {
                self.log_limited(message);
                self.send_again(upload);
                tokio::time::sleep(PAUSE).await;
            }
            // An acknowledged upload may have expired since.
            _ if upload.is_acknowledged => {}
            _ => self.refuse(&format!("{status:?}: {message}")).await,
        }
    }

    /// Handles a failed call. The upload is retried, unless the status shows that retrying is
    /// pointless.
    async fn fail(&self, upload: Again, status: &tonic::Status) {
        let is_final = matches!(
            status.code(),
            Code::InvalidArgument
                | Code::Unauthenticated
                | Code::PermissionDenied
                | Code::Unimplemented
        );
        let complaint = format!("{:?}: {}", status.code(), status.message());
        if is_final && !upload.is_acknowledged {
            self.refuse(&complaint).await;
            return;
        }
        self.log_limited(&complaint);
        self.send_again(upload);
        tokio::time::sleep(PAUSE).await;
    }

    async fn refuse(&self, complaint: &str) {
        self.log_limited(complaint);
        self.refused.fetch_add(1, Ordering::SeqCst);
        // The next call would probably fail too.
        tokio::time::sleep(PAUSE).await;
    }

    fn log_limited(&self, complaint: &str) {
        *lock(&self.complaints).entry(complaint.to_owned()).or_default() += 1;
    }

    fn send_again(&self, upload: Again) {
        lock(&self.again).push(upload);
    }
}

fn all(devices: Vec<impl Into<Device>>) -> Arc<[Device]> {
    devices.into_iter().map(Into::into).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
