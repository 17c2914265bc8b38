//! k-ary randomized response: floors, levels, answers and estimates.

use anyhow::{Context as _, ensure};
use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::channel::{Channel, KaryChannel};
use bandana_shared::confidence::NormalMixture;
use bandana_shared::curve::Level;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;
use serde::Serialize;

use super::{Ends, Real, word};

#[derive(Serialize)]
pub(super) struct KaryVector {
    epsilon: Real,
    symbols: u8,
    floor: String,
    certified_epsilon: Real,
    must_refuse: Vec<String>,
    /// True symbols of scaled rewards.
    levels: Vec<LevelVector>,
    /// The symbols sent for true symbols.
    answers: Vec<AnswerVector>,
    estimate: EstimateVector,
}

#[derive(Serialize)]
struct LevelVector {
    /// In units of 2^-53.
    level: String,
    u: String,
    symbol: u8,
}

#[derive(Serialize)]
struct AnswerVector {
    symbol: u8,
    u: String,
    sent: u8,
}

#[derive(Serialize)]
struct EstimateVector {
    counts: Vec<String>,
    debiased_mean: Real,
    standard_error: Real,
    alpha: Real,
    normal_mixture_mean: Ends,
    frequencies: Vec<Real>,
    normal_mixture_frequencies: Vec<Ends>,
}

pub(super) fn vectors() -> anyhow::Result<Vec<KaryVector>> {
    let examples =
        [(Epsilon::MIN, 2), (0.5, 3), (1.0, 4), (2.0, 5), (5.0, 6), (5.0, 16), (Epsilon::MAX, 7)];
    examples.into_iter().map(|(nats, symbols)| vector(nats, symbols)).collect()
}

fn vector(nats: f64, symbols: u32) -> anyhow::Result<KaryVector> {
    let (epsilon, alphabet) = (Epsilon::new(nats)?, Alphabet::new(symbols)?);
    let channel = KaryChannel::for_epsilon(alphabet, epsilon);
    let share = channel.share();
    let must_refuse = [0, share - (share >> 40).max(1), u64::MAX / u64::from(symbols) + 1];
    let accepted = |&floor: &u64| KaryChannel::verify(alphabet, floor, epsilon).is_ok();
    ensure!(accepted(&share) && !must_refuse.iter().any(accepted), "epsilon {nats}");
    Ok(KaryVector {
        epsilon: nats.into(),
        symbols: alphabet.len(),
        floor: share.to_string(),
        certified_epsilon: channel.certified_epsilon().into(),
        must_refuse: must_refuse.iter().map(u64::to_string).collect(),
        levels: levels(channel)?,
        answers: answers(channel),
        estimate: estimate(channel)?,
    })
}

fn levels(channel: KaryChannel) -> anyhow::Result<Vec<LevelVector>> {
    let mut vectors = Vec::new();
    for reward in [0.0, 1e-16, 0.1, 0.25, 0.5, 2.0 / 3.0, 0.9, 1.0] {
        let level = Level::from_unit(reward)?;
        let steps = level.get() * u64::from(channel.alphabet().last().get());
        // Around the word from which on the lower level is drawn.
        let tie = (steps & ((1 << 53) - 1)) << 11;
        for u in [0, tie.saturating_sub(1), tie, word(level.get()), u64::MAX] {
            let symbol = channel.nearby_symbol(level, u).get();
            vectors.push(LevelVector { level: level.get().to_string(), u: u.to_string(), symbol });
        }
    }
    Ok(vectors)
}

fn answers(channel: KaryChannel) -> Vec<AnswerVector> {
    let share = channel.share();
    let ties = (1..channel.alphabet().len()).flat_map(|multiple| {
        let tie = u64::from(multiple) * share;
        [tie - 1, tie]
    });
    let words: Vec<u64> = [0, word(share), u64::MAX].into_iter().chain(ties).collect();
    let of = |truth: Symbol| {
        let answer = move |u: &u64| AnswerVector {
            symbol: truth.get(),
            u: u.to_string(),
            sent: channel.answer(truth, *u).get(),
        };
        words.iter().map(answer).collect::<Vec<_>>()
    };
    channel.alphabet().symbols().flat_map(of).collect()
}

fn estimate(channel: KaryChannel) -> anyhow::Result<EstimateVector> {
    let counts = channel.alphabet().symbols().map(|symbol| {
        let count = word(7000 + u64::from(symbol.get())) % 1000;
        (symbol, count)
    });
    let reports = counts.clone().map(|(_, count)| count).sum();
    let tally = Tally::with_symbols(reports, counts)?;
    let through = Channel::from(channel);
    let sequence = NormalMixture::new(ErrorLevel::FIVE_PERCENT);
    let none = "a tally without reports";
    let frequency = |symbol| channel.frequency(&tally, symbol).map(Real::from).context(none);
    let symbols = || channel.alphabet().symbols();
    Ok(EstimateVector {
        counts: tally.counts(channel.alphabet()).map(|count| count.to_string()).collect(),
        debiased_mean: through.debiased_mean(&tally).context(none)?.into(),
        standard_error: through.standard_error(&tally).context(none)?.into(),
        alpha: ErrorLevel::FIVE_PERCENT.get().into(),
        normal_mixture_mean: sequence.mean_through(through, &tally).into(),
        frequencies: symbols().map(frequency).collect::<anyhow::Result<_>>()?,
        normal_mixture_frequencies: symbols()
            .map(|symbol| sequence.frequency(channel, &tally, symbol).into())
            .collect(),
    })
}
