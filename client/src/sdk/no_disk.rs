//! The storage of a handle in a build without storage.

use std::sync::Mutex;

use super::settings::Settings;
use crate::assignment::random_epoch;
use crate::core::Core;
use crate::noise::OsNoise;
use crate::time::{Clock, Timestamp};

/// The place of the state.
#[derive(Debug)]
pub(super) enum Place {
    Memory,
}

/// No storage: nothing is ever written.
#[derive(Debug)]
pub(super) struct Disk;

impl Disk {
    pub(super) fn open(settings: &Settings) -> (Core<OsNoise>, Self) {
        let Place::Memory = settings.place;
        let mut core = Core::new(settings.budget);
        core.begin_epoch(random_epoch());
        (core, Self)
    }

    #[expect(clippy::unused_self, reason = "as the disk that there can be")]
    pub(super) fn write(
        &self,
        _core: &Mutex<Core<OsNoise>>,
        _clock: &dyn Clock,
        _allow: &dyn Fn(),
    ) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "as the disk that there can be")]
    pub(super) fn next_try(&self, _now: Timestamp) -> Option<Timestamp> {
        None
    }

    #[expect(clippy::unused_self, reason = "as the disk that there can be")]
    pub(super) fn close(&self) {}
}
