//! Shares of runs with a verdict against users, as a picture.

use plotters::prelude::*;

use super::outcome::{DecisionOutcome, Row};
use crate::picture::{Area, Legend, Palette, PictureFile, Sign, log_label, shortened};
use crate::program::Outcome;

const PANEL: (u32, u32) = (440, 320);

/// Users at which the axis begins: with fewer there is no policy but the first one.
const USERS_MIN: u64 = 100;

impl Outcome for DecisionOutcome {
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

/// Writes one panel for each instance as a picture: for each learner, the share of all runs that
/// have a verdict by a number of users.
fn write(file: &PictureFile, outcome: &DecisionOutcome) -> anyhow::Result<()> {
    let (mut instances, mut learners): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for row in &outcome.rows {
        if !instances.contains(&row.instance.as_str()) {
            instances.push(&row.instance);
        }
        if !learners.contains(&row.learner.as_str()) {
            learners.push(&row.learner);
        }
    }
    let columns = instances.len().min(2);
    let lines = instances.len().div_ceil(columns.max(1));
    let width = PANEL.0 * u32::try_from(columns)?;
    let palette = Palette::of(learners.iter().copied());
    let mut legend = Legend::default();
    for learner in &learners {
        legend.add(learner, palette.colour(learner), Sign::Line);
    }
    let height = 40 + (PANEL.1 * u32::try_from(lines)?).max(legend.height());
    let DecisionOutcome { epsilon, confidence, .. } = outcome;
    let title = format!("runs with a verdict, epsilon {epsilon}, confidence {confidence}");
    file.write((width + legend.width(), height), |area| {
        let area = area.titled(&title, ("sans-serif", 18))?;
        let (charts, beside) = area.split_horizontally(width);
        for (panel, instance) in charts.split_evenly((lines, columns)).iter().zip(&instances) {
            let rows = outcome.rows.iter().filter(|row| row.instance == *instance);
            draw(panel, &rows.collect::<Vec<_>>(), &palette, outcome.horizon)?;
        }
        legend.draw(&beside)
    })
}

fn draw(area: &Area<'_>, rows: &[&Row], palette: &Palette, horizon: u64) -> anyhow::Result<()> {
    let users = USERS_MIN..horizon.max(10 * USERS_MIN);
    let mut chart = ChartBuilder::on(area)
        .caption(shortened(rows.first().map_or("", |row| &row.instance), 50), ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d(users.log_scale(), 0.0..1.03)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("users")
        .y_desc("share of all runs")
        .x_label_formatter(&|users| log_label(*users as f64))
        .y_label_formatter(&|share| format!("{share:.1}"))
        .draw()?;
    // Each narrower than those below it, so that none hides another which is the same.
    for (row, above) in rows.iter().zip((0..rows.len()).rev()) {
        let stroke = palette.colour(&row.learner).stroke_width(2 + 2 * u32::try_from(above)?);
        chart.draw_series(LineSeries::new(steps(row, horizon), stroke))?;
    }
    Ok(())
}

/// The corners of the curve: it rises by one run at each verdict.
fn steps(row: &Row, horizon: u64) -> Vec<(u64, f64)> {
    let mut corners = vec![(USERS_MIN, 0.0)];
    for (place, users) in row.verdict_users.iter().enumerate() {
        let users = (*users).max(USERS_MIN);
        corners.push((users, place as f64 / row.runs as f64));
        corners.push((users, (place + 1) as f64 / row.runs as f64));
    }
    corners.push((horizon.max(USERS_MIN), row.verdict_users.len() as f64 / row.runs as f64));
    corners
}
