//! Regret against changes of arm, as a picture.

use std::path::Path;

use anyhow::Context as _;
use plotters::prelude::*;

use super::outcome::{VisitsOutcome, VisitsRow};
use crate::picture::{Area, COLOURS, Sign, draw_legend};
use crate::program::Outcome;

const PANEL: (u32, u32) = (420, 340);

/// Width of the legend.
const LEGEND: u32 = 260;

impl Outcome for VisitsOutcome {
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

/// Writes one panel for each epsilon as an SVG file: regret per visit with its 95% interval, by
/// changes of arm per user, a point for each way of assignment.
fn write(path: &Path, outcome: &VisitsOutcome) -> anyhow::Result<()> {
    let (mut epsilons, mut ways): (Vec<f64>, Vec<&str>) = (Vec::new(), Vec::new());
    for row in &outcome.rows {
        if !epsilons.contains(&row.epsilon) {
            epsilons.push(row.epsilon);
        }
        if !ways.contains(&row.assignment.as_str()) {
            ways.push(&row.assignment);
        }
    }
    let width = PANEL.0 * u32::try_from(epsilons.len())?;
    let area = SVGBackend::new(path, (width + LEGEND, 40 + PANEL.1)).into_drawing_area();
    area.fill(&WHITE)?;
    let VisitsOutcome { instance, learner, users, visits, .. } = outcome;
    let title = format!("{instance}, {learner}, {users} users with {visits} visits");
    let area = area.titled(&title, ("sans-serif", 18))?;
    let (charts, legend) = area.split_horizontally(width);
    for (panel, epsilon) in charts.split_evenly((1, epsilons.len())).iter().zip(&epsilons) {
        let rows = outcome.rows.iter().filter(|row| row.epsilon.total_cmp(epsilon).is_eq());
        draw(panel, &rows.collect::<Vec<_>>(), &ways)?;
    }
    let entry = |(place, way): (usize, &&str)| {
        ((*way).to_owned(), COLOURS[place % COLOURS.len()], Sign::Point)
    };
    draw_legend(&legend, &ways.iter().enumerate().map(entry).collect::<Vec<_>>())?;
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

fn draw(area: &Area<'_>, rows: &[&VisitsRow], ways: &[&str]) -> anyhow::Result<()> {
    let most = |of: fn(&VisitsRow) -> f64| rows.iter().map(|row| of(row)).fold(0.0, f64::max);
    let right = 1.1 * most(|row| row.changes_per_user).max(0.01);
    let top = 1.1 * most(|row| row.regret_per_visit + row.regret_ci95).max(1e-4);
    let epsilon = rows.first().map_or(0.0, |row| row.epsilon);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("epsilon {epsilon} of a report"), ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(64)
        // A point at 0 is whole.
        .build_cartesian_2d(-0.03 * right..right, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels(6)
        .x_desc("changes of arm per user")
        .y_desc("regret per visit")
        .draw()?;
    for row in rows {
        let place = ways.iter().position(|way| *way == row.assignment).unwrap_or(0);
        let colour = COLOURS[place % COLOURS.len()];
        let (x, y, half) = (row.changes_per_user, row.regret_per_visit, row.regret_ci95);
        let ends = [(x, (y - half).max(0.0)), (x, y + half)];
        chart.draw_series([PathElement::new(ends, colour.stroke_width(2))])?;
        chart.draw_series([Circle::new((x, y), 4, colour.filled())])?;
    }
    Ok(())
}
