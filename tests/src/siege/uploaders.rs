//! Devices that upload repeatedly, and record acknowledgements.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bandana_shared::identity::{CellIndex, Day, UploadId};
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::{UploadRequest, UploadStatus};
use prost::Message as _;
use rand::RngExt as _;
use tokio::time::Instant;

use super::ways::{Caller, Outcome};

/// Number of unacknowledged uploads above which a device makes no new ones.
const WAITING_MAX: usize = 8;

/// Number of uploads that a device remembers for repetition.
const REMEMBERED_MAX: usize = 1000;

/// Maximum number of reports of an upload.
const REPORTS_MAX: usize = 20;

/// An acknowledged upload.
#[derive(Clone, Debug)]
pub(super) struct Acknowledged {
    /// The request.
    pub(super) request: UploadRequest,
    /// The index of its experiment.
    pub(super) experiment: usize,
    /// Its reports.
    pub(super) reports: Vec<(usize, bool)>,
    /// The time of the acknowledgement.
    pub(super) at: Instant,
}

/// For each experiment and arm, the number of reports and of ones.
pub(super) type Tallies = BTreeMap<(usize, usize), (u64, u64)>;

/// Adds the reports of an upload.
pub(super) fn tally(tallies: &mut Tallies, experiment: usize, reports: &[(usize, bool)]) {
    for &(arm, bit) in reports {
        let counts = tallies.entry((experiment, arm)).or_default();
        *counts = (counts.0 + 1, counts.1 + u64::from(bit));
    }
}

/// The records of a device.
#[derive(Debug, Default)]
pub(super) struct UploadBook {
    /// Tallies of all acknowledged uploads.
    pub(super) tallies: Tallies,
    /// The last acknowledged uploads.
    pub(super) last: VecDeque<Acknowledged>,
}

struct Waiting {
    upload: Acknowledged,
    /// Whether an earlier attempt may have reached the server.
    is_repeated: bool,
    /// Whether it was acknowledged before.
    is_counted: bool,
}

/// Uploads until the trouble is over and all uploads are acknowledged.
///
/// # Errors
/// When an upload can't be built.
pub(super) async fn upload(
    mut caller: Caller,
    experiments: Vec<Specification>,
    day: Day,
) -> anyhow::Result<UploadBook> {
    let mut book = UploadBook::default();
    let mut waiting = VecDeque::new();
    loop {
        let is_new = waiting.len() < WAITING_MAX && !caller.is_over();
        let next = if is_new && (waiting.is_empty() || caller.random.random_bool(0.5)) {
            next_upload(&mut caller, &experiments, day, &book)?
        } else if let Some(next) = waiting.pop_front() {
            next
        } else {
            return Ok(book);
        };
        if let Some(again) = send(&mut caller, next, &mut book).await {
            waiting.push_back(again);
            caller.pause(100).await;
        }
        caller.pause(10).await;
    }
}

fn next_upload(
    caller: &mut Caller,
    experiments: &[Specification],
    day: Day,
    book: &UploadBook,
) -> anyhow::Result<Waiting> {
    let random = &mut caller.random;
    if !book.last.is_empty() && random.random_bool(0.05) {
        let upload = book.last[random.random_range(0..book.last.len())].clone();
        return Ok(Waiting { upload, is_repeated: true, is_counted: true });
    }
    let experiment = random.random_range(0..experiments.len());
    let arms = experiments[experiment].arms().len();
    let count = random.random_range(1..=REPORTS_MAX);
    let reports: Vec<_> =
        (0..count).map(|_| (random.random_range(0..arms), random.random_bool(0.5))).collect();
    let indexed = |&(arm, bit): &(usize, bool)| Ok((CellIndex::new(arm)?, bit));
    let packed: Vec<_> = reports.iter().map(indexed).collect::<anyhow::Result<_>>()?;
    let upload = Upload {
        id: UploadId::new(random.random()),
        digest: experiments[experiment].digest(),
        day,
        reports: PackedReports::pack(packed)?,
    };
    let request = UploadRequest::decode(&upload.to_bytes()[..])?;
    let upload = Acknowledged { request, experiment, reports, at: Instant::now() };
    Ok(Waiting { upload, is_repeated: false, is_counted: false })
}

/// Sends an upload once. Returns it if it must be sent again.
async fn send(caller: &mut Caller, mut now: Waiting, book: &mut UploadBook) -> Option<Waiting> {
    let mut way = caller.way();
    let calling = way.device.submit_upload(now.upload.request.clone());
    // Some callers disconnect before the answer.
    let told = if caller.random.random_bool(0.03) {
        let patience = Duration::from_millis(caller.random.random_range(0..20));
        let told = tokio::time::timeout(patience, calling).await;
        let Ok(told) = told else {
            caller.count("uploads whose caller went away");
            now.is_repeated = true;
            return Some(now);
        };
        told
    } else {
        calling.await
    };
    let answer = match caller.judge("an upload", told) {
        Outcome::Answered(answer) => answer,
        Outcome::Lost => {
            caller.count("uploads repeated");
            now.is_repeated = true;
            return Some(now);
        }
        Outcome::Refused(status) => {
            caller.figures.wrong(format!("an upload was refused with {status}"));
            return None;
        }
    };
    match answer.status() {
        UploadStatus::Accepted if !now.is_counted => {}
        UploadStatus::Duplicate if now.is_counted => {
            caller.count("uploads sent again after their answer");
            return None;
        }
        UploadStatus::Duplicate if now.is_repeated || caller.tries_again => {
            caller.count("uploads counted unheard");
        }
        UploadStatus::Paused | UploadStatus::FutureDay => return Some(now),
        other => {
            let Waiting { is_repeated, is_counted, .. } = now;
            caller.figures.wrong(format!(
                "an upload was answered {other:?}: {}; counted {is_counted}, sent before \
                 {is_repeated}",
                answer.message
            ));
            return None;
        }
    }
    let mut upload = now.upload;
    caller.count("uploads acknowledged");
    caller.figures.add(
        super::figures::Group::Honest,
        "reports acknowledged",
        upload.reports.len() as u64,
    );
    tally(&mut book.tallies, upload.experiment, &upload.reports);
    upload.at = Instant::now();
    book.last.push_back(upload);
    if book.last.len() > REMEMBERED_MAX {
        book.last.pop_front();
    }
    None
}
