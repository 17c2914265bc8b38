//! Regret against time, as a picture.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use plotters::prelude::*;

use crate::picture::{Area, COLOURS, Sign, draw_legend, log_label};
use crate::program::Outcome;
use bandana_lab::{Row, StudyOutcome};

const PANEL: (u32, u32) = (500, 400);

/// Width of the legend.
const LEGEND: u32 = 210;

/// Lower limit of drawn regrets; smaller ones are drawn at it.
const FLOOR: f64 = 10.0;

/// The rows of one curve, by horizon.
type Curves<'r> = BTreeMap<(String, String), Vec<&'r Row>>;

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

    fn draw(&self, path: &Path) -> anyhow::Result<()> {
        write(path, self)
    }
}

/// Writes one panel for each epsilon as an SVG file: mean regrets with their 95%
/// intervals, and bounds in the same colour: the lower one as a thin line, the upper one,
/// where the papers have one, dashed. Curves without privacy are in all panels.
fn write(path: &Path, outcome: &StudyOutcome) -> anyhow::Result<()> {
    let mut epsilons: Vec<f64> = outcome.rows.iter().filter_map(|row| row.epsilon).collect();
    epsilons.sort_by(f64::total_cmp);
    epsilons.dedup();
    let panels = epsilons.len().max(1);
    let columns = panels.min(2);
    let lines = panels.div_ceil(columns);
    let width = PANEL.0 * u32::try_from(columns)?;
    let size = (width + LEGEND, 40 + PANEL.1 * u32::try_from(lines)?);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let trials = outcome.rows.iter().map(|row| row.trials).max().unwrap_or(0);
    let title = format!("{}, {trials} trials", outcome.instance);
    let area = area.titled(&title, ("sans-serif", 18))?;
    let (charts, legend) = area.split_horizontally(width);
    let mut palette = BTreeMap::new();
    for row in &outcome.rows {
        let next = COLOURS[palette.len() % COLOURS.len()];
        palette.entry(key(row)).or_insert(next);
    }
    for (place, panel) in charts.split_evenly((lines, columns)).iter().enumerate().take(panels) {
        let epsilon = epsilons.get(place).copied();
        draw(panel, outcome, epsilon, &palette)?;
    }
    draw_legend(&legend, &entries(outcome, &palette))?;
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

/// The legend: every curve, and what the lines without a name are.
fn entries(
    outcome: &StudyOutcome,
    palette: &BTreeMap<(String, String), RGBColor>,
) -> Vec<(String, RGBColor, Sign)> {
    let name = |(learner, mechanism): &(String, String)| match mechanism.as_str() {
        "none" => learner.clone(),
        _ => format!("{learner}, {mechanism}"),
    };
    let curve = |(key, colour): (&(String, String), &RGBColor)| (name(key), *colour, Sign::Line);
    let mut entries: Vec<_> = palette.iter().map(curve).collect();
    let grey = RGBColor(110, 110, 110);
    if outcome.rows.iter().any(|row| row.lower_bound.is_some()) {
        entries.push(("lower bound of the channel".to_owned(), grey, Sign::Thin));
    }
    if outcome.rows.iter().any(|row| row.upper_bound.is_some()) {
        entries.push(("proven upper bound".to_owned(), grey, Sign::Dashed));
    }
    entries
}

fn key(row: &Row) -> (String, String) {
    (row.learner.clone(), row.mechanism.clone())
}

fn draw(
    area: &Area<'_>,
    outcome: &StudyOutcome,
    epsilon: Option<f64>,
    palette: &BTreeMap<(String, String), RGBColor>,
) -> anyhow::Result<()> {
    let mut curves: Curves<'_> = BTreeMap::new();
    for row in outcome.rows.iter().filter(|row| row.epsilon.is_none() || row.epsilon == epsilon) {
        curves.entry(key(row)).or_default().push(row);
    }
    let all = || curves.values().flatten();
    let horizon = all().map(|row| row.horizon).max().unwrap_or(1000);
    let highest = |row: &&Row| (row.mean_regret + row.ci95).max(row.upper_bound.unwrap_or(0.0));
    let top = all().map(highest).fold(10.0 * FLOOR, f64::max) * 1.1;
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
    for (name, rows) in &curves {
        let colour = palette.get(name).copied().unwrap_or(BLACK);
        let point = |row: &&Row| (row.horizon, row.mean_regret.max(FLOOR));
        let line = LineSeries::new(rows.iter().map(point), colour.stroke_width(2));
        chart.draw_series(line)?;
        let whiskers = rows.iter().map(|row| {
            let (low, high) = (row.mean_regret - row.ci95, row.mean_regret + row.ci95);
            PathElement::new(
                [(row.horizon, low.max(FLOOR)), (row.horizon, high.max(FLOOR))],
                colour,
            )
        });
        chart.draw_series(whiskers)?;
        let bound = rows.iter().filter_map(|row| Some((row.horizon, row.lower_bound?)));
        let visible = bound.filter(|(_, bound)| *bound <= top);
        chart.draw_series(LineSeries::new(visible, colour.mix(0.4).stroke_width(1)))?;
        let bound = rows.iter().filter_map(|row| Some((row.horizon, row.upper_bound?)));
        let dashes = colour.mix(0.6).stroke_width(1);
        chart.draw_series(DashedLineSeries::new(bound, 5, 4, dashes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bandana_lab::Study;
    use bandana_shared::curve::Mechanism;

    use super::*;
    use crate::regret::tests::study;

    #[test]
    fn a_picture_names_its_curves_and_its_bounds() {
        let mechanisms = vec![Mechanism::Linear, Mechanism::Exponential];
        let study = Study { mechanisms, ..study(2) };
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("regret.svg");
        outcome.draw(&path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        for name in
            ["ldp-ts, linear", "imed, exponential", "lower bound of", "upper bound", "epsilon 2"]
        {
            assert!(picture.contains(name), "{name}");
        }
    }
}
