//! Domains of numbers: a range in steps, and numbers as text.

use std::fmt;

use super::spelling::{is_missing, truth};

/// Maximum number of decimals of the numbers of a column.
const DECIMALS_MAX: u32 = 9;

/// Numbers from a lowest one on, in steps, in units of the last decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) lowest: i64,
    pub(super) highest: i64,
    pub(super) step: i64,
    pub(super) decimals: u32,
    /// Whether a step was given, so that a number between two steps counts as the nearer one.
    pub(super) has_step: bool,
    /// Whether what lies beyond counts as the nearer end.
    pub(super) is_clamped: bool,
    /// What is read where the value is missing.
    pub(super) missing: Option<i64>,
}

impl Numbers {
    pub(super) fn is_whole(&self) -> bool {
        !self.has_step
    }

    pub(super) fn values(&self) -> usize {
        let steps = self.highest.abs_diff(self.lowest) / self.step.unsigned_abs().max(1);
        usize::try_from(steps).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// The index of a number of units, which may be beyond the range.
    pub(super) fn code(&self, units: i64) -> Option<u32> {
        let is_within = (self.lowest..=self.highest).contains(&units);
        let steps = units.abs_diff(self.lowest) / self.step.unsigned_abs().max(1);
        u32::try_from(steps).ok().filter(|_| is_within)
    }

    /// The index of the step next to a number, within the range.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "less than 2^32 steps; a float beyond becomes the end"
    )]
    fn nearest(&self, number: f64) -> Option<u32> {
        let units = number * power_of_ten(self.decimals) as f64;
        let is_within = self.lowest as f64 <= units && units <= self.highest as f64;
        let steps = ((units - self.lowest as f64) / self.step as f64).round().max(0.0);
        let last = self.values() - 1;
        (is_within || self.is_clamped)
            .then(|| (steps.min(last as f64) as u64).min(last as u64) as u32)
    }

    /// The index of a text, without the blanks around it.
    pub(super) fn read(&self, text: &str, clamps: bool) -> Option<u32> {
        let missing =
            || self.missing.filter(|_| is_missing(text)).and_then(|units| self.code(units));
        let number = || text.parse::<f64>().ok().filter(|number| !number.is_nan());
        if !self.is_whole() {
            let of = Self { is_clamped: self.is_clamped && clamps, ..*self };
            return number().and_then(|number| of.nearest(number)).or_else(missing);
        }
        let is_truth = (self.lowest, self.highest) == (0, 1);
        let as_truth = || truth(text).filter(|_| is_truth).map(i64::from);
        let code = whole_number(text).or_else(as_truth).and_then(|number| self.code(number));
        let clamped = || {
            let is_whole = |number: &f64| number.is_infinite() || number.fract() == 0.0;
            let number = number().filter(|number| self.is_clamped && clamps && is_whole(number));
            number.and_then(|number| self.nearest(number))
        };
        code.or_else(clamped).or_else(missing)
    }

    pub(super) fn value(&self, code: u32) -> String {
        decimal(self.lowest + i64::from(code) * self.step, self.decimals)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |units| decimal(units, self.decimals);
        write!(f, "{}..{}", text(self.lowest), text(self.highest))?;
        if !self.is_whole() {
            write!(f, ":{}", text(self.step))?;
        }
        f.write_str(if self.is_clamped { "!" } else { "" })?;
        self.missing.map_or(Ok(()), |missing| write!(f, "?{}", text(missing)))
    }
}

/// A range of numbers: `LOWEST..HIGHEST`, then what there is of `:STEP`, `!` and `?MISSING`. `None`: it
/// does not look like one.
pub(super) fn numbers(text: &str) -> Option<Result<Numbers, &'static str>> {
    let (low, rest) = text.split_once("..")?;
    let (rest, missing) = match rest.split_once('?') {
        Some((rest, missing)) => (rest, Some(Units::of(missing)?)),
        None => (rest, None),
    };
    let (rest, is_clamped) = rest.strip_suffix('!').map_or((rest, false), |rest| (rest, true));
    let (high, step) = match rest.split_once(':') {
        Some((high, step)) => (high, Some(Units::of(step)?)),
        None => (rest, None),
    };
    let (low, high) = (Units::of(low)?, Units::of(high)?);
    let fractions =
        [Some(low), Some(high), missing].into_iter().flatten().any(|one| one.decimals > 0);
    if step.is_none() && fractions {
        return None;
    }
    Some(checked((low, high), step, missing, is_clamped))
}

