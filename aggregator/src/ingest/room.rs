//! Room for upload ids: log lines and a watch for when it becomes scarce and when it is gone.

use tokio::sync::watch;

/// The percentage of room taken at which it counts as scarce.
const SCARCE_PERCENT: usize = 80;

/// The level of free room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Enough,
    Scarce,
    Full,
}

impl Level {
    fn of(ids: usize, ids_max: usize) -> Self {
        if ids >= ids_max {
            Self::Full
        } else if ids >= ids_max / 100 * SCARCE_PERCENT + ids_max % 100 * SCARCE_PERCENT / 100 {
            Self::Scarce
        } else {
            Self::Enough
        }
    }
}

/// Logs when the level of free room changes. The number of ids only grows within a day, so that
/// makes at most a few lines a day.
#[derive(Debug)]
pub(super) struct Room {
    level: Level,
    is_there: watch::Sender<bool>,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { level: Level::Enough, is_there: watch::Sender::new(true) }
    }

    /// A watch of whether there is room.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.is_there.subscribe()
    }

    /// Records the number of remembered ids. A maximum of 0: the store has none in memory.
    pub(super) fn note(&mut self, ids: usize, ids_max: usize) {
        let level = if ids_max == 0 { Level::Enough } else { Level::of(ids, ids_max) };
        if level == self.level {
            return;
        }
        match level {
            Level::Full => tracing::error!(
                ids,
                ids_max,
                "no more upload ids can be remembered: every new upload is turned away until the \
                 replay window moves on; raise store.ids_max, and look at who uploads"
            ),
            Level::Scarce if level > self.level => tracing::warn!(
                ids,
                ids_max,
                "the server remembers {SCARCE_PERCENT}% of the upload ids that it can, and at 100% it \
                 turns uploads away: raise store.ids_max, or look at who uploads"
            ),
            _ => tracing::info!(ids, ids_max, "there is room for further upload ids again"),
        }
        self.level = level;
        self.is_there.send_replace(level != Level::Full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_scarce_from_four_fifths_on_and_gone_at_the_end() {
        let mut room = Room::new();
        let is_there = room.watch();
        for (ids, level) in
            [(7, Level::Enough), (8, Level::Scarce), (9, Level::Scarce), (10, Level::Full)]
        {
            room.note(ids, 10);
            assert_eq!((room.level, *is_there.borrow()), (level, ids < 10), "{ids}");
        }
        room.note(3, 10);
        assert!(*is_there.borrow());
        room.note(0, 0);
        assert_eq!(Level::of(40_000_000, 50_000_000), Level::Scarce);
        assert_eq!(Level::of(39_999_999, 50_000_000), Level::Enough);
        assert_eq!(Level::of(usize::MAX - 1, usize::MAX), Level::Scarce);
    }
}
