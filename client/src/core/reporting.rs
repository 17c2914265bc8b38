//! Reporting: an assignment becomes a report, and the report an upload.

use std::time::Duration;

use bandana_shared::identity::{ExperimentId, StoreId, UploadId};

use super::{Change, ClientError, Core, Task, relay_of};
use crate::assignment::AssignmentId;
use crate::budget::Exhausted;
use crate::noise::{EntropyError, NoiseSource};
use crate::outbox::{Outgoing, UploadOutcome};
use crate::time::Timestamp;

/// Age after the release time at which a report that no server has counted is dropped: its server
/// is gone.
const REPORT_AGE_MAX: Duration = Duration::from_hours(60 * 24);

impl<N: NoiseSource> Core<N> {
    /// Makes what time has made due: the private bit of each assignment whose attribution window has
    /// ended, and the end of reports whose server is gone. [`Self::next_task`] begins with it.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.draw(&id, now())?;
    /// client.advance(now().after(Duration::from_secs(599)))?;
    /// assert_eq!((client.open_assignments(), client.waiting_reports()), (1, 0));
    /// client.advance(now().after(Duration::from_secs(600)))?;
    /// assert_eq!((client.open_assignments(), client.waiting_reports()), (0, 1));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: nothing is lost; call again later.
    pub fn advance(&mut self, now: Timestamp) -> Result<(), ClientError> {
        if self.is_opted_out() {
            return Ok(());
        }
        self.privatize(now)?;
        self.drop_expired(now);
        self.part_gathered(now)?;
        if let Some(day) = self.day(now) {
            let relays = |id: &ExperimentId| relay_of(&self.enrolled, id);
            for (id, sealed) in self.state.outbox.seal(day, now, &relays, &mut self.noise)? {
                self.record(Change::Sealed { id, sealed });
            }
        }
        Ok(())
    }

    /// The next task, after [`Self::advance`]. One that has no result after two minutes is handed out
    /// again.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Task;
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.draw(&id, now())?;
    /// // The server is asked for its day before a report leaves.
    /// let later = now().after(Duration::from_secs(600 + 3600));
    /// assert!(matches!(client.next_task(later)?, Task::Fetch(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: nothing is lost; call again later.
    pub fn next_task(&mut self, now: Timestamp) -> Result<Task, ClientError> {
        self.advance(now)?;
        let task = if self.is_opted_out() { Task::Done } else { self.due_task(now)? };
        if matches!(task, Task::Fetch(_) | Task::Upload(_) | Task::Shuffled(_)) {
            self.server.called(now);
        }
        Ok(task)
    }

    fn due_task(&mut self, now: Timestamp) -> Result<Task, ClientError> {
        if self.server.end(now).is_some() {
            return Ok(self.next_time(now).map_or(Task::Done, Task::Wait));
        }
        if self.server.fetch_next()
            && let Some(task) = self.fetch_task(now)
        {
            return Ok(Task::Fetch(task));
        }
        let durable = self.journal.durable();
        let relays = |id: &ExperimentId| relay_of(&self.enrolled, id);
        match self.state.outbox.take(now, durable, &relays, &mut self.noise)? {
            Some(Outgoing::Direct(task)) => return Ok(Task::Upload(task)),
            Some(Outgoing::Shuffled(task)) => return Ok(Task::Shuffled(task)),
            None => {}
        }
        if let Some(task) = self.fetch_task(now) {
            return Ok(Task::Fetch(task));
        }
        Ok(self.next_time(now).map_or(Task::Done, Task::Wait))
    }

    /// The earliest time at which [`Self::next_task`] has a task.
    fn next_time(&self, now: Timestamp) -> Option<Timestamp> {
        let windows = self.state.open.values().map(|open| open.rewards_until);
        let relays = |id: &ExperimentId| relay_of(&self.enrolled, id);
        let outbox = self.state.outbox.next_time(now, self.journal.durable(), &relays);
        // What a call is due for waits until the server is tried again.
        let call = self.next_fetch().into_iter().chain(outbox).min();
        let end = self.server.end(now);
        let call = call.map(|time| end.map_or(time, |end| time.max(end)));
        // A report that needs the day is not due for a time of its own.
        let needs_day =
            self.day(now).is_none() && !self.state.outbox.need_day(now, &relays).is_empty();
        let call = call.into_iter().chain(end.filter(|_| needs_day)).min();
        windows.chain(call).min()
    }

