//! Private multiplicative weights, for many adaptive counting queries (Hardt and Rothblum, "A
//! multiplicative weights mechanism for privacy-preserving data analysis", 2010; Dwork and
//! Roth 2014, section 4.2).
//!
//! A hypothesis, a distribution over the universe, answers queries. A **lazy** round answers from
//! the hypothesis, and costs nothing. An **update** round, when the hypothesis is noticeably wrong,
//! answers with noise and corrects the hypothesis. Few rounds are updates, whatever the queries.
//!
//! A session is paid for with ε or with ρ. If noise on each answer promises more accuracy than a
//! hypothesis, a session with a promise adds that noise: all of its rounds are updates, and nothing
//! is compared.
//!
//! # Privacy
//! A session of **ε** is one run of the sparse vector technique with numeric answers (Lyu, Su and
//! Li, "Understanding the sparse vector technique for differential privacy", 2017, algorithm 7
//! and theorem 4), with a loss of ε = ε1 + ε2 + ε3 for all of its rounds:
//! - the threshold gets noise of scale 1/ε1, once per session;
//! - each comparison gets noise of scale 2 c/ε2, with c the maximum number of updates;
//! - each answer of an update round gets noise of scale c/ε3.
//!
//! A session of **ρ** = ρ1 + ρ2 with c updates composes c runs of [`AboveThreshold`] and c answers.
//! Each run ends with an update and costs 9/16 θ², with c 9/16 θ² <= ρ1. Answers have Gaussian
//! noise of variance c/(2 ρ2). Which comes next depends on earlier releases, and composition allows
//! that (Bun and Steinke 2016, lemma 1.7). The secret number of each run follows from the session's
//! key.
//!
//! An analyst may interleave sessions and other queries, and open some because of the answers of
//! others. The losses still add up (Lyu, "Composition theorems for interactive differential
//! privacy", 2022, for both measures; Haney et al., "Concurrent composition for interactive
//! differential privacy with adaptive privacy-loss parameters", 2023, for a limit on losses that
//! are chosen on the way).
//!
//! The compared quantity is |c(D) - h|, with h the number of rows that the hypothesis expects, as
//! an integer. The hypothesis is a function of released answers, and so is h. A changed row changes
//! c(D) by at most 1, and the compared quantity too. After c updates the session answers no more.
//!
//! All of this holds for sequential rounds, each compared with the state after the previous one,
//! and each released as it was compared. A caller that compares two queries with the same state may
//! release at most one result, chosen independently of both results
//! (`service/sessions.rs` of `bandana-queries`).

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::QueryError;
use super::cells::{CellSet, check_cells};
use super::counting::CountingMechanism;
use super::laplace::LaplaceMechanism;
use super::price::{ConcentratedLoss, Price, PureLoss, check_beta};
use super::threshold::{AboveThreshold, RunKey};

/// Maximum number of updates of a session.
pub const UPDATES_MAX: u32 = 100_000;

const NOTHING_TO_PROMISE: QueryError = QueryError::Session(
    "no error below the number of rows can be promised at this price; pay more, promise it for fewer \
     queries, or choose the updates and the threshold yourself",
);

/// The division of a session's budget. The plan is stored with the session, so a program that
/// divides budgets differently does not affect open sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPlan {
    #[serde(flatten)]
    noise: SessionNoise,
    /// Maximum number of updates.
    updates: u32,
    /// Error of the hypothesis, in rows before noise, from which a round is an update.
    threshold: u64,
    /// Certain minimum of that error in an update round, which determines the step length.
    gap: u64,
    /// Maximum error of a noisy answer in rows, which also enters the step length.
    slack: u64,
}

/// The noise of comparisons and answers. Variants have the names under which plans are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SessionNoise {
    /// Laplace noise. ε1, ε2 and ε3 in billionths: of the threshold, of comparisons and of answers.
    #[serde(rename = "nanos")]
    Laplace([u64; 3]),
    /// Runs of [`AboveThreshold`], and Gaussian answers.
    Runs {
        /// θ in billionths.
        step: u64,
        /// ρ2 in billionths.
        answers: u64,
    },
    /// No comparisons, and Laplace noise for this many billionths of ε.
    EachPure(u64),
    /// No comparisons, and Gaussian noise for this many billionths of ρ.
    EachConcentrated(u64),
}

