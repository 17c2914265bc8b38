//! Sets of cells of a universe: the common form of predicates in all mechanisms.

use super::QueryError;

/// Maximum number of cells of a universe with a histogram: 32 MiB.
pub const CELLS_MAX: usize = 1 << 22;

/// A predicate over a universe, as the set of cells that satisfy it.
///
/// ```
/// use bandana_mechanisms::queries::cells::CellSet;
/// let even = CellSet::of(6, |cell| cell % 2 == 0)?;
/// assert_eq!(even.count(&[1, 10, 2, 20, 3, 30]), Ok(6));
/// assert!(even.count(&[1, 2]).is_err());
/// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellSet {
    cells: usize,
    words: Vec<u64>,
}

impl CellSet {
    /// The cells of `0..cells` that satisfy `has`.
    ///
    /// # Errors
    /// [`QueryError::EmptyUniverse`], [`QueryError::TooManyCells`].
    pub fn of(cells: usize, has: impl Fn(usize) -> bool) -> Result<Self, QueryError> {
        check_cells(cells as u128)?;
        let mut words = vec![0_u64; cells.div_ceil(64)];
        for cell in (0..cells).filter(|&cell| has(cell)) {
            if let Some(word) = words.get_mut(cell / 64) {
                *word |= 1 << (cell % 64);
            }
        }
        Ok(Self { cells, words })
    }

    /// The number of cells of the universe.
    pub fn universe(&self) -> usize {
        self.cells
    }

    /// Whether a cell satisfies the predicate.
    pub fn contains(&self, cell: usize) -> bool {
        self.words.get(cell / 64).is_some_and(|word| word >> (cell % 64) & 1 == 1)
    }

    /// The number of rows of a histogram that satisfy the predicate.
    ///
    /// # Errors
    /// [`QueryError::OtherUniverse`].
    pub fn count(&self, histogram: &[u64]) -> Result<u64, QueryError> {
        self.check(histogram.len())?;
        Ok(self.members().filter_map(|cell| histogram.get(cell)).sum())
    }

    /// The total weight of the cells that satisfy the predicate.
    pub(super) fn weight(&self, weights: &[f64]) -> f64 {
        self.members().filter_map(|cell| weights.get(cell)).sum()
    }

    pub(super) fn check(&self, cells: usize) -> Result<(), QueryError> {
        let fits = self.cells == cells;
        fits.then_some(()).ok_or(QueryError::OtherUniverse { found: self.cells, expected: cells })
    }

    /// The cells that satisfy the predicate, in order.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(place, &word)| {
            let following = |rest: &u64| Some(rest & (rest.wrapping_sub(1)));
            std::iter::successors(Some(word), following)
                .take_while(|&rest| rest != 0)
                .map(move |rest| 64 * place + rest.trailing_zeros() as usize)
        })
    }
}

/// Checks that a universe of this size can be handled.
pub(super) fn check_cells(cells: u128) -> Result<usize, QueryError> {
    match usize::try_from(cells) {
        Ok(0) => Err(QueryError::EmptyUniverse),
        Ok(cells) if cells <= CELLS_MAX => Ok(cells),
        _ => Err(QueryError::TooManyCells { cells, most: CELLS_MAX }),
    }
}
