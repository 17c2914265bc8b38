//! Release times of reports: those in one slot of time share it, so that a device wakes up once.

use std::time::Duration;

use bandana_shared::identity::ExperimentId;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::Core;
use crate::assignment::AssignmentId;
use crate::noise::{EntropyError, NoiseSource, uniform_up_to};
use crate::time::Timestamp;

/// Number of slots in the longest delay, at least; up to twice as many.
const SLOTS_MIN: u64 = 32;

/// Draws a release time: a slot with the same odds for each one that lies in `rewards_until` to the
/// longest delay after it, and in the slot the time that `seed` gives it, a secret number of this
/// start. Slots have a length of a power of two, in seconds, and begin at its
/// multiples. Delays too short for slots are uniform in milliseconds.
///
/// # Privacy
/// No release time depends on a reward. Whoever sees one learns of the end of its window what a
/// uniform delay would tell, up to the one slot that can be more or less: a factor of at most
/// 1 + 1/30. Slots are the same on all devices, and the times within two of them tell nothing of
/// each other to whoever lacks the seed, so neither is a mark of the device. Reports that leave
/// together were drawn by one device, as their time tells.
pub(super) fn draw(
    rewards_until: Timestamp,
    delay_seconds_max: u32,
    seed: u64,
    mut word: impl FnMut() -> Result<u64, EntropyError>,
) -> Result<Timestamp, EntropyError> {
    let delay_ms_max = u64::from(delay_seconds_max) * 1000;
    let Some(length) = slot_ms(delay_seconds_max) else {
        let delay = uniform_up_to(delay_ms_max, &mut word)?;
        return Ok(rewards_until.after(Duration::from_millis(delay)));
    };
    let begin = rewards_until.unix_ms();
    // The slots that lie in the time as a whole.
    let first = begin.div_ceil(length);
    let last = (begin.saturating_add(delay_ms_max) / length).saturating_sub(1);
    let slot = first + uniform_up_to(last.saturating_sub(first), &mut word)?;
    let start = slot.saturating_mul(length);
    // One stream of the cipher for each slot.
    let mut times = ChaCha20Rng::seed_from_u64(seed);
    times.set_stream(slot);
    let within = uniform_up_to(length - 1, || Ok(times.next_u64()))?;
    Ok(Timestamp::from_unix_ms(start.saturating_add(within)))
}

/// The longest delay of a report whose specification was forgotten.
const DELAY_SECONDS: u32 = 3600;

impl<N: NoiseSource> Core<N> {
    /// Draws a release time for a time when rewards end.
    pub(super) fn draw_release(
        &mut self,
        rewards_until: Timestamp,
        delay_seconds_max: u32,
    ) -> Result<Timestamp, EntropyError> {
        let seed = self.release_seed()?;
        draw(rewards_until, delay_seconds_max, seed, || self.noise.word())
    }

    fn release_seed(&mut self) -> Result<u64, EntropyError> {
        Ok(match self.release_seed {
            Some(seed) => seed,
            None => *self.release_seed.insert(self.noise.word()?),
        })
    }

    /// Draws the time of reports anew that a wait has gathered, each within its delay after `from`.
    ///
    /// # Privacy
    /// Whoever makes a device wait would otherwise see all of its reports leave at once, which tells
    /// that they are of one device, and when it came back.
    pub(super) fn part(
        &mut self,
        gathered: Vec<AssignmentId>,
        from: Timestamp,
    ) -> Result<(), EntropyError> {
        let delay = |core: &Self, id: &ExperimentId, reach: Duration| {
            let held = core.state.cached.get(id);
            held.map_or_else(
                || u32::try_from(reach.as_secs()).unwrap_or(DELAY_SECONDS).min(DELAY_SECONDS),
                |held| held.specification.timing().release_delay_seconds_max,
            )
        };
        for id in gathered {
            let Some(parcel) = self.state.outbox.parcels.get(&id) else { continue };
            let delay = delay(self, &parcel.experiment_id, parcel.reach);
            let seed = self.release_seed()?;
            // What is drawn later must not depend on how often a server makes the client wait.
            let time = draw(from, delay, seed, || self.noise.jitter())?;
            if let Some(parcel) = self.state.outbox.parcels.get_mut(&id) {
                parcel.attempts.not_before = time;
            }
        }
        Ok(())
    }

    /// Parts the reports that a wait for the server, or for its day, has gathered.
    pub(super) fn part_gathered(&mut self, now: Timestamp) -> Result<(), EntropyError> {
        if self.day(now).is_none() {
            self.day_withheld |= self.has_asked;
        } else {
            if std::mem::take(&mut self.day_withheld) {
                self.part(self.state.outbox.released(now, true), now)?;
            }
            self.has_asked = false;
        }
        if self.server.has_gathered() && self.server.end(now).is_none() {
            self.part(self.state.outbox.released(now, false), now)?;
            self.server.parted();
        }
        Ok(())
    }
}

/// The length of a slot; `None`: there are none.
fn slot_ms(delay_seconds_max: u32) -> Option<u64> {
    let seconds = u64::from(delay_seconds_max) / SLOTS_MIN;
    Some(1000 << seconds.checked_ilog2()?)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::noise::OsNoise;

    #[test]
    fn all_slots_within_the_delay_are_drawn() {
        for (delay, length) in [(31, None), (32, Some(1)), (3600, Some(64)), (86_400, Some(2048))] {
            assert_eq!(slot_ms(delay), length.map(|seconds| seconds * 1000), "{delay}");
        }
        for begin in [0, 1, 63_999, 64_000, 1_700_000_000_123] {
            let mut drawn = BTreeMap::new();
            for _ in 0..5000 {
                let begin = Timestamp::from_unix_ms(begin);
                let time = draw(begin, 3600, 7, || OsNoise.word()).unwrap();
                assert!(time >= begin && time.since(begin) <= Duration::from_hours(1));
                *drawn.entry(time.unix_ms() / 64_000).or_insert(0_u32) += 1;
            }
            // A slot that is drawn less than 40 times of 90 has odds of 1e-9.
            assert!((55..=56).contains(&drawn.len()), "{} slots", drawn.len());
            assert!(drawn.values().all(|times| *times > 40), "{drawn:?}");
        }
    }

    #[test]
    fn reports_of_a_slot_leave_together() {
        let mut times: Vec<Timestamp> = Vec::new();
        for second in 0..2000 {
            let end = Timestamp::from_unix_ms(1_700_000_000_000 + second * 1000);
            let time = draw(end, 3600, 7, || OsNoise.word()).unwrap();
            assert!(time >= end && time.since(end) <= Duration::from_hours(1));
            times.push(time);
        }
        let different: BTreeSet<Timestamp> = times.iter().copied().collect();
        let slots: BTreeSet<u64> = times.iter().map(|time| time.unix_ms() / 64_000).collect();
        assert_eq!(different.len(), slots.len());
        // Two slots, or two devices, have different times in them, but for one pair in 64,000.
        let within: BTreeSet<u64> = times.iter().map(|time| time.unix_ms() % 64_000).collect();
        assert!(within.len() + 2 >= slots.len(), "{} times", within.len());
        let of_another = (0..50).map(|_| draw(times[0], 3600, 8, || OsNoise.word()).unwrap());
        assert!(of_another.filter(|time| different.contains(time)).count() < 10);
    }
}