/// The secret of a session: as secret as rows are.
#[derive(Clone, PartialEq, Eq)]
pub enum SessionSecret {
    /// The noise of the threshold of a session of ε. Others need none of it.
    Threshold(i64),
    /// The key of the runs of a session of ρ.
    Key(RunKey),
}

impl SessionSecret {
    /// Draws the secret of a session. Call it once per session.
    ///
    /// # Errors
    /// [`QueryError::Noise`].
    pub fn draw<R: Rng + ?Sized>(plan: &SessionPlan, rng: &mut R) -> Result<Self, QueryError> {
        Ok(match plan.noise {
            SessionNoise::Laplace(nanos) => {
                Self::Threshold(plan.laplace(nanos, 0)?.noise().sample(rng))
            }
            SessionNoise::Runs { .. } => Self::Key(RunKey::draw(rng)),
            SessionNoise::EachPure(_) | SessionNoise::EachConcentrated(_) => Self::Threshold(0),
        })
    }
}

impl std::fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionSecret(<secret>)")
    }
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
    /// The probability β of failure of the guarantee, above 0 and below 1.
    pub beta: f64,
}

impl Promise {
    fn check(self) -> Result<(), QueryError> {
        check_beta(self.beta)?;
        check_cells(self.cells as u128)?;
        if self.rows == 0 {
            return Err(QueryError::NoRows);
        }
        if self.queries == 0 {
            return Err(QueryError::NoQueries);
        }
        Ok(())
    }

    /// g for this number of updates: the error of the hypothesis that leads to fewer of them, plus
    /// half a row, since expected rows are rounded before they are compared.
    fn gap(self, updates: u32) -> u64 {
        let logs = libm::log(self.cells as f64);
        let share = (logs / (2.0 * f64::from(updates))).sqrt();
        whole(self.rows as f64 * share + 0.5).max(1)
    }
}

impl SessionPlan {
    /// The plan with the least guaranteed error α, and that α in rows. It is the plan of
    /// [`Self::promised_by_weights`] or of [`Self::promised_by_noise`].
    ///
    /// # Errors
    /// [`QueryError::Session`] when no α below the number of rows can be promised;
    /// [`QueryError::Beta`], [`QueryError::NoQueries`], [`QueryError::NoRows`],
    /// [`QueryError::EmptyUniverse`].
    pub fn promised(price: Price, promise: Promise) -> Result<(Self, f64), QueryError> {
        promise.check()?;
        let plans = [Self::promised_by_weights, Self::promised_by_noise];
        let plans = plans.map(|plan| plan(price, promise));
        match plans {
            [Ok(one), Ok(other)] => Ok(if one.1 <= other.1 { one } else { other }),
            [one, other] => one.or(other),
        }
    }

    /// The plan of multiplicative weights with the least guaranteed error α, and that α in rows.
    /// With probability 1 - β every answer is within α, and the updates suffice.
    ///
    /// Let three facts hold together with probability 1 - β. No answer in an update round is off by
    /// more than E3. No lazy answer is off by E2' or more beyond the threshold T. No update round
    /// has a hypothesis that is off by E2 or more below T. Then a lazy answer is within T + E2',
    /// and in an update round the error of the hypothesis is at least g = T - E2. If r is the
    /// indicator of the cells where the hypothesis is too large, its divergence from the data falls
    /// by at least η g/n - η²/8 with every step of length η, by Hoeffding's lemma; with η = 4 g/n
    /// that is 2 (g/n)². The divergence is at most ln |X| initially and stays above 0, so there are
    /// at most ln |X| n²/(2 g²) updates. (Dwork and Roth, theorem 4.14, have 4 ln |X|/α², from a
    /// less sharp step and bound.) So for each c the plan takes g = n sqrt(ln |X|/(2 c)), and of
    /// all c the one with the least α = g + E2 + E2'.
    ///
    /// For ε, E2 = E2' = the bounds of the noise of the threshold and of all comparisons, and answers
    /// get a quarter. For ρ, E2 and E2' are those of [`AboveThreshold::errors`], and answers get as
    /// much as makes E3 a quarter of g: then the noise does not reverse a step, and all else is for
    /// comparisons.
    ///
    /// # Errors
    /// As [`Self::promised`].
    pub fn promised_by_weights(price: Price, promise: Promise) -> Result<(Self, f64), QueryError> {
        promise.check()?;
        let mut best: Option<(Self, f64)> = None;
        let mut updates = 1_u32;
        while updates <= UPDATES_MAX && u64::from(updates) <= promise.queries {
            let planned = match price {
                Price::Pure(loss) => Self::laplace_for(loss, updates, promise),
                Price::Concentrated(loss) => Self::runs_for(loss, updates, promise),
            };
            if let Some((plan, alpha)) = planned
                && best.is_none_or(|(_, least)| alpha < least)
            {
                best = Some((plan, alpha));
            }
            updates += updates.div_ceil(50);
        }
        best.filter(|(_, alpha)| *alpha < promise.rows as f64).ok_or(NOTHING_TO_PROMISE)
    }

