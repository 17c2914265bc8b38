//! Pictures of the regret of learners on private bits.

mod picture;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bandana_lab::{Contestant, Course, Instance, Privacy, StandardLearner, Study};
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;

    /// LDP-TS and IMED on the 20 arms of the papers, for 1,000 rounds.
    pub(super) fn study(trials: usize) -> Study {
        let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(2.0).unwrap() };
        let learner = |one: StandardLearner| Arc::new(one) as Arc<dyn Contestant>;
        let learners = vec![learner(StandardLearner::LdpTs), learner(StandardLearner::Imed)];
        Study {
            trials,
            course: Course::to(1000),
            ..Study::new("paper-20", Arc::new(Instance::paper_20()), privacy, learners)
        }
    }
}
