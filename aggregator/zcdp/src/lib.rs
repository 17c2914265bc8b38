//! Bandits with a trusted curator, under zero-concentrated differential privacy (zCDP).
//!
//! Users trust the server with their rewards, but not the observers of its output: one reward is
//! protected against observers of all recommended arms and all released statistics. The algorithms
//! are AdaC-UCB, AdaC-GOPE and AdaC-OFUL of Azize and Basu, "Concentrated Differential Privacy for
//! Bandits" (arXiv 2309.00557), the same without noise, and variants of this project, marked as
//! such.
//!
//! Each is a state machine that receives plays, adds up rewards, and requests noise when a
//! statistic is due. It draws no randomness and reads no clock: with equal noise and equal plays it
//! is in an equal state. Noise comes from the caller, in whole units of the [`lattice`], as many as
//! [`NoiseScale`] says, and must be durable before any result of it is used.
//!
//! # A bandit, simulated
//! ```
//! use bandana_mechanisms::noise::secure_generator;
//! use bandana_zcdp::adac_ucb::{AdacUcb, Memory, UcbSettings};
//! use bandana_zcdp::{Protection, RewardRange};
//!
//! let protection = Protection::concentrated(0.5)?;
//! let (exploration, memory) = (1.0, Memory::Forgetting);
//! let mut bandit = AdacUcb::new(UcbSettings { arms: 3, protection, exploration, memory })?;
//! let (rewards, mut rng, mut regret) = ([0.2, 0.5, 0.8], secure_generator()?, 0.0);
//! for _ in 0..20_000 {
//!     let arm = bandit.recommended();
//!     bandit.observe(arm, RewardRange::Unit.reward(rewards[arm])?)?;
//!     regret += 0.8 - rewards[arm];
//!     if bandit.is_due() {
//!         let noise = bandit.noise().map(|scale| scale.sample(&mut rng)).unwrap_or_default();
//!         bandit.release(&noise)?;
//!     }
//! }
//! // Playing blindly costs 6,000.
//! assert!(regret < 3_000.0, "{regret}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Privacy
//! All of them rest on one claim. A *buffer* is a sum of rewards of which nothing has been
//! released.
//!
//! **Claim.** Suppose that
//! 1. which buffer a reward enters, and when a buffer is released, depend only on earlier releases,
//!    on plays and on the number of rewards, never on their values;
//! 2. every reward enters at most one buffer, and a buffer is released once, with Gaussian noise
//!    that makes this one release ρ-zCDP for the change of one reward;
//! 3. all else is computed from released statistics.
//!
//! Then the complete observable output is ρ-zCDP, for any number of buffers open at the same time,
//! and for any adversary that chooses the arms.
//!
//! *Proof.* Fix an adversary with its coins, who chooses every arm that is played from what was
//! recommended, and two tables of rewards that differ in the row of one user, at time s. Let O_1,
//! O_2, ... be the released statistics in their order, P and Q their laws under the two tables. By
//! (1) and (3) arms, counts, and the times of releases follow from the coins and the statistics so
//! far. So the arm played at time s, the buffer B that this reward enters, and whether release k is
//! the one of B, are functions of O_1..O_{k-1}. If release k is not that of B, the sum in it is the
//! same under both tables by (2) and the noise is independent: `P(O_k | O_<k) = Q(O_k | O_<k)`. If
//! it is, the order-α Rényi divergence of the two conditional laws is at most ρα. At most one k is
//! of this kind in each sequence, and it is known before O_k is drawn, so the likelihood ratio L of
//! the whole sequence is the ratio at this k alone, or 1: `E_Q[L^α] = E_Q[ E_Q[L^α | O_<k] ] <=
//! exp((α - 1) ρ α)`. Everything observable is a function of the statistics and the coins. ∎
//!
//! It is the adaptive form of parallel composition. It does not need one buffer to close before the
//! next one opens.
//!
//! # Neighbours
//! Azize and Basu compare three senses of privacy, by what the rewards are and who chooses the
//! arms:
//!
//! | sense | rewards | arms |
//! |---|---|---|
//! | view | a list: one for each step, whatever is played | as recommended |
//! | table | a table: one for each step and arm; neighbours differ in a row | as recommended |
//! | interactive | a table | chosen by an adversary who reads all that is released |
//!
//! Interactive privacy implies that of tables (the adversary obeys), and that of tables implies
//! that of views (a list is a table with equal entries in each row). For pure ε, those of tables
//! and of views are the same: a view of given arms has the same probability under a table as under
//! the list of the entries that it played, and ε bounds the ratio for each view. But ρ bounds a
//! mean over views, whose lists differ, and there the converse fails:
//! `a_policy_that_is_private_by_its_view_and_not_by_the_table`, in `tests/bandits/checker.rs`, has
//! more than five times the ρ by the table. The claim above is the interactive one, and
//! `whoever_chooses_the_arms_learns_no_more_than_rho`, in `tests/bandits/protocol.rs`, tests it.
//!
//! # Lower bounds
//! Lower bounds of regret rest on a coupling. **If M is ρ-zCDP, its outputs for data drawn from P
//! and from P' have a KL divergence of at most ρ E\[d²\], for any coupling of the data with d
//! entries that differ. For independent entries whose total variation distances are t_i, it is at
//! most ρ ((Σ t_i)² + Σ t_i (1 - t_i)).**
//!
//! *Proof.* KL is jointly convex, so it is at most the mean over the coupling of the KL divergence
//! for two given data sets. These are d neighbours apart, so their divergence is at most d² ρ
//! (group privacy, at order 1). If each entry is coupled by itself, so that it differs with
//! probability t_i, d is a sum of independent bits. ∎ So no output tells two bandits apart while Σ
//! t_i is far below 1/sqrt(ρ). `tests/bandits/coupling.rs` enumerates noisy sums: the bound holds,
//! is attained for a group, and fails with half of the noise.
//!
//! # Several rewards, and noise
//! ρ is the price of *one* reward. Someone with k rewards in the data pays up to k² ρ
//! ([`Rho::for_group`](bandana_shared::accounting::concentrated::Rho::for_group)).
//!
//! The noise is discrete Gaussian: for integer sums of sensitivity Δ (Euclidean), independent
//! noise of parameter σ² on each coordinate is Δ²/(2σ²)-zCDP, exactly as the continuous one
//! (Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020,
//! theorem 4). Rewards are rounded to the lattice before they are added and action
//! vectors are on a lattice, so sums are exact integers and each Δ is an exact integer too: no
//! slack for rounding is needed.

pub mod adac_gope;
pub mod adac_oful;
pub mod adac_ucb;
mod algorithm;
pub mod bounds;
pub mod design;
mod error;
pub mod estimator;
mod gaussian_tail;
pub mod lattice;
pub mod lazy_release;
mod specification;
pub mod state;

pub use algorithm::{AlgorithmSettings, Played, Shown};
pub use error::ZcdpError;
pub use lattice::{Action, LatticeReward, NoiseScale, Protection, RewardRange};
pub use specification::{SpecificationError, actions_of};