    /// The plan in which every round is an update, with noise on one answer for each query, and the
    /// bound of the errors in rows.
    ///
    /// # Errors
    /// As [`Self::promised`], also for more queries than a session has updates.
    pub fn promised_by_noise(price: Price, promise: Promise) -> Result<(Self, f64), QueryError> {
        promise.check()?;
        let updates = u32::try_from(promise.queries).ok().filter(|&most| most <= UPDATES_MAX);
        let updates = updates.ok_or(NOTHING_TO_PROMISE)?;
        let noise = match price {
            Price::Pure(loss) => SessionNoise::EachPure(loss.nanos()),
            Price::Concentrated(loss) => SessionNoise::EachConcentrated(loss.nanos()),
        };
        let plan = Self { noise, updates, threshold: 0, gap: 0, slack: 0 };
        let alpha = plan.answers()?.accuracy(promise.queries, promise.beta)? as f64;
        let is_below = alpha < promise.rows as f64;
        is_below.then_some((plan, alpha)).ok_or(NOTHING_TO_PROMISE)
    }

    fn laplace_for(loss: PureLoss, updates: u32, promise: Promise) -> Option<(Self, f64)> {
        let plan = Self::laplace_shared_out(loss, updates, 1).ok()?;
        let [under, over, slack] = plan.errors(promise.queries, promise.beta).ok()?;
        plan.with_errors(promise.gap(updates), under, over, slack)
    }

    fn runs_for(loss: ConcentratedLoss, updates: u32, promise: Promise) -> Option<(Self, f64)> {
        let Promise { queries, beta, .. } = promise;
        let gap = promise.gap(updates);
        let slack = gap / 4;
        // c answers of variance σ² are within sqrt(2 σ² ln(2 c/β)), and σ² = c/(2 ρ2).
        let (count, third) = (f64::from(updates), beta / 3.0);
        let square = (slack as f64).powi(2);
        let answers = whole(1e9 * count * libm::log(2.0 * count / third) / square).max(1);
        let compare = loss.nanos().checked_sub(answers).filter(|&nanos| nanos > 0)?;
        let runs = AboveThreshold::within(compare, updates).ok()?;
        let noise = SessionNoise::Runs { step: runs.step(), answers };
        let plan = Self { noise, updates, threshold: 1, gap, slack };
        let [under, over] = runs.errors(queries, updates, 2.0 * third).ok()?;
        plan.with_errors(gap, under, over, slack)
    }

    fn with_errors(self, gap: u64, under: u64, over: u64, slack: u64) -> Option<(Self, f64)> {
        // A step must reduce the error.
        if slack >= gap {
            return None;
        }
        let threshold = gap.checked_add(under)?;
        let alpha = threshold.checked_add(over)? as f64;
        Some((Self { threshold, gap, slack, ..self }, alpha))
    }