    /// Turns every assignment whose attribution window has ended into a private report.
    fn privatize(&mut self, now: Timestamp) -> Result<(), ClientError> {
        let over = self.state.open.iter().filter(|(_, open)| open.is_over(now));
        let ids: Vec<AssignmentId> = over.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(open) = self.state.open.get(&id) else {
                continue;
            };
            let report = open.privatize(&mut self.noise)?;
            self.record(Change::Privatized { id, report });
            self.statistics.reports_made += 1;
        }
        Ok(())
    }

    /// Drops reports whose server is gone, but only while the server's day confirms the time: a
    /// clock that is wrong for a moment costs no report.
    fn drop_expired(&mut self, now: Timestamp) {
        if self.day(now).is_none() {
            return;
        }
        let parcels = self.state.outbox.parcels.iter();
        let expired = parcels.filter(|(_, parcel)| now.since(parcel.release_at) > REPORT_AGE_MAX);
        let ids: Vec<AssignmentId> = expired.map(|(id, _)| *id).collect();
        for id in ids {
            let sealed = self.state.outbox.parcels.get(&id).filter(|one| one.sealed.is_some());
            if let Some(price) = sealed.map(|parcel| parcel.price) {
                self.state.dropped.add(price, self.fetches);
            }
            self.record(Change::Settled { id });
            self.statistics.reports_expired += 1;
        }
    }

    /// Records the result of an upload. If the client no longer knows the upload, the result is
    /// ignored.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{Task, UploadOutcome};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// # client.draw(&id, now())?;
    /// # let later = now().after(Duration::from_secs(600 + 3600));
    /// # let Task::Fetch(_) = client.next_task(later)? else { return Err("no question".into()) };
    /// # client.on_fetched(&FetchTask::new(id.clone()), answer(later)?, later)?;
    /// let Task::Upload(task) = client.next_task(later)? else { return Err("not yet".into()) };
    /// // The answer to the first attempt was lost, and the server has counted the upload.
    /// client.on_upload_result(task.id(), &UploadOutcome::Duplicate, later)?;
    /// assert_eq!(client.waiting_reports(), 0);
    /// assert_eq!(client.statistics().uploads_duplicate, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Entropy`]; the upload is handed out again later.
    pub fn on_upload_result(
        &mut self,
        id: UploadId,
        outcome: &UploadOutcome,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.server.ended(now);
        let Some(id) = self.state.outbox.find(id) else {
            return Ok(());
        };
        if *outcome == UploadOutcome::NoRelay {
            // It says nothing about the server: there was no call.
            self.statistics.uploads_postponed += 1;
            self.state.outbox.wait_for_relay(id, now);
            return Ok(());
        }
        if let UploadOutcome::Unanswered { retry_after } = outcome {
            self.statistics.uploads_postponed += 1;
            self.state.outbox.unanswered(id);
            return Ok(self.server.failed(true, *retry_after, now, &mut self.noise)?);
        }
        self.server.answered();
        let retry_after = match outcome {
            UploadOutcome::Retry { retry_after } => Some(*retry_after),
            UploadOutcome::UnknownSpecification { store, .. } if !self.came_from(id, *store) => {
                Some(None)
            }
            _ => None,
        };
        if let Some(retry_after) = retry_after {
            self.statistics.uploads_postponed += 1;
            self.state.outbox.postpone(id, retry_after, now, &mut self.noise)?;
            if let Some((gathered, end)) = self.state.outbox.gathered_by(id) {
                self.part(gathered, end)?;
            }
            return Ok(());
        }
        self.hear_soon(id, now)?;
        let counter = match outcome {
            UploadOutcome::Accepted => &mut self.statistics.uploads_accepted,
            UploadOutcome::Duplicate => &mut self.statistics.uploads_duplicate,
            _ => &mut self.statistics.uploads_refused,
        };
        *counter += 1;
        let disowned = match outcome {
            UploadOutcome::UnknownSpecification { store: Some(store), .. } => {
                let parcel = self.state.outbox.parcels.get(&id);
                parcel.map(|parcel| (parcel.experiment_id.clone(), (parcel.digest, *store)))
            }
            _ => None,
        };
        self.record(Change::Settled { id });
        if let Some((experiment_id, specification)) = disowned {
            self.forget_disowned(&experiment_id, specification);
        }
        Ok(())
    }

    /// Makes a task due again that was given up since the network has changed. It says nothing about
    /// the server.
    #[cfg(feature = "grpc")]
    pub(crate) fn interrupt(&mut self, task: &Task) {
        self.server.given_up();
        let upload = match task {
            Task::Upload(task) => task.id(),
            Task::Shuffled(task) => task.id(),
            Task::Fetch(task) => return self.fetch_again(task),
            Task::Wait(_) | Task::Done => return,
        };
        if let Some(id) = self.state.outbox.find(upload) {
            self.state.outbox.unanswered(id);
        }
    }

    /// Fetches the day again after the last report, when the window has no room for another one:
    /// the window of what was sent begins with the next day that is heard.
    ///
    /// # Privacy
    /// At a random time: a fetch right after an upload would tell that both are of one device, and that
    /// its window is full.
    fn hear_soon(&mut self, id: AssignmentId, now: Timestamp) -> Result<(), EntropyError> {
        let Some(parcel) = self.state.outbox.parcels.get(&id) else { return Ok(()) };
        let admitted = self.state.ledger.admits(parcel.price, &self.budget);
        let mut sealed = self.state.outbox.parcels.iter().filter(|(_, one)| one.sealed.is_some());
        let is_full = admitted.is_err_and(Exhausted::is_of_window);
        let is_last = is_full && sealed.all(|(other, _)| *other == id);
        let enrolled = self.enrolled.get_mut(&parcel.experiment_id).filter(|_| is_last);
        match enrolled.filter(|enrolled| enrolled.acceptance.is_some()) {
            Some(enrolled) => enrolled.refresh_later(now, &mut self.noise),
            None => Ok(()),
        }
    }

    /// Whether the specification of a report is known to have come from this store. If the store
    /// does not know the specification, that answer is then final.
    fn came_from(&self, id: AssignmentId, store: Option<StoreId>) -> bool {
        let parcel = self.state.outbox.parcels.get(&id);
        store.is_some() && parcel.is_some_and(|parcel| parcel.store == store)
    }
}
