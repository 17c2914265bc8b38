//! Overlapping layers: experiments that are to share no installation, and do.
//!
//! A store takes no such experiment. Replicas of earlier versions could add two at the same time, each
//! before it had heard of the other one.

use bandana_shared::participation::Layer;

use super::ExperimentState;

/// The pairs of experiments whose parts of a layer overlap, of those that have not ended.
pub fn overlaps<'a, T: Clone>(
    experiments: impl IntoIterator<Item = (T, ExperimentState, &'a Layer)>,
) -> Vec<[(T, &'a Layer); 2]> {
    let open = experiments.into_iter().filter(|(_, state, _)| *state != ExperimentState::Stopped);
    let mut parts: Vec<(T, &Layer)> =
        open.map(|(experiment, _, part)| (experiment, part)).collect();
    parts.sort_by_key(|(_, part)| (part.name().as_str(), part.from()));
    let mut pairs = Vec::new();
    for (place, one) in parts.iter().enumerate() {
        // Those that begin later overlap with nothing that ends before.
        let others = parts[place + 1..].iter().take_while(|other| other.1.overlaps(one.1));
        pairs.extend(others.map(|other| [one.clone(), other.clone()]));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_those_of_one_layer_with_common_positions_that_have_not_ended() {
        let layers = ["a:0-0.5", "a:0.5-1", "b:0-1", "a:0.4-0.6", "a:0.1-0.2", "a:0-1", "b:0-0.1"];
        let layers = layers.map(|text| text.parse::<Layer>().unwrap());
        let states = [ExperimentState::Running; 5]
            .into_iter()
            .chain([ExperimentState::Stopped, ExperimentState::Draft]);
        let experiments = layers.iter().zip(states).enumerate();
        let found = overlaps(experiments.map(|(number, (layer, state))| (number, state, layer)));
        let mut found: Vec<_> =
            found.into_iter().map(|[(a, _), (b, _)]| [a.min(b), a.max(b)]).collect();
        found.sort_unstable();
        assert_eq!(found, [[0, 3], [0, 4], [1, 3], [2, 6]]);
    }
}