    /// A plan with this number of updates, one for each error of the hypothesis of about
    /// `threshold` rows or more. Accuracy is not guaranteed: if the updates don't suffice, the
    /// session ends. A quarter of the price is for answers.
    ///
    /// # Errors
    /// [`QueryError::Session`], [`QueryError::TooManyParts`].
    pub fn chosen(price: Price, updates: u32, threshold: u64) -> Result<Self, QueryError> {
        if updates == 0 || updates > UPDATES_MAX {
            return Err(QueryError::Session("a session has 1 to 100000 updates"));
        }
        if threshold == 0 || threshold >= 1 << 40 {
            return Err(QueryError::Session("a threshold is 1 to 2^40 - 1 rows"));
        }
        let plan = match price {
            Price::Pure(loss) => Self::laplace_shared_out(loss, updates, threshold)?,
            Price::Concentrated(loss) => {
                let answers = loss.nanos() / 4;
                let runs = AboveThreshold::within(loss.nanos() - answers, updates)?;
                if answers == 0 {
                    return Err(QueryError::TooManyParts { parts: updates.into() });
                }
                let noise = SessionNoise::Runs { step: runs.step(), answers };
                Self { noise, updates, threshold, gap: 1, slack: 0 }
            }
        };
        let typical = plan.answers()?.accuracy(1, 0.5)?;
        Ok(Self { gap: (threshold / 2).max(1), slack: typical, ..plan })
    }

    /// Divides a budget of ε: a quarter for answers, and the rest for threshold and comparisons
    /// as 1 to (2 c)^(2/3), which minimises the variance of their difference (Lyu, Su and Li 2017,
    /// section 4.3).
    fn laplace_shared_out(
        loss: PureLoss,
        updates: u32,
        threshold: u64,
    ) -> Result<Self, QueryError> {
        let answers = loss.part(1, 4)?.nanos();
        let rest = loss.nanos() - answers;
        let ratio = 1.0 + libm::cbrt(4.0 * f64::from(updates) * f64::from(updates));
        let first = whole((rest as f64 / ratio).floor());
        let nanos = [first, rest.saturating_sub(first), answers];
        if nanos.contains(&0) {
            return Err(QueryError::TooManyParts { parts: u64::from(updates) });
        }
        let noise = SessionNoise::Laplace(nanos);
        Ok(Self { noise, updates, threshold, gap: 1, slack: 0 })
    }

    /// The mechanism of one of the three parts of a session of ε.
    fn laplace(&self, nanos: [u64; 3], part: usize) -> Result<LaplaceMechanism, QueryError> {
        let updates = u64::from(self.updates);
        let sensitivity = [1, 2 * updates, updates];
        let nanos = nanos.get(part).copied().unwrap_or(0);
        let sensitivity = sensitivity.get(part).copied().unwrap_or(0);
        LaplaceMechanism::new(sensitivity, PureLoss::of_nanos(nanos))
    }

    /// The mechanism of the answers in update rounds.
    fn answers(&self) -> Result<CountingMechanism, QueryError> {
        let price = match self.noise {
            SessionNoise::Laplace([.., nanos]) | SessionNoise::EachPure(nanos) => {
                Price::Pure(PureLoss::of_nanos(nanos))
            }
            SessionNoise::Runs { answers: nanos, .. } | SessionNoise::EachConcentrated(nanos) => {
                Price::Concentrated(ConcentratedLoss::of_nanos(nanos))
            }
        };
        CountingMechanism::new(self.updates.into(), price)
    }

    /// E2, E2' and E3, for a probability of failure of a third of `beta` each.
    fn errors(&self, queries: u64, beta: f64) -> Result<[u64; 3], QueryError> {
        let third = check_beta(beta)? / 3.0;
        let answers = |beta| self.answers()?.accuracy(self.updates.into(), beta);
        Ok(match self.noise {
            SessionNoise::Laplace(nanos) => {
                let threshold = self.laplace(nanos, 0)?.accuracy(1, third)?;
                let comparisons = self.laplace(nanos, 1)?.accuracy(queries, third)?;
                let both = threshold.saturating_add(comparisons);
                [both, both, answers(third)?]
            }
            SessionNoise::Runs { step, .. } => {
                let runs = AboveThreshold::of_step(step);
                let [under, over] = runs.errors(queries, self.updates, 2.0 * third)?;
                [under, over, answers(third)?]
            }
            SessionNoise::EachPure(_) | SessionNoise::EachConcentrated(_) => [0, 0, answers(beta)?],
        })
    }

    /// A bound on the errors of `queries` answers in rows, with probability 1 - `beta`, as long as
    /// the session lasts.
    ///
    /// # Errors
    /// [`QueryError::Beta`], [`QueryError::NoQueries`].
    pub fn accuracy(&self, queries: u64, beta: f64) -> Result<f64, QueryError> {
        let [_, over, answers] = self.errors(queries, beta)?;
        Ok(self.threshold.saturating_add(over).max(answers) as f64)
    }

