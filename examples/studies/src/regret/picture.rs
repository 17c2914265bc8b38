//! Regret against time, as a picture.

use bandana_lab::{Row, StudyOutcome};
use plotters::prelude::*;

use crate::picture::{Area, Legend, Palette, PictureFile, Sign, log_label, shortened};
use crate::program::Outcome;

const PANEL: (u32, u32) = (500, 400);

/// Lower limit of drawn regrets; smaller ones are drawn at it.
const FLOOR: f64 = 10.0;

/// The mechanism of learners without privacy.
const NO_PRIVACY: &str = "none";

impl Outcome for StudyOutcome {
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn table(&self) -> String {
        Self::table(self)
    }

    fn draw(&self, file: &PictureFile) -> anyhow::Result<()> {
        write(file, self)
    }
}

/// Writes one panel for each epsilon: mean regrets with their 95% intervals, and bounds: that from
/// below of a channel as a thin line, that from above of a learner, where the papers have one, dashed.
/// Curves without privacy are in all panels.
fn write(file: &PictureFile, outcome: &StudyOutcome) -> anyhow::Result<()> {
    let mut epsilons: Vec<f64> = outcome.rows.iter().filter_map(|row| row.epsilon).collect();
    epsilons.sort_by(f64::total_cmp);
    epsilons.dedup();
    let panels = epsilons.len().max(1);
    let columns = panels.min(2);
    let lines = panels.div_ceil(columns);
    let curves = Curve::all(&outcome.rows);
    let legend = legend(&curves, &outcome.rows);
    let width = PANEL.0 * u32::try_from(columns)?;
    let height = 40 + (PANEL.1 * u32::try_from(lines)?).max(legend.height());
    let trials = outcome.rows.iter().map(|row| row.trials).max().unwrap_or(0);
    let only = only_mechanism(&outcome.rows).map_or(String::new(), |only| format!("{only}, "));
    let title = format!("{}, {only}{trials} trials", shortened(&outcome.instance, 50));
    file.write((width + legend.width(), height), |area| {
        let area = area.titled(&title, ("sans-serif", 18))?;
        let (charts, beside) = area.split_horizontally(width);
        let areas = charts.split_evenly((lines, columns));
        for (place, panel) in areas.iter().enumerate().take(panels) {
            draw(panel, outcome, epsilons.get(place).copied(), &curves)?;
        }
        legend.draw(&beside)
    })
}

/// A learner on a channel, which is one curve in each panel.
#[derive(Clone, Debug, PartialEq)]
struct Curve<'r> {
    learner: &'r str,
    mechanism: &'r str,
    name: String,
    colour: RGBColor,
    /// Whether it is the first one with this channel, by whose colour the channel's bound goes.
    is_first: bool,
}

impl<'r> Curve<'r> {
    /// The curves, in the order of the rows.
    fn all(rows: &'r [Row]) -> Vec<Self> {
        let only = only_mechanism(rows);
        let mut curves: Vec<Self> = Vec::new();
        for Row { learner, mechanism, .. } in rows {
            if curves.iter().any(|one| one.learner == learner && one.mechanism == mechanism) {
                continue;
            }
            let is_plain = mechanism == NO_PRIVACY || only == Some(mechanism);
            curves.push(Self {
                learner,
                mechanism,
                name: if is_plain { learner.clone() } else { format!("{learner}, {mechanism}") },
                colour: BLACK,
                is_first: curves.iter().all(|one| one.mechanism != mechanism),
            });
        }
        let palette = Palette::of(curves.iter().map(|curve| curve.name.as_str()));
        for curve in &mut curves {
            curve.colour = palette.colour(&curve.name);
        }
        curves
    }

    fn owns(&self, row: &Row) -> bool {
        row.learner == self.learner && row.mechanism == self.mechanism
    }
}

/// The mechanism of all rows with privacy, if there is only one.
fn only_mechanism(rows: &[Row]) -> Option<&str> {
    let mut with_privacy =
        rows.iter().map(|row| row.mechanism.as_str()).filter(|mechanism| *mechanism != NO_PRIVACY);
    let first = with_privacy.next()?;
    with_privacy.all(|other| other == first).then_some(first)
}

/// Every curve, then every bound with the channel or the learner whose it is.
fn legend(curves: &[Curve<'_>], rows: &[Row]) -> Legend {
    let mut legend = Legend::default();
    for curve in curves {
        legend.add(&curve.name, curve.colour, Sign::Line);
    }
    let has = |curve: &Curve<'_>, bound: fn(&Row) -> Option<f64>| {
        rows.iter().any(|row| curve.owns(row) && bound(row).is_some())
    };
    for curve in curves.iter().filter(|one| one.is_first && has(one, |row| row.lower_bound)) {
        let name = match curve.mechanism {
            NO_PRIVACY => "lower bound without privacy".to_owned(),
            mechanism => format!("lower bound of the {mechanism} channel"),
        };
        legend.add(&name, lower_bound_colour(curve), Sign::Thin);
    }
    for curve in curves.iter().filter(|one| has(one, |row| row.upper_bound)) {
        let name = format!("{}: proven upper bound", curve.name);
        legend.add(&name, upper_bound_colour(curve), Sign::Dashed);
    }
    legend
}

