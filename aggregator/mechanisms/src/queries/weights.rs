//! Private multiplicative weights, for many adaptive counting queries (Hardt and Rothblum, "A
//! multiplicative weights mechanism for privacy-preserving data analysis", 2010; Dwork and
//! Roth 2014, section 4.2).
//!
//! A hypothesis, a distribution over the universe, answers queries. A **lazy** round answers from
//! the hypothesis, and costs nothing. An **update** round, when the hypothesis is noticeably wrong,
//! answers with noise and corrects the hypothesis. Few rounds are updates, whatever the queries.
//!
//! # Privacy
//! The session is one run of the sparse vector technique with numeric answers (Lyu, Su and
//! Li, "Understanding the sparse vector technique for differential privacy", 2017, algorithm 7
//! and theorem 4), with a loss of ε = ε1 + ε2 + ε3 for all of its rounds:
//! - the threshold gets noise of scale 1/ε1, once per session;
//! - each comparison gets noise of scale 2 c/ε2, with c the maximum number of updates;
//! - each answer of an update round gets noise of scale c/ε3.
//!
//! The compared quantity is |c(D) - h|, with h the number of rows that the hypothesis expects, as
//! an integer. The hypothesis is a function of answers that were released, and so is h; a changed
//! row changes c(D) by at most 1, and so the compared quantity too. After c updates the session
//! answers no more.
//!
//! All of this holds for sequential rounds, each compared with the state after the previous one,
//! and each released as it was compared. A caller that compares two queries with the same state may
//! release at most one result, chosen independently of both results
//! (`service/curator/sessions.rs`).

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::QueryError;
use super::cells::{CellSet, check_cells};
use super::laplace::LaplaceMechanism;
use super::price::{PureLoss, check_beta};

/// Maximum number of updates of a session.
pub const UPDATES_MAX: u32 = 100_000;

/// The division of a session's budget. The plan is stored with the session, so a program that
/// divides budgets differently does not affect open sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPlan {
    /// ε1, ε2 and ε3 in billionths: of the threshold, of comparisons and of answers.
    nanos: [u64; 3],
    /// Maximum number of updates.
    updates: u32,
    /// Error of the hypothesis, in rows before noise, from which a round is an update.
    threshold: u64,
    /// Certain minimum of that error in an update round, which determines the step length.
    gap: u64,
    /// Maximum error of a noisy answer in rows, which also enters the step length.
    slack: u64,
}

/// The parameters of a session with a guaranteed accuracy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Number of rows of the data.
    pub rows: u64,
    /// Number of cells of the universe.
    pub cells: usize,
    /// Number of queries for which the accuracy is guaranteed.
    pub queries: u64,
    /// The probability of failure of the guarantee.
    pub beta: f64,
}

impl SessionPlan {
    /// The plan with the least guaranteed error α, and that α in rows. With probability 1 - β every
    /// answer is within α, and the updates suffice.
    ///
    /// Let E1, E2 and E3 bound the noise of the threshold, of all comparisons and of all answers,
    /// with probability 1 - β/3 each. The error of a lazy answer is below T + E1 + E2, and in an
    /// update round the error of the hypothesis is at least g = T - E1 - E2. If r is the indicator
    /// of the cells where the hypothesis is too large, its divergence from the data falls by at
    /// least η g/n - η²/8 with every step of length η, by Hoeffding's lemma; with η = 4 g/n that is
    /// 2 (g/n)². The divergence is at most ln |X| initially and stays above 0, so there are at most
    /// ln |X| n²/(2 g²) updates. (Dwork and Roth, theorem 4.14, have 4 ln |X|/α², from a less sharp
    /// step and bound.) So for each c the plan takes g = n sqrt(ln |X|/(2 c)), and of all c the one
    /// with the least α = g + 2 (E1 + E2).
    ///
    /// # Errors
    /// [`QueryError::Session`] when no α below the number of rows can be promised;
    /// [`QueryError::Beta`], [`QueryError::NoQueries`], [`QueryError::NoRows`],
    /// [`QueryError::EmptyUniverse`].
    pub fn promised(loss: PureLoss, promise: Promise) -> Result<(Self, f64), QueryError> {
        let Promise { rows, cells, queries, beta } = promise;
        check_beta(beta)?;
        check_cells(cells as u128)?;
        if rows == 0 {
            return Err(QueryError::NoRows);
        }
        if queries == 0 {
            return Err(QueryError::NoQueries);
        }
        let logs = libm::log(cells as f64);
        let mut best: Option<(Self, f64)> = None;
        let mut updates = 1_u32;
        while updates <= UPDATES_MAX && u64::from(updates) <= queries {
            let gap = (rows as f64 * (logs / (2.0 * f64::from(updates))).sqrt()).max(1.0);
            if let Some((plan, alpha)) = Self::for_updates(loss, updates, gap, queries, beta)
                && best.is_none_or(|(_, least)| alpha < least)
            {
                best = Some((plan, alpha));
            }
            updates += updates.div_ceil(50);
        }
        best.filter(|(_, alpha)| *alpha < rows as f64).ok_or(QueryError::Session(
            "no error below the number of rows can be promised at this price; pay more, promise \
             it for fewer queries, or choose the updates and the threshold yourself",
        ))
    }

