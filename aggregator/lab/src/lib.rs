//! A laboratory for private bandits: learners, channels and bandits behind traits, and a runner.
//!
//! In a [`Study`], learners play a [`Bandit`] whose rewards reach them through a [`Channel`] only,
//! in many trials on several threads. A seed fixes the result, whatever the threads. All learners
//! of a trial meet the same reward at an arm's first pull, at its second, and so on. Learners with
//! the same channel also meet the same noise. So differences between learners are not by luck.
//!
//! - [`Bandit`]: arms and their rewards; [`Instance`] has those of the papers, and reads files.
//! - [`Channel`]: from a reward to the signal that a learner receives; [`StandardChannel`] has those
//!   of devices, in the same integers, and others for comparison.
//! - [`Learner`] and [`Contestant`]: a learner chooses arms in a trial, and a contestant makes a
//!   learner for each trial; [`StandardLearner`] has those of the server and others for comparison.
//! - [`BatchLearner`]: a learner whose batches are drawn as counts, for horizons of 10^8 rounds.
//! - [`Study`]: the runner, with progress, interruption, and trials that can be kept and resumed;
//!   [`KeptTrials`] keeps them in a file.
//!
//! # A learner of your own
//! ```
//! use std::sync::{Arc, atomic::AtomicBool};
//! use bandana_lab::{
//!     Contestant, Course, Instance, Learner, Privacy, Random, Setting, StandardLearner, Study,
//! };
//! use bandana_shared::{curve::Mechanism, epsilon::Epsilon};
//! use rand::RngExt as _;
//!
//! /// Plays a random arm in a tenth of the rounds, and otherwise the one with the best mean so far.
//! struct Greedy(Vec<(f64, f64)>);
//!
//! impl Learner for Greedy {
//!     fn choose(&mut self, rng: &mut Random) -> usize {
//!         let mean = |arm: usize| (self.0[arm].0 + 1.0) / (self.0[arm].1 + 1.0);
//!         let arms = 0..self.0.len();
//!         if rng.random_bool(0.1) {
//!             return rng.random_range(arms);
//!         }
//!         arms.max_by(|a, b| mean(*a).total_cmp(&mean(*b))).unwrap_or(0)
//!     }
//!
//!     fn learn(&mut self, arm: usize, signal: f64) -> anyhow::Result<()> {
//!         self.0[arm].0 += signal;
//!         self.0[arm].1 += 1.0;
//!         Ok(())
//!     }
//! }
//!
//! #[derive(Debug)]
//! struct EpsilonGreedy;
//!
//! impl Contestant for EpsilonGreedy {
//!     fn name(&self) -> String {
//!         "epsilon-greedy".to_owned()
//!     }
//!
//!     fn learner(&self, setting: &Setting) -> anyhow::Result<Box<dyn Learner>> {
//!         Ok(Box::new(Greedy(vec![(0.0, 0.0); setting.arms])))
//!     }
//! }
//!
//! let study = Study {
//!     trials: 4,
//!     course: Course::to(2_000),
//!     ..Study::new(
//!         "five-arms",
//!         Arc::new(Instance::named("five-arms")?),
//!         Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(2.0)? },
//!         vec![Arc::new(StandardLearner::LdpTs), Arc::new(EpsilonGreedy)],
//!     )
//! };
//! let outcome = study.run(&AtomicBool::new(false), |_| {})?;
//! let last = outcome.rows.last().ok_or_else(|| anyhow::anyhow!("no rows"))?;
//! assert_eq!((&*last.learner, last.horizon, last.trials), ("epsilon-greedy", 2_000, 4));
//! # Ok::<(), anyhow::Error>(())
//! ```

mod bandit;
mod batches;
mod channel;
pub mod instance;
mod kept_trials;
mod learner;
pub mod outcome;
mod random;
mod standard;
mod study;
mod threads;
mod trial;

pub use bandit::Bandit;
pub use batches::{SymbolLaws, run_by_batches};
pub use channel::{Channel, StandardChannel, reports};
pub use instance::Instance;
pub use kept_trials::KeptTrials;
pub use learner::{BatchLearner, Contestant, Learner, Privacy, Setting};
pub use outcome::{Row, StudyOutcome};
pub use random::{Random, generator};
pub use standard::StandardLearner;
pub use study::{FinishedTrial, Study};
pub use threads::on_threads;
pub use trial::{Attack, Course, run_trial};