fn lower_bound_colour(curve: &Curve<'_>) -> RGBColor {
    paler(curve.colour, 0.45)
}

fn upper_bound_colour(curve: &Curve<'_>) -> RGBColor {
    paler(curve.colour, 0.7)
}

/// A colour with so much of itself, the rest of it white.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded number from 0 to 255"
)]
fn paler(RGBColor(red, green, blue): RGBColor, share: f64) -> RGBColor {
    let mix = |part: u8| (255.0 - share * (255.0 - f64::from(part))).round() as u8;
    RGBColor(mix(red), mix(green), mix(blue))
}

fn draw(
    area: &Area<'_>,
    outcome: &StudyOutcome,
    epsilon: Option<f64>,
    curves: &[Curve<'_>],
) -> anyhow::Result<()> {
    let rows =
        || outcome.rows.iter().filter(move |row| row.epsilon.is_none() || row.epsilon == epsilon);
    let horizon = rows().map(|row| row.horizon).max().unwrap_or(1000);
    let highest = |row: &Row| (row.mean_regret + row.ci95).max(row.upper_bound.unwrap_or(0.0));
    let top = rows().map(highest).fold(10.0 * FLOOR, f64::max) * 1.1;
    let caption = epsilon.map_or("without privacy".to_owned(), |e| format!("epsilon {e}"));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d((100_u64..horizon).log_scale(), (FLOOR..top).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("rounds")
        .y_desc("regret")
        .x_label_formatter(&|rounds| log_label(*rounds as f64))
        .y_label_formatter(&|regret| log_label(*regret))
        .draw()?;
    for curve in curves {
        let own = || rows().filter(|row| curve.owns(row));
        if curve.is_first {
            let bound = own().filter_map(|row| Some((row.horizon, row.lower_bound?)));
            let visible = bound.filter(|(_, bound)| (FLOOR..=top).contains(bound));
            let style = lower_bound_colour(curve).stroke_width(1);
            chart.draw_series(LineSeries::new(visible, style))?;
        }
        let bound = own().filter_map(|row| Some((row.horizon, row.upper_bound?.max(FLOOR))));
        let dashes = upper_bound_colour(curve).stroke_width(1);
        chart.draw_series(DashedLineSeries::new(bound, 5, 4, dashes))?;
        let points = own().map(|row| (row.horizon, row.mean_regret.max(FLOOR)));
        chart.draw_series(LineSeries::new(points, curve.colour.stroke_width(2)))?;
        let whiskers = own().map(|row| {
            let (low, high) = (row.mean_regret - row.ci95, row.mean_regret + row.ci95);
            PathElement::new(
                [(row.horizon, low.max(FLOOR)), (row.horizon, high.max(FLOOR))],
                curve.colour,
            )
        });
        chart.draw_series(whiskers)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use bandana_lab::{Contestant, StandardLearner, Study};
    use bandana_shared::curve::Mechanism;

    use super::*;
    use crate::regret::tests::study;

    fn picture_of(study: &Study) -> String {
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("regret.svg");
        outcome.draw(&path.to_str().unwrap().parse().unwrap()).unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn a_picture_names_its_curves_and_whose_bounds_it_has() {
        let mut study =
            Study { mechanisms: vec![Mechanism::Linear, Mechanism::Exponential], ..study(2) };
        let nonprivate: Arc<dyn Contestant> = Arc::new(StandardLearner::NonprivateTs);
        study.contestants.push(nonprivate);
        let picture = picture_of(&study);
        for name in [
            "ldp-ts, linear",
            "imed, exponential",
            "lower bound of the exponential channel",
            "lower bound without privacy",
            "ldp-ts, linear: proven upper",
            "nonprivate-ts: proven upper bound",
            "epsilon 2",
        ] {
            assert!(picture.contains(name), "{name}");
        }
        assert!(!picture.contains("imed, linear: proven"), "IMED has no bound here");
    }

    #[test]
    fn the_only_mechanism_is_in_the_title_rather_than_in_every_name() {
        let picture = picture_of(&study(2));
        for name in ["paper-20, linear, 2 trials", "ldp-ts: proven upper bound"] {
            assert!(picture.contains(name), "{name}");
        }
        assert!(!picture.contains("ldp-ts, linear"));
    }
}