fn checked(
    (low, high): (Units, Units),
    step: Option<Units>,
    missing: Option<Units>,
    is_clamped: bool,
) -> Result<Numbers, &'static str> {
    let has_step = step.is_some();
    let step = step.unwrap_or(Units { count: 1, decimals: 0 });
    let all = [Some(low), Some(high), Some(step), missing];
    let decimals = all.into_iter().flatten().map(|one| one.decimals).max().unwrap_or(0);
    let too_large = "its numbers are too large, or have more than nine decimals";
    if decimals > DECIMALS_MAX {
        return Err(too_large);
    }
    let units = |one: Units| {
        let units = one.count.checked_mul(power_of_ten(decimals - one.decimals).into());
        units.and_then(|units| i64::try_from(units).ok()).ok_or(too_large)
    };
    let (lowest, highest, step) = (units(low)?, units(high)?, units(step)?);
    let missing = missing.map(units).transpose()?;
    if lowest > highest {
        return Err("its lowest value is above its highest");
    }
    if step <= 0 {
        return Err("its step is not above 0");
    }
    // Nearer to 0 than a number of 64 bits, so that differences and steps are exact as floating point.
    let is_small = |units: i64| !has_step || units.unsigned_abs() < 1 << 52;
    if !is_small(lowest) || !is_small(highest) {
        return Err(too_large);
    }
    if !highest.abs_diff(lowest).is_multiple_of(step.unsigned_abs()) {
        return Err("its highest value is no whole number of steps above its lowest");
    }
    if missing.is_some_and(|missing| !(lowest..=highest).contains(&missing)) {
        return Err("what is read where a value is missing is outside of its range");
    }
    if missing.is_some_and(|m| !m.abs_diff(lowest).is_multiple_of(step.unsigned_abs())) {
        return Err("what is read where a value is missing is none of its values");
    }
    Ok(Numbers { lowest, highest, step, decimals, has_step, is_clamped, missing })
}

/// A decimal number, exactly.
#[derive(Clone, Copy)]
struct Units {
    count: i128,
    decimals: u32,
}

impl Units {
    fn of(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let has_digits = fraction.chars().all(|c| c.is_ascii_digit());
        if !has_digits || text.ends_with('.') {
            return None;
        }
        let digits = format!("{}{fraction}", if whole == "-" { "-0" } else { whole });
        Some(Self { count: digits.parse().ok()?, decimals: u32::try_from(fraction.len()).ok()? })
    }
}

fn power_of_ten(decimals: u32) -> i64 {
    10_i64.checked_pow(decimals).unwrap_or(i64::MAX)
}

/// Writes a number of units as text. A unit is 1 in the last of this number of decimals.
///
/// ```
/// use bandana_mechanisms::queries::universe::decimal;
/// assert_eq!([decimal(-5, 1), decimal(1250, 2), decimal(7, 0)], ["-0.5", "12.50", "7"]);
/// ```
pub fn decimal(units: i64, decimals: u32) -> String {
    let one = power_of_ten(decimals).unsigned_abs();
    let (whole, rest) = (units.unsigned_abs() / one, units.unsigned_abs() % one);
    let sign = if units < 0 { "-" } else { "" };
    let width = usize::try_from(decimals).unwrap_or(0);
    if decimals == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest:0width$}") }
}

/// A whole number, also as floating point where that is exact.
fn whole_number(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
        let whole = number as i64;
        (number.fract() == 0.0 && number.abs() <= 2_f64.powi(53)).then_some(whole)
    })
}
