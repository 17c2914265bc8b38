//! k-ary randomized response and levels: its loss, from integers, and its expectation.

use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::channel::{Channel, Floor, FloorError, KaryChannel};
use bandana_shared::confidence::NormalMixture;
use bandana_shared::curve::Level;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::{debiased_mean, standard_error};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;
use rand::{Rng as _, RngExt as _};

use crate::channel::cases::{epsilons, levels, random};
use crate::channel::exact::{Exact, exp_above, exp_below, power_of_two, whole};

fn alphabets() -> impl Iterator<Item = Alphabet> {
    (Alphabet::MIN..=Alphabet::MAX).map(|symbols| Alphabet::new(symbols).unwrap())
}

/// The number of the `2^64` words that lead from each true symbol (the row) to each sent symbol,
/// found by testing both ends of every run of words with one answer. The answer is the number of
/// multiples of t that a word reaches, so it changes nowhere else.
fn words(channel: KaryChannel) -> Vec<Vec<u128>> {
    let (share, others) = (channel.share(), channel.alphabet().len() - 1);
    let row = |truth: Symbol| {
        let mut counts = vec![0_u128; usize::from(channel.alphabet().len())];
        for number in 0..=others {
            let first = u64::from(number) * share;
            let last = if number == others { u64::MAX } else { first + (share - 1) };
            let answers =
                [first, first + (last - first) / 3, last].map(|word| channel.answer(truth, word));
            assert_eq!(answers, [answers[0]; 3], "{channel:?} {truth:?} {number}");
            counts[usize::from(answers[0].get())] += u128::from(last - first) + 1;
        }
        counts
    };
    channel.alphabet().symbols().map(row).collect()
}

#[test]
fn no_pair_of_truths_and_no_symbol_exceeds_epsilon() {
    for alphabet in alphabets() {
        for epsilon in epsilons(30) {
            let channel = KaryChannel::for_epsilon(alphabet, epsilon);
            let (least, most) = (u128::from(channel.share()), u128::from(channel.truth()));
            let table = words(channel);
            for (truth, row) in table.iter().enumerate() {
                assert_eq!(row.iter().sum::<u128>(), 1 << 64);
                let expected = |symbol: usize| if symbol == truth { most } else { least };
                assert!((0..row.len()).all(|symbol| row[symbol] == expected(symbol)));
            }
            // The worst pair for every symbol is the symbol itself against any other.
            assert!(whole(most) <= exp_below(epsilon.get()) * whole(least), "{channel:?}");
            assert!(channel.certified_epsilon() <= epsilon.get() * (1.0 + 1e-12));
            assert!(exp_above(channel.certified_epsilon()) * whole(least) >= whole(most));
            // The budget is used: with 1.0001 epsilon less it would exceed.
            let smaller = exp_below(epsilon.get() * 0.9999);
            let coarse = channel.share() < 1 << 20;
            assert!(coarse || whole(most) > smaller * whole(least), "{channel:?}");
            assert_eq!(KaryChannel::verify(alphabet, channel.share(), epsilon), Ok(channel));
        }
    }
}

#[test]
fn no_pair_of_rewards_and_no_symbol_exceeds_epsilon() {
    let levels = levels(10);
    for alphabet in [3, 6, 16].map(|symbols| Alphabet::new(symbols).unwrap()) {
        for epsilon in [Epsilon::MIN, 0.3, 2.0, 5.0, Epsilon::MAX].map(|e| Epsilon::new(e).unwrap())
        {
            let channel = KaryChannel::for_epsilon(alphabet, epsilon);
            let table = words(channel);
            let last = u64::from(alphabet.last().get());
            let (mut least, mut greatest) = (vec![u128::MAX; 16], vec![0_u128; 16]);
            for level in &levels {
                // In units of 2^-117, exactly: the number of the 2^53 words for the level above.
                let steps = level.get() * last;
                let (below, fraction) = (steps >> 53, steps & ((1 << 53) - 1));
                let place = |number: u64| Symbol::new(u8::try_from(number).unwrap()).unwrap();
                assert_eq!(channel.nearby_symbol(*level, u64::MAX), place(below));
                assert_eq!(channel.nearby_symbol(*level, fraction << 11), place(below));
                if fraction > 0 {
                    let word = (fraction << 11) - 1;
                    assert_eq!(channel.nearby_symbol(*level, word), place(below + 1));
                    assert_eq!(channel.nearby_symbol(*level, 0), place(below + 1));
                }
                let row = |number: u64| &table[usize::try_from(number).unwrap()];
                for symbol in 0..usize::from(alphabet.len()) {
                    let above = row((below + 1).min(last))[symbol];
                    let probability = u128::from((1 << 53) - fraction) * row(below)[symbol]
                        + u128::from(fraction) * above;
                    least[symbol] = least[symbol].min(probability);
                    greatest[symbol] = greatest[symbol].max(probability);
                }
            }
            let bound = exp_below(epsilon.get());
            for symbol in 0..usize::from(alphabet.len()) {
                let (least, greatest) = (whole(least[symbol]), whole(greatest[symbol]));
                assert!(greatest <= &bound * &least, "{channel:?} {symbol}");
            }
        }
    }
}

/// The expectation of 2s - (k - 1) for a symbol s that is sent, times 2^117.
fn doubled_deviation(channel: KaryChannel, level: Level) -> Exact {
    let last = i128::from(channel.alphabet().last().get());
    let table = words(channel);
    let steps = level.get() * u64::from(channel.alphabet().last().get());
    let (below, fraction) = (usize::try_from(steps >> 53).unwrap(), steps & ((1 << 53) - 1));
    let mut sum = whole(0);
    for (truth, weight) in [(below, (1_u64 << 53) - fraction), (below + 1, fraction)] {
        let Some(row) = table.get(truth) else { continue };
        for (symbol, words) in (0_i128..).zip(row) {
            let deviation = 2 * symbol - last;
            let size = whole(deviation.unsigned_abs()) * whole(*words) * whole(weight.into());
            sum = if deviation < 0 { sum - size } else { sum + size };
        }
    }
    sum
}

