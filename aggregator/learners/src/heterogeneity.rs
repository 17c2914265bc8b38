//! The heterogeneity of cells: how far their means differ beyond the noise of reports.
//!
//! It is estimated by the method of moments (DerSimonian and Laird, "Meta-analysis in clinical trials",
//! 1986), for the residuals of a fit instead of those of one mean, and its standard error is added: a
//! first agreement by chance would otherwise make all segments share a mistake.

use super::input::Evidence;

/// The reports on an arm in a segment, and their mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) reports: f64,
    pub(super) mean: f64,
}

/// The cells of each segment's arms.
pub(super) fn cells(segments: &[Vec<Evidence>]) -> Vec<Vec<Cell>> {
    let cell = |arm: &Evidence| Cell { reports: arm.reports(), mean: arm.mean().unwrap_or(0.5) };
    segments.iter().map(|arms| arms.iter().map(cell).collect()).collect()
}

/// The variance of a report, which for a private bit is nearly that of a fair coin; smoothed for few
/// reports. `None` without reports.
pub(super) fn variance(cells: &[Vec<Cell>]) -> Option<f64> {
    let all: f64 = cells.iter().flatten().map(|cell| cell.reports).sum();
    let ones: f64 = cells.iter().flatten().map(|cell| cell.reports * cell.mean).sum();
    let overall = (ones + 1.0) / (all + 2.0);
    (all > 0.0).then_some(overall * (1.0 - overall))
}

/// The residuals of a fit, summed up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Residuals {
    squares: f64,
    degrees: f64,
    information: f64,
}

impl Residuals {
    /// Adds a cell: what the fit leaves of its mean, and the share of a degree of freedom that the
    /// fit leaves it.
    pub(super) fn add(&mut self, cell: Cell, residual: f64, rest: f64) {
        self.squares += cell.reports * residual * residual;
        self.degrees += rest;
        self.information += cell.reports * rest;
    }

    /// The variance of what the fit leaves beyond the noise, and its standard error; 0 if the fit
    /// leaves nothing to tell it by. `variance` is that of a report.
    pub(super) fn heterogeneity(self, variance: f64) -> f64 {
        if self.information <= 0.0 {
            return 0.0;
        }
        let estimate = ((self.squares - self.degrees * variance) / self.information).max(0.0);
        estimate + variance * libm::sqrt(2.0 * self.degrees) / self.information
    }
}
