//! Regret of segments by pooling, as a picture.

use plotters::prelude::*;

use super::{Pooling, SegmentsOutcome, SegmentsRow};
use crate::picture::{Area, Legend, Palette, PictureFile, Sign};
use crate::program::Outcome;

const PANEL: (u32, u32) = (420, 340);

impl Outcome for SegmentsOutcome {
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

/// Writes one panel as a picture: regret per user on a logarithmic axis, with its 95% interval, a
/// column for each instance and a point for each pooling.
fn write(file: &PictureFile, outcome: &SegmentsOutcome) -> anyhow::Result<()> {
    let mut instances: Vec<&str> = Vec::new();
    for row in &outcome.rows {
        if !instances.contains(&row.instance) {
            instances.push(row.instance);
        }
    }
    let width = PANEL.0 + 120 * u32::try_from(instances.len())?;
    let palette = Palette::of(Pooling::ALL.iter().map(|pooling| pooling.name()));
    let mut legend = Legend::default();
    for pooling in &Pooling::ALL {
        legend.add(pooling.name(), palette.colour(pooling.name()), Sign::Point);
    }
    let SegmentsOutcome { learner, epsilon, users, .. } = outcome;
    let title = format!("{users} users in segments, epsilon {epsilon}, {learner}");
    file.write((width + legend.width(), 40 + PANEL.1), |area| {
        let area = area.titled(&title, ("sans-serif", 18))?;
        let (chart, beside) = area.split_horizontally(width);
        draw(&chart, &outcome.rows, &instances, &palette)?;
        legend.draw(&beside)
    })
}

fn draw(
    area: &Area<'_>,
    rows: &[SegmentsRow],
    instances: &[&str],
    palette: &Palette,
) -> anyhow::Result<()> {
    let regrets = || rows.iter().map(|row| row.regret_per_user.max(1e-6));
    let (low, high) = (regrets().fold(f64::MAX, f64::min), regrets().fold(0.0, f64::max));
    let right = instances.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..right, (low / 2.0..high * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(2 * instances.len() + 1)
        .x_label_formatter(&|x| column(*x, instances))
        .y_desc("regret per user")
        .draw()?;
    for row in rows {
        let at = |name: &str| instances.iter().position(|one| *one == name).unwrap_or(0) as f64;
        let place = Pooling::ALL.iter().position(|one| one.name() == row.pooling).unwrap_or(0);
        let colour = palette.colour(row.pooling);
        let (x, y) = (at(row.instance) + 0.15 * (place as f64 - 1.0), row.regret_per_user);
        let ends = [(x, (y - row.regret_ci95).max(low / 2.0)), (x, y + row.regret_ci95)];
        chart.draw_series([PathElement::new(ends, colour.stroke_width(2))])?;
        chart.draw_series([Circle::new((x, y), 4, colour.filled())])?;
    }
    Ok(())
}

/// The label of a column's middle; none between columns.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded number from 0 up"
)]
fn column(x: f64, instances: &[&str]) -> String {
    let nearest = x.round();
    let is_middle = nearest >= 0.0 && (x - nearest).abs() < 1e-6;
    let label = is_middle.then(|| instances.get(nearest as usize)).flatten();
    label.map_or_else(String::new, |label| (*label).to_owned())
}
