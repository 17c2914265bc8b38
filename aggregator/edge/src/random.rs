//! Random words of each thread, from a generator keyed by the operating system.
//!
//! For what many calls need and nobody's privacy depends on: draws of arms, and ids of calls. A
//! system call for each word would cost more than the rest of such a call.

use std::cell::RefCell;

use rand::rngs::SysRng;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

/// Words drawn under one key. A copy of the machine repeats words until the next key.
const WORDS_PER_KEY: u32 = 1 << 16;

/// The generator of a thread, and the number of words that its key is still good for.
struct Words {
    generator: ChaCha12Rng,
    left: u32,
}

thread_local! {
    static WORDS: RefCell<Option<Words>> = const { RefCell::new(None) };
}

/// A uniform word.
///
/// # Errors
/// When the operating system's random source fails.
pub fn word() -> Result<u64, rand::rngs::SysError> {
    WORDS.with_borrow_mut(|words| {
        let words = match words {
            Some(words) if words.left > 0 => words,
            spent => {
                let generator = ChaCha12Rng::try_from_rng(&mut SysRng)?;
                spent.insert(Words { generator, left: WORDS_PER_KEY })
            }
        };
        words.left -= 1;
        Ok(words.generator.next_u64())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_word_comes_twice_on_any_thread_or_under_any_key() {
        let draw = || (0..WORDS_PER_KEY + 1000).map(|_| word().unwrap()).collect::<Vec<u64>>();
        let other = std::thread::spawn(draw).join().unwrap();
        let all: Vec<u64> = draw().into_iter().chain(other).collect();
        let distinct: HashSet<u64> = all.iter().copied().collect();
        // Of 133,072 uniform words two are equal with a probability below 1e-9.
        assert_eq!(distinct.len(), all.len());
    }
}