    fn for_updates(
        loss: PureLoss,
        updates: u32,
        gap: f64,
        queries: u64,
        beta: f64,
    ) -> Option<(Self, f64)> {
        let plan = Self::shared_out(loss, updates, 1).ok()?;
        let [e1, e2, e3] = plan.errors(queries, beta).ok()?;
        let noise = e1.checked_add(e2)?;
        let (gap, slack) = (whole(gap), e3);
        // A step must reduce the error.
        if slack >= gap {
            return None;
        }
        let threshold = gap.checked_add(noise)?;
        let alpha = threshold.checked_add(noise)? as f64;
        Some((Self { threshold, gap, slack, ..plan }, alpha))
    }

    /// A plan with this number of updates, one for each error of the hypothesis of about
    /// `threshold` rows or more. Accuracy is not guaranteed: if the updates don't suffice, the
    /// session ends.
    ///
    /// # Errors
    /// [`QueryError::Session`], [`QueryError::TooManyParts`].
    pub fn chosen(loss: PureLoss, updates: u32, threshold: u64) -> Result<Self, QueryError> {
        if updates == 0 || updates > UPDATES_MAX {
            return Err(QueryError::Session("a session has 1 to 100000 updates"));
        }
        if threshold == 0 || threshold >= 1 << 40 {
            return Err(QueryError::Session("a threshold is 1 to 2^40 - 1 rows"));
        }
        let plan = Self::shared_out(loss, updates, threshold)?;
        let typical = plan.mechanism(2)?.accuracy(1, 0.5)?;
        Ok(Self { gap: (threshold / 2).max(1), slack: typical, ..plan })
    }

    /// Divides the budget: a quarter of ε for answers, and the rest for threshold and comparisons
    /// as 1 to (2 c)^(2/3), which minimises the variance of their difference (Lyu, Su and Li 2017,
    /// section 4.3).
    fn shared_out(loss: PureLoss, updates: u32, threshold: u64) -> Result<Self, QueryError> {
        let answers = loss.part(1, 4)?.nanos();
        let rest = loss.nanos() - answers;
        let ratio = 1.0 + libm::cbrt(4.0 * f64::from(updates) * f64::from(updates));
        let first = whole((rest as f64 / ratio).floor());
        let nanos = [first, rest.saturating_sub(first), answers];
        if nanos.contains(&0) {
            return Err(QueryError::TooManyParts { parts: u64::from(updates) });
        }
        Ok(Self { nanos, updates, threshold, gap: 1, slack: 0 })
    }

    /// The mechanism of one of the three parts.
    fn mechanism(&self, part: usize) -> Result<LaplaceMechanism, QueryError> {
        let updates = u64::from(self.updates);
        let sensitivity = [1, 2 * updates, updates];
        let nanos = self.nanos.get(part).copied().unwrap_or(0);
        let sensitivity = sensitivity.get(part).copied().unwrap_or(0);
        LaplaceMechanism::new(sensitivity, PureLoss::of_nanos(nanos))
    }

    /// E1, E2 and E3.
    fn errors(&self, queries: u64, beta: f64) -> Result<[u64; 3], QueryError> {
        let third = beta / 3.0;
        Ok([
            self.mechanism(0)?.accuracy(1, third)?,
            self.mechanism(1)?.accuracy(queries, third)?,
            self.mechanism(2)?.accuracy(self.updates.into(), third)?,
        ])
    }

    /// A bound on the errors of `queries` answers in rows, with probability 1 - `beta`, as long as
    /// the session lasts.
    ///
    /// # Errors
    /// [`QueryError::Beta`], [`QueryError::NoQueries`].
    pub fn accuracy(&self, queries: u64, beta: f64) -> Result<f64, QueryError> {
        let [e1, e2, e3] = self.errors(queries, check_beta(beta)?)?;
        Ok((self.threshold as f64 + e1 as f64 + e2 as f64).max(e3 as f64))
    }

    /// The maximum number of updates.
    pub fn updates(&self) -> u32 {
        self.updates
    }

    /// The error of the hypothesis, in rows before noise, from which a round is an update.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }
}

/// The answer to a query, by the kind of its round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Round {
    /// From the hypothesis: an expected number of rows, not an integer.
    Lazy {
        /// The answer.
        answer: f64,
    },
    /// With noise. [`MultiplicativeWeights::update`] must correct the hypothesis before the answer
    /// leaves.
    Update {
        /// The answer.
        answer: i64,
    },
}

