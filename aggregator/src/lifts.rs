//! Lifts: by how much each arm's mean is above that of the control arm.

use bandana_shared::alphabet::Symbol;
use bandana_shared::confidence::{Difference, differences_from};
use bandana_shared::estimate::{Estimand, manipulation_gain};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::{ArmEstimate, Estimates, Lift};

/// Estimates with the lift of each other arm in play over the control arm. `initial_arms` were there
/// from the start.
pub(crate) fn with_lifts(
    estimates: Estimates,
    control_arm: u32,
    specification: &Specification,
    initial_arms: usize,
) -> Estimates {
    let lifts = lifts(&estimates, control_arm, specification, initial_arms);
    Estimates { control_arm, lifts, ..estimates }
}

fn lifts(
    estimates: &Estimates,
    control_arm: u32,
    specification: &Specification,
    initial_arms: usize,
) -> Vec<Lift> {
    let (estimand, channel) = (specification.estimand(), specification.channel());
    let Ok(alpha) = ErrorLevel::new(estimates.alpha) else { return Vec::new() };
    if estimand == Estimand::Frequencies {
        return Vec::new();
    }
    let tallies: Vec<Tally> = estimates.arms.iter().map(|arm| tally(arm, specification)).collect();
    let active: Vec<bool> = estimates.arms.iter().map(|arm| !arm.retired).collect();
    let base = estimates.arms.get(control_arm as usize).and_then(|arm| arm.estimate);
    // Where rewards may be negative, a share of a mean says little.
    let base = base.filter(|base| *base > 0.0 && estimand.range().low() >= 0.0);
    let widest = estimand.range().high() - estimand.range().low();
    // One report moves a debiased sum by the reciprocal of the channel's contrast.
    let debiased = |private: f64| {
        estimand.difference_from_unit(private * manipulation_gain(channel)).clamp(-widest, widest)
    };
    let lift = |Difference { arm, difference, interval }: Difference| Lift {
        arm: u32::try_from(arm).unwrap_or(u32::MAX),
        difference: debiased(difference),
        low: debiased(interval.low()),
        high: debiased(interval.high()),
        relative: base.map(|base| debiased(difference) / base),
    };
    let control = control_arm as usize;
    let alphabet = channel.alphabet();
    let differences = differences_from(control, &tallies, alphabet, &active, initial_arms, alpha);
    differences.into_iter().map(lift).collect()
}

/// The tally that an arm's estimate was made from.
fn tally(arm: &ArmEstimate, specification: &Specification) -> Tally {
    let symbols = specification.channel().alphabet().symbols().zip(&arm.symbols);
    let said = symbols.map(|(symbol, estimate)| (symbol, estimate.count));
    // Reports of more than two symbols have no count of ones.
    let bits = (Symbol::from(true), arm.ones);
    let counts = said.chain(arm.symbols.is_empty().then_some(bits));
    Tally::with_symbols(arm.reports, counts).unwrap_or(Tally::EMPTY)
}
