//! Consent to take part, and its withdrawal.

use super::Core;
use crate::noise::NoiseSource;

impl<N: NoiseSource> Core<N> {
    /// Opts the user out. It stops everything. Unsent reports are never sent, and arms that were kept are
    /// forgotten. The spent budget and the number of assignments stay. Hashes of the names of
    /// experiments that were reported stay too, so opting in again does not lead to a second report. So do
    /// numbers of shuffled reports, and the secret from which the installation's positions in layers follow.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{ClientError, Task};
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.draw(&id, now())?;
    /// client.opt_out();
    /// assert_eq!((client.open_assignments(), client.waiting_reports()), (0, 0));
    /// assert!(matches!(client.draw(&id, now()), Err(ClientError::OptedOut)));
    /// assert!(matches!(client.next_task(now())?, Task::Done));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn opt_out(&mut self) {
        let sealed = self.state.outbox.sealed();
        self.state.dropped.add(sealed, self.fetches);
        self.state.opt_out();
        self.unreported.clear();
        self.journal.replace();
    }

    /// Takes part again in the experiments that the client was enrolled in. The spent budget still
    /// counts. Each experiment is fetched again.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Task;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.draw(&id, now())?;
    /// client.opt_out();
    /// client.opt_in();
    /// assert_eq!(client.spent().lifetime.get(), 1_000_000_000);
    /// assert!(matches!(client.next_task(now())?, Task::Fetch(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn opt_in(&mut self) {
        if self.is_opted_out() {
            self.withheld = false;
            self.state.opted_out = false;
            self.journal.replace();
            self.enroll_again();
        }
    }

    /// Whether the user has opted out, or consent is withheld for this run.
    pub fn is_opted_out(&self) -> bool {
        self.state.opted_out || self.withheld
    }

    /// Stops everything for this run, and forgets what an opt-out forgets: the user has not consented. An
    /// earlier opt-out stands.
    pub(crate) fn withhold(&mut self) {
        let before = self.state.opted_out;
        self.opt_out();
        self.state.opted_out = before;
        self.withheld = true;
    }
}