#[test]
fn debiased_levels_expect_the_reward_exactly() {
    // 1/2 + (E s/(k-1) - 1/2)/(1 - k t/2^64) is G/2^53: with all denominators multiplied
    // out, E(2s - (k-1)) 2^64 is (2 G/2^53 - 1) (k-1) (2^64 - k t).
    for alphabet in alphabets() {
        for epsilon in [Epsilon::MIN, 1.0, 5.0, Epsilon::MAX].map(|e| Epsilon::new(e).unwrap()) {
            let channel = KaryChannel::for_epsilon(alphabet, epsilon);
            for level in levels(6) {
                let found = doubled_deviation(channel, level);
                let reward = whole((2 * level.get()).into()) - power_of_two(53);
                let scale = whole(alphabet.last().get().into()) * whole(channel.width().into());
                assert_eq!(found, reward * scale, "{channel:?} {level:?}");
            }
        }
    }
}

#[test]
fn drawn_symbols_have_the_stated_law() {
    // Six standard deviations: missed with a probability of 2e-9 for each of the 72 counts
    // and 12 means, and never with this seed.
    const DRAWS: u32 = 100_000;
    let alphabet = Alphabet::new(6).unwrap();
    let mut random = random(11);
    for nats in [0.5, 2.0, 5.0] {
        let kary = KaryChannel::for_epsilon(alphabet, Epsilon::new(nats).unwrap());
        let channel = Channel::from(kary);
        for reward in [0.0, 0.17, 0.5, 1.0] {
            let level = Level::from_unit(reward).unwrap();
            let mut tally = Tally::EMPTY;
            for _ in 0..DRAWS {
                let symbol = kary.draw(level, || Ok::<_, ()>(random.next_u64())).unwrap();
                tally += Tally::of_symbol(symbol);
            }
            let error = channel.standard_error(&tally).unwrap();
            let mean = channel.debiased_mean(&tally).unwrap();
            assert!((mean - reward).abs() < 6.0 * error, "{nats} {reward}: {mean} +- {error}");
            let (below, part) = ((reward * 5.0).floor(), (reward * 5.0).fract());
            for symbol in alphabet.symbols() {
                let truth = match f64::from(symbol.get()) - below {
                    0.0 => 1.0 - part,
                    1.0 => part,
                    _ => 0.0,
                };
                let found = kary.frequency(&tally, symbol).unwrap();
                let error = (0.25 / f64::from(DRAWS)).sqrt() / kary.contrast();
                assert!((found - truth).abs() < 6.0 * error, "{nats} {reward} {symbol:?}");
            }
        }
    }
}

#[test]
fn two_symbols_are_a_bit() {
    let mut random = random(12);
    for epsilon in epsilons(20) {
        let floor = Floor::for_epsilon(epsilon);
        let kary = KaryChannel::for_epsilon(Alphabet::BITS, epsilon);
        assert_eq!((kary.share(), kary.width()), (floor.get(), floor.width()));
        let (bit, both) = (Channel::from(floor), Channel::from(kary));
        assert_eq!(bit.lowest_private_mean(), both.lowest_private_mean());
        let odds = (bit.highest_log_odds(), both.highest_log_odds());
        assert!((odds.0 - odds.1).abs() < 1e-9 * odds.0, "{epsilon:?} {odds:?}");
        let reports = random.random_range(1..1_000_000);
        let tally = Tally::new(reports, random.random_range(0..=reports)).unwrap();
        let near = |a: f64, b: f64| {
            let scale = a.abs().max(1.0 / floor.contrast());
            assert!((a - b).abs() < 1e-9 * scale, "{epsilon:?} {tally:?}: {a} {b}");
        };
        near(debiased_mean(floor, tally).unwrap(), both.debiased_mean(&tally).unwrap());
        let share = kary.frequency(&tally, true.into()).unwrap();
        near(debiased_mean(floor, tally).unwrap(), share);
        let sequence = NormalMixture::new(ErrorLevel::FIVE_PERCENT);
        let (one, other) = (sequence.mean(floor, tally), sequence.mean_through(both, &tally));
        near(one.low(), other.low());
        near(one.high(), sequence.frequency(kary, &tally, true.into()).high());
        let error = standard_error(floor, tally).unwrap();
        assert!(both.standard_error(&tally).unwrap() <= error * (1.0 + 1e-9));
    }
    assert_eq!(
        Channel::from(KaryChannel::for_epsilon(Alphabet::BITS, Epsilon::new(1.0).unwrap()))
            .debiased_mean(&Tally::EMPTY),
        None
    );
}

#[test]
fn shares_out_of_range_or_too_small_are_refused() {
    let alphabet = Alphabet::new(5).unwrap();
    let epsilon = Epsilon::new(1.0).unwrap();
    let least = KaryChannel::for_epsilon(alphabet, epsilon).share();
    let verify = |share| KaryChannel::verify(alphabet, share, epsilon);
    for floor in [0, u64::MAX / 5 + 1, u64::MAX] {
        assert_eq!(verify(floor), Err(FloorError::OutOfRange { floor, symbols: 5 }));
    }
    // The smallest share has a guard of 2^-48; beyond that it loses too much.
    let low = least - (least >> 40);
    assert!(matches!(verify(low), Err(FloorError::LossTooLarge { .. })));
    assert!(verify(u64::MAX / 5).unwrap().contrast() > 0.0);
}
