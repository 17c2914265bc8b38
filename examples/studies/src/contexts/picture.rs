//! The picture of a context study: the share of contexts' worth that is recovered, by epsilon.

use std::path::Path;

use anyhow::Context as _;
use plotters::prelude::*;

use super::{ContextOutcome, ContextRow};
use crate::picture::{Area, COLOURS, Sign, draw_legend};
use crate::program::Outcome;

const PANEL: (u32, u32) = (460, 340);

/// Width of the legend.
const LEGEND: u32 = 260;

/// The least share that is shown; what is below is drawn there.
const LEAST: f64 = -1.0;

impl Outcome for ContextOutcome {
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

/// Writes one panel as an SVG file: a line for each instance with contexts that are worth something.
fn write(path: &Path, outcome: &ContextOutcome) -> anyhow::Result<()> {
    let rows: Vec<&ContextRow> = outcome.rows.iter().filter(|row| row.worth > 0.0).collect();
    let mut lines: Vec<(&str, usize)> = Vec::new();
    for row in &rows {
        if !lines.contains(&(row.instance, row.features)) {
            lines.push((row.instance, row.features));
        }
    }
    let area = SVGBackend::new(path, (PANEL.0 + LEGEND, 40 + PANEL.1)).into_drawing_area();
    area.fill(&WHITE)?;
    let (users, share) = (outcome.users, 100.0 * outcome.exploration);
    let title = format!("{users} users in private contexts, {share}% of whom explore");
    let area = area.titled(&title, ("sans-serif", 18))?;
    let (chart, legend) = area.split_horizontally(PANEL.0);
    draw(&chart, &rows, &lines)?;
    let entry = |(place, (name, features)): (usize, &(&str, usize))| {
        (format!("{name}, {features}"), COLOURS[place % COLOURS.len()], Sign::Point)
    };
    draw_legend(&legend, &lines.iter().enumerate().map(entry).collect::<Vec<_>>())?;
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

fn draw(area: &Area<'_>, rows: &[&ContextRow], lines: &[(&str, usize)]) -> anyhow::Result<()> {
    let most = rows.iter().map(|row| row.epsilon).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..1.1 * most, LEAST..1.0)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("epsilon")
        .y_desc("share of contexts' worth")
        .draw()?;
    for (place, line) in lines.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let own = rows.iter().filter(|row| (row.instance, row.features) == *line);
        let points: Vec<(f64, f64)> =
            own.map(|row| (row.epsilon, row.recovered.max(LEAST))).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|at| Circle::new(*at, 4, colour.filled())))?;
    }
    Ok(())
}
