//! Paused by a guardrail: an arm is certainly beyond a metric's limit, and nobody has resumed since.
//!
//! It follows from the stored record of the experiment, so that it outlasts restarts and every replica
//! has it.

use std::time::Duration;

use super::{Alarm, AlarmName};

/// The alarm of a paused experiment, if it rings. `beyond` has the arm and the metric of each pause,
/// in words, with the time since then.
pub(crate) fn alarm(beyond: &[(String, Duration)]) -> Option<Alarm> {
    let age = beyond.iter().map(|(_, age)| *age).max()?;
    let arms: Vec<&str> = beyond.iter().map(|(arm, _)| &**arm).collect();
    Some(Alarm {
        name: AlarmName::GuardrailPause,
        message: format!(
            "a guardrail has paused the experiment: {}. Resume it to go on: the same arm and \
             metric do not pause it again. Or retire the arm first, or stop the experiment",
            arms.join(", ")
        ),
        age: Some(age),
        threshold: 1.0,
        seen: beyond.len() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_as_long_as_there_is_an_arm_to_tell_of() {
        assert_eq!(alarm(&[]), None);
        let told = |label: &str, hours| (label.to_owned(), Duration::from_hours(hours));
        let alarm = alarm(&[told("arm 1 (green)", 2), told("arm 2 (blue)", 5)]).unwrap();
        assert!(alarm.message.contains("arm 1 (green), arm 2 (blue)."), "{}", alarm.message);
        assert_eq!((alarm.age, alarm.seen), (Some(Duration::from_hours(5)), 2.0));
    }
}
