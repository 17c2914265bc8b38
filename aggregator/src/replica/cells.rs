//! Polls of store cells, each on a thread of its own, so that a slow cell delays no other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use bandana_edge::explain::explain;
use tokio::time::Instant;

use bandana_store::{
    CellNews, ExperimentKey, ExperimentState, OpenCell, OpenError, PgConnection, Settled,
    StoreCells, StoreError, Waits,
};

/// The time for which a poll waits for cells while nobody waits for the poll. A cell that takes
/// longer is heard in a later poll.
const PATIENCE: Duration = Duration::from_millis(250);

/// The time for which a poll waits for cells when somebody wants all that was acknowledged. A cell
/// that does not answer is known not to after less.
const PATIENCE_OF_CALLERS: Duration = Duration::from_secs(4);

/// The states of experiments as this replica knows them.
pub(super) type States = HashMap<ExperimentKey, ExperimentState>;

/// The threads that poll store cells.
#[derive(Debug)]
pub(super) struct CellPolls {
    cells: Arc<StoreCells>,
    polls: Vec<Poll>,
    answers: Receiver<(usize, u64)>,
    /// The number of the last round of polls.
    round: u64,
}

#[derive(Debug)]
struct Poll {
    ask: SyncSender<Ask>,
    /// The round that was last answered.
    answered: u64,
}

#[derive(Debug)]
struct Ask {
    round: u64,
    states: Arc<States>,
    /// Whether to read the sums of expired days again.
    is_anew: bool,
}

impl CellPolls {
    /// Starts the threads. They end when this is dropped.
    pub(super) fn start(cells: Arc<StoreCells>) -> Result<Self, StoreError> {
        let (answer, answers) = channel();
        let mut polls = Vec::new();
        for index in 0..cells.all().len() {
            // One poll is under way, and another may wait.
            let (ask, asked) = sync_channel(1);
            let (cells, answer) = (Arc::clone(&cells), answer.clone());
            let thread = std::thread::Builder::new().name(format!("cell-{}", index + 1));
            let thread = thread.spawn(move || poll(&cells, index, &asked, &answer));
            thread.map_err(|source| StoreError::Open(OpenError::Thread { source }))?;
            polls.push(Poll { ask, answered: 0 });
        }
        Ok(Self { cells, polls, answers, round: 0 })
    }

    /// The cells.
    pub(super) fn cells(&self) -> &Arc<StoreCells> {
        &self.cells
    }

    /// Polls all cells. Afterwards the tallies of those that have answered in time are kept. Returns
    /// whether all have answered, but for those that are known not to.
    pub(super) fn hear(&mut self, states: States, is_anew: bool, is_wanted: bool) -> bool {
        // Of cells that are known not to answer, nobody waits for the answers.
        for (index, round) in self.answers.try_iter() {
            self.polls[index].answered = round;
        }
        self.round += 1;
        let states = Arc::new(states);
        for poll in &self.polls {
            let ask = Ask { round: self.round, states: Arc::clone(&states), is_anew };
            match poll.ask.try_send(ask) {
                // Full: it still answers an earlier round.
                Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
            }
        }
        let patience = if is_wanted { PATIENCE_OF_CALLERS } else { PATIENCE };
        let end = Instant::now() + patience;
        loop {
            if self.is_complete() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Short, since a cell may become known not to answer meanwhile.
            if let Ok((index, round)) = self.answers.recv_timeout(left.min(PATIENCE)) {
                self.polls[index].answered = round;
            }
        }
    }

    fn is_complete(&self) -> bool {
        let cells = self.cells.all().iter().zip(&self.polls);
        cells.into_iter().all(|(cell, poll)| poll.answered == self.round || !cell.answers())
    }
}

/// Answers polls of a cell, until nobody asks any more.
fn poll(cells: &StoreCells, index: usize, asked: &Receiver<Ask>, answer: &Sender<(usize, u64)>) {
    let Some(cell) = cells.all().get(index) else { return };
    let (mut link, mut settled) = (None, Settled::default());
    let mut is_heard = true;
    while let Ok(Ask { round, states, is_anew }) = asked.recv() {
        if is_anew {
            settled = Settled::default();
        }
        let outcome = cell.note(hear(cells, cell, &mut link, &mut settled, &states));
        let was_heard = std::mem::replace(&mut is_heard, outcome.is_ok());
        match outcome {
            Ok(()) if !was_heard => {
                tracing::info!(cell = %cell.number(), "the tallies of a store cell are read again");
            }
            Err(error) if was_heard => {
                let error = explain(&error);
                tracing::error!(error, "the tallies of a store cell stay as they were last read");
            }
            _ => {}
        }
        // A failed poll counts as an answer: the cell has nothing new to say.
        if answer.send((index, round)).is_err() {
            return;
        }
    }
}

fn hear(
    cells: &StoreCells,
    cell: &OpenCell,
    link: &mut Option<PgConnection>,
    settled: &mut Settled,
    states: &States,
) -> Result<(), StoreError> {
    let link = match link {
        Some(link) => link,
        None => link.insert(cell.link(Waits::FOLLOWING)?),
    };
    let CellNews { tallies, states: known } = link.cell_news(settled)?;
    cell.keep(tallies);
    let known: HashMap<_, _> = known.into_iter().collect();
    let lacks = |(key, state): (&ExperimentKey, &ExperimentState)| {
        known.get(key).is_none_or(|known| known.is_some_and(|known| known != *state))
    };
    let is_deleted = |(key, state): (&ExperimentKey, &Option<ExperimentState>)| {
        state.is_some() && !states.contains_key(key)
    };
    if states.iter().any(lacks) || known.iter().any(is_deleted) {
        cells.tell(cell, link)?;
    }
    Ok(())
}
