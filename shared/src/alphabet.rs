//! Alphabets: the possible symbols of a report.

use thiserror::Error;

/// The number of symbols of a report, [`Self::MIN`] to [`Self::MAX`].
///
/// ```
/// use bandana_shared::alphabet::Alphabet;
/// assert_eq!(Alphabet::new(6)?.bits_per_symbol(), 4);
/// assert!(Alphabet::new(17).is_err());
/// # Ok::<(), bandana_shared::alphabet::AlphabetError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alphabet(u8);

impl Alphabet {
    /// Smallest number of symbols: 2, those of a bit.
    pub const MIN: u32 = 2;
    /// Largest number of symbols, 16: the largest upload then holds as many symbols as bits. More
    /// levels than these gain nothing.
    pub const MAX: u32 = 16;
    /// The alphabet of a bit: 0 and 1.
    pub const BITS: Self = Self(2);

    /// Checks the range.
    ///
    /// # Errors
    /// [`AlphabetError`] unless `symbols` is in [`Self::MIN`]..=[`Self::MAX`].
    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
    pub fn new(symbols: u32) -> Result<Self, AlphabetError> {
        if (Self::MIN..=Self::MAX).contains(&symbols) {
            Ok(Self(symbols as u8))
        } else {
            Err(AlphabetError { symbols })
        }
    }

    /// Number of symbols.
    pub fn len(self) -> u8 {
        self.0
    }

    /// Always false.
    pub fn is_empty(self) -> bool {
        false
    }

    /// The last symbol, one less than the number of symbols.
    pub fn last(self) -> Symbol {
        Symbol(self.0 - 1)
    }

    /// All symbols, from 0 on.
    pub fn symbols(self) -> impl ExactSizeIterator<Item = Symbol> + Clone {
        (0..self.0).map(Symbol)
    }

    /// Whether the symbol belongs to the alphabet.
    pub fn contains(self, symbol: Symbol) -> bool {
        symbol.0 < self.0
    }

    /// Bits of a symbol in an upload, so that none crosses a byte: 1 for up to 2 symbols, 2 for up
    /// to 4, otherwise 4.
    pub fn bits_per_symbol(self) -> usize {
        match self.0 {
            0..=2 => 1,
            3..=4 => 2,
            _ => 4,
        }
    }

    /// The position of a symbol between the first one, 0, and the last one, 1.
    pub fn position(self, symbol: Symbol) -> f64 {
        f64::from(symbol.0) / f64::from(self.0 - 1)
    }
}

/// An invalid number of symbols.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("there are {symbols} symbols; k-ary randomized response takes 2 to 16")]
pub struct AlphabetError {
    symbols: u32,
}

crate::debug_says!(AlphabetError);

/// The content of a report: 0 or 1, or the number of a level or a category, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u8);

impl Symbol {
    /// The symbol with this number, or `None` from [`Alphabet::MAX`] on.
    pub fn new(number: u8) -> Option<Self> {
        (u32::from(number) < Alphabet::MAX).then_some(Self(number))
    }

    /// The symbol of a number that is known to be valid.
    pub(crate) fn of_checked(number: u8) -> Self {
        Self(number)
    }

    /// The number of the symbol.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl From<bool> for Symbol {
    fn from(bit: bool) -> Self {
        Self(u8::from(bit))
    }
}