/// A session: a plan, the hypothesis, and the noise of the threshold, which must stay secret.
#[derive(Clone)]
pub struct MultiplicativeWeights {
    plan: SessionPlan,
    rows: u64,
    hypothesis: Vec<f64>,
    used: u32,
    threshold_noise: i64,
}

impl std::fmt::Debug for MultiplicativeWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { plan, rows, used, .. } = self;
        let mut shown = f.debug_struct("MultiplicativeWeights");
        shown.field("plan", plan).field("rows", rows).field("used", used).finish_non_exhaustive()
    }
}

impl MultiplicativeWeights {
    /// Draws the noise of a session's threshold. Call it once per session.
    ///
    /// # Errors
    /// [`QueryError::Noise`].
    pub fn draw_threshold_noise<R: Rng + ?Sized>(
        plan: &SessionPlan,
        rng: &mut R,
    ) -> Result<i64, QueryError> {
        Ok(plan.mechanism(0)?.noise().sample(rng))
    }

    /// A session before its first round: the hypothesis is uniform.
    ///
    /// # Errors
    /// [`QueryError::EmptyUniverse`], [`QueryError::TooManyCells`],
    /// [`QueryError::NoRows`].
    pub fn new(
        plan: SessionPlan,
        rows: u64,
        cells: usize,
        threshold_noise: i64,
    ) -> Result<Self, QueryError> {
        let cells = check_cells(cells as u128)?;
        if rows == 0 {
            return Err(QueryError::NoRows);
        }
        let hypothesis = vec![1.0 / cells as f64; cells];
        Ok(Self { plan, rows, hypothesis, used: 0, threshold_noise })
    }

    /// Answers a query about this histogram, without a change of state: call [`Self::update`] for
    /// an update round.
    ///
    /// # Errors
    /// [`QueryError::SessionExhausted`], [`QueryError::OtherUniverse`].
    pub fn ask<R: Rng + ?Sized>(
        &self,
        histogram: &[u64],
        query: &CellSet,
        rng: &mut R,
    ) -> Result<Round, QueryError> {
        query.check(self.hypothesis.len())?;
        if self.used >= self.plan.updates {
            return Err(QueryError::SessionExhausted { updates: self.plan.updates });
        }
        let truth = i64::try_from(query.count(histogram)?).unwrap_or(i64::MAX);
        let answer = self.expected(query);
        let gap = truth.abs_diff(signed(answer));
        let noisy_gap = i128::from(gap) + i128::from(self.plan.mechanism(1)?.noise().sample(rng));
        if noisy_gap < i128::from(self.plan.threshold) + i128::from(self.threshold_noise) {
            return Ok(Round::Lazy { answer });
        }
        let answer = self.plan.mechanism(2)?.noise().release(truth, rng);
        Ok(Round::Update { answer })
    }

    /// Corrects the hypothesis by a released answer: cells where it is too large are multiplied by
    /// exp(-η), with η = 4 times the certain error, as a share.
    ///
    /// # Errors
    /// [`QueryError::SessionExhausted`], [`QueryError::OtherUniverse`].
    pub fn update(&mut self, query: &CellSet, answer: i64) -> Result<(), QueryError> {
        query.check(self.hypothesis.len())?;
        if self.used >= self.plan.updates {
            return Err(QueryError::SessionExhausted { updates: self.plan.updates });
        }
        self.used += 1;
        let rows = self.rows as f64;
        let (answer, expected) = (answer as f64, self.expected(query));
        let certain =
            ((answer - expected).abs() - self.plan.slack as f64).max(self.plan.gap as f64);
        let factor = libm::exp(-4.0 * (certain / rows).min(1.0));
        let has_too_much = answer < expected;
        for (cell, weight) in self.hypothesis.iter_mut().enumerate() {
            if query.contains(cell) == has_too_much {
                *weight *= factor;
            }
        }
        let total: f64 = self.hypothesis.iter().sum();
        for weight in &mut self.hypothesis {
            *weight /= total;
        }
        Ok(())
    }

    /// The expected number of rows that satisfy a predicate, by the hypothesis.
    pub fn expected(&self, query: &CellSet) -> f64 {
        query.weight(&self.hypothesis) * self.rows as f64
    }

    /// The hypothesis: the distribution over the cells from which lazy rounds answer. It is public.
    pub fn hypothesis(&self) -> &[f64] {
        &self.hypothesis
    }

    /// The number of updates so far.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The plan.
    pub fn plan(&self) -> &SessionPlan {
        &self.plan
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rows, far below 2^62")]
fn signed(rows: f64) -> i64 {
    rows.round() as i64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond the range becomes its end"
)]
fn whole(value: f64) -> u64 {
    value.ceil() as u64
}
