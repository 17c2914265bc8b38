//! The functions that privacy rests on, each under a name of its own, for the proofs about what the compiler
//! emits.
//!
//! Each function calls one function of `bandana_shared` and does nothing else. The types are those of
//! `bandana_shared`, which the compiler passes as plain integers. So a proof can say "for every integer",
//! also for one that no constructor of the type would let through.
#![expect(unsafe_code, reason = "names that the compiler must not change")]

use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::channel::{Floor, Growth, KaryChannel, Threshold};
use bandana_shared::curve::{Curvature, Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::rewards::RewardRange;

/// What a function gives that refuses its input. No word is as large.
const REFUSED: u128 = 1 << 64;

/// A source of at most two words, which counts how many it has given.
struct Words {
    /// What it gives first and second.
    supply: [u64; 2],
    /// The number of words that the source has. Asking for one more is an error.
    stock: u8,
    /// The number of words that it has given.
    taken: u8,
}

/// The source of words has ended.
#[derive(Clone, Copy)]
struct Ended;

impl Words {
    fn next(&mut self) -> Result<u64, Ended> {
        if self.taken >= self.stock {
            return Err(Ended);
        }
        let word = match self.taken {
            0 => self.supply[0],
            1 => self.supply[1],
            _ => return Err(Ended),
        };
        self.taken += 1;
        Ok(word)
    }
}

/// What a draw has come to, as one number: the symbol, 256 times the number of words taken, and 65536 if
/// there is no symbol since the words have ended.
fn outcome(symbol: Result<u8, Ended>, words: &Words) -> u32 {
    let taken = u32::from(words.taken) << 8;
    match symbol {
        Ok(symbol) => taken | u32::from(symbol),
        Err(Ended) => taken | 1 << 16,
    }
}

/// `2^64 - 2 t0`.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_floor_width(floor: Floor) -> u64 {
    floor.width()
}

/// The threshold of a reward, as one number.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_threshold(floor: Floor, level: Level) -> u128 {
    floor.threshold(level).to_u128()
}

/// The bit for two words.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_bit(threshold: Threshold, high: u64, low: u64) -> bool {
    threshold.bit(high, low)
}

/// The bit, drawn word by word from at most `stock` words.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_bit_draw(
    threshold: Threshold,
    first: u64,
    second: u64,
    stock: u8,
) -> u32 {
    let mut words = Words { supply: [first, second], stock, taken: 0 };
    let bit = threshold.draw(|| words.next());
    outcome(bit.map(u8::from), &words)
}

/// A whole report: the threshold of a reward, and the bit drawn against it.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_bit_report(
    floor: Floor,
    level: Level,
    first: u64,
    second: u64,
    stock: u8,
) -> u32 {
    let mut words = Words { supply: [first, second], stock, taken: 0 };
    let bit = floor.threshold(level).draw(|| words.next());
    outcome(bit.map(u8::from), &words)
}

/// The number of words that lead to the true symbol.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_kary_truth(channel: KaryChannel) -> u64 {
    channel.truth()
}

/// The level near a reward.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_kary_nearby(channel: KaryChannel, reward: Level, word: u64) -> u8 {
    channel.nearby_symbol(reward, word).get()
}

/// The symbol of a category.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_kary_category(channel: KaryChannel, reward: f64) -> u8 {
    channel.category(reward).get()
}

/// The symbol that is sent for a true symbol.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_kary_answer(channel: KaryChannel, truth: Symbol, word: u64) -> u8 {
    channel.answer(truth, word).get()
}

/// A whole report of k-ary randomized response.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_kary_draw(
    channel: KaryChannel,
    reward: Level,
    first: u64,
    second: u64,
    stock: u8,
) -> u32 {
    let mut words = Words { supply: [first, second], stock, taken: 0 };
    let symbol = channel.draw(reward, || words.next());
    outcome(symbol.map(Symbol::get), &words)
}

/// The level of a number, or `REFUSED` for a number outside 0 to 1.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_level(x: f64) -> u128 {
    Level::from_unit(x).map_or(REFUSED, |level| u128::from(level.get()))
}

/// The level of a reward in a range, or `REFUSED` for a reward outside of it.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_range_level(range: RewardRange, reward: f64) -> u128 {
    range.level(reward).map_or(REFUSED, |level| u128::from(level.get()))
}

/// One minus a level.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_level_mirrored(level: Level) -> u64 {
    level.mirrored().get()
}

/// The curved level of the linear mechanism.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_curve_linear(epsilon: Epsilon, level: Level) -> u64 {
    Curve::new(Mechanism::Linear, epsilon).apply(level).get()
}

/// The curved level of a quadratic mechanism, or `REFUSED` for a curvature that is.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_curve_quadratic(units: i32, epsilon: Epsilon, level: Level) -> u128 {
    let Ok(curvature) = Curvature::from_units(units) else { return REFUSED };
    Curve::new(Mechanism::Quadratic(curvature), epsilon).apply(level).get().into()
}

/// The curved level of the exponential mechanism.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_curve_exponential(epsilon: Epsilon, level: Level) -> u64 {
    Curve::new(Mechanism::Exponential, epsilon).apply(level).get()
}

/// Whether a floor is accepted: the floor, or `REFUSED`.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_floor_verify(floor: u64, epsilon: Epsilon) -> u128 {
    Floor::verify(floor, epsilon).map_or(REFUSED, |floor| u128::from(floor.get()))
}

/// Whether a share is accepted: the share, or `REFUSED`.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_kary_verify(alphabet: Alphabet, share: u64, epsilon: Epsilon) -> u128 {
    let verified = KaryChannel::verify(alphabet, share, epsilon);
    verified.map_or(REFUSED, |channel| u128::from(channel.share()))
}

/// One step of the series for `e^ε - 1`.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_series_step(rounded: u64, sum: u128, n: u8) -> u128 {
    Growth::step(rounded, sum, n)
}

/// The lower bound of `e^ε - 1`: its mantissa in the upper 64 bits, its shift in the lower.
#[unsafe(no_mangle)]
pub extern "Rust" fn proof_growth(epsilon: Epsilon) -> u128 {
    let growth = Growth::below(epsilon);
    u128::from(growth.mantissa()) << 64 | u128::from(growth.shift())
}