    /// The privacy loss of the session, in billionths of its price's measure. It never exceeds the
    /// price.
    pub fn loss_nanos(&self) -> u64 {
        match self.noise {
            SessionNoise::Laplace(nanos) => nanos.iter().sum(),
            SessionNoise::Runs { step, answers } => {
                AboveThreshold::of_step(step).rho_nanos(self.updates).saturating_add(answers)
            }
            SessionNoise::EachPure(nanos) | SessionNoise::EachConcentrated(nanos) => nanos,
        }
    }

    /// The maximum number of updates.
    pub fn updates(&self) -> u32 {
        self.updates
    }

    /// The error of the hypothesis, in rows before noise, from which a round is an update. With 0,
    /// every round is one.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Whether every round is an update, so that there is no hypothesis to correct.
    fn is_noise_alone(&self) -> bool {
        matches!(self.noise, SessionNoise::EachPure(_) | SessionNoise::EachConcentrated(_))
    }
}

/// The answer to a query, by the kind of its round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Round {
    /// From the hypothesis: an expected number of rows, not an integer.
    Lazy {
        /// The answer, in rows.
        answer: f64,
    },
    /// With noise. [`MultiplicativeWeights::update`] must correct the hypothesis before the answer
    /// leaves.
    Update {
        /// The answer, in rows.
        answer: i64,
    },
}

/// A session: a plan, the hypothesis, and its secret.
#[derive(Clone)]
pub struct MultiplicativeWeights {
    plan: SessionPlan,
    rows: u64,
    hypothesis: Vec<f64>,
    used: u32,
    secret: SessionSecret,
}

impl std::fmt::Debug for MultiplicativeWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { plan, rows, used, .. } = self;
        let mut shown = f.debug_struct("MultiplicativeWeights");
        shown.field("plan", plan).field("rows", rows).field("used", used).finish_non_exhaustive()
    }
}

impl MultiplicativeWeights {
    /// A session before its first round: the hypothesis is uniform.
    ///
    /// # Errors
    /// [`QueryError::EmptyUniverse`], [`QueryError::TooManyCells`],
    /// [`QueryError::NoRows`], [`QueryError::Session`] for the secret of another plan.
    pub fn new(
        plan: SessionPlan,
        rows: u64,
        cells: usize,
        secret: SessionSecret,
    ) -> Result<Self, QueryError> {
        let cells = check_cells(cells as u128)?;
        if rows == 0 {
            return Err(QueryError::NoRows);
        }
        let needs_key = matches!(plan.noise, SessionNoise::Runs { .. });
        if needs_key != matches!(secret, SessionSecret::Key(_)) {
            return Err(QueryError::Session("the session's secret is not one of its plan"));
        }
        let hypothesis = vec![1.0 / cells as f64; cells];
        Ok(Self { plan, rows, hypothesis, used: 0, secret })
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
        if !self.is_above(gap, rng)? {
            return Ok(Round::Lazy { answer });
        }
        let released = self.plan.answers()?.release(&[truth], rng);
        let answer = released.first().copied().unwrap_or_default();
        Ok(Round::Update { answer })
    }

    /// Compares the error of the hypothesis with the threshold, in noise.
    fn is_above<R: Rng + ?Sized>(&self, gap: u64, rng: &mut R) -> Result<bool, QueryError> {
        let excess = i128::from(gap) - i128::from(self.plan.threshold);
        match (self.plan.noise, &self.secret) {
            (SessionNoise::Laplace(nanos), SessionSecret::Threshold(threshold)) => {
                let noise = self.plan.laplace(nanos, 1)?.noise().sample(rng);
                Ok(excess + i128::from(noise) >= i128::from(*threshold))
            }
            (SessionNoise::Runs { step, .. }, SessionSecret::Key(key)) => {
                let distance = i64::try_from(excess).unwrap_or(i64::MAX);
                Ok(AboveThreshold::of_step(step).is_above(key, self.used, distance, rng))
            }
            _ => Ok(true),
        }
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
        if self.plan.is_noise_alone() {
            return Ok(());
        }
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
