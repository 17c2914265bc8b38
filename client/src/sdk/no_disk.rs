//! Stands for the storage of a handle in a build without one.

use std::sync::Mutex;

use super::settings::Settings;
use crate::core::Core;
use crate::noise::OsNoise;
use crate::time::Clock;

/// Where the state is kept.
#[derive(Debug)]
pub(super) enum Place {
    Memory,
}

/// No disk: nothing is ever written.
#[derive(Debug)]
pub(super) struct Disk;

impl Disk {
    pub(super) fn open(settings: &Settings) -> (Core<OsNoise>, Self) {
        let Place::Memory = settings.place;
        (Core::new(settings.budget), Self)
    }

    #[expect(clippy::unused_self, reason = "as the disk that there can be")]
    pub(super) fn write(&self, _core: &Mutex<Core<OsNoise>>, _clock: &dyn Clock) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "as the disk that there can be")]
    pub(super) fn close(&self) {}
}
