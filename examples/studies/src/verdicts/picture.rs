//! The interval of an arm as it narrows, with bounds by the largest variance and by that of the reports.

use bandana_shared::channel::Floor;
use bandana_shared::confidence::{LogOddsMixture, NormalMixture};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::private_mean_of;
use bandana_shared::interval::{ErrorLevel, Interval};
use bandana_shared::tally::Tally;
use plotters::prelude::*;

use crate::picture::{Area, Legend, Palette, PictureFile, Sign, count_label, log_label};

const PANEL: (u32, u32) = (330, 320);

/// The mean rewards and epsilons of the panels.
const PANELS: [(f64, f64); 3] = [(0.5, 1.0), (0.12, 3.0), (0.02, 5.0)];

const BEFORE: &str = "largest variance";
const NOW: &str = "variance of the reports";

/// Writes one panel for each mean: both ends of the interval against the reports of the arm.
pub(super) fn draw(file: &PictureFile) -> anyhow::Result<()> {
    let palette = Palette::of([BEFORE, NOW]);
    let mut legend = Legend::default();
    for name in [BEFORE, NOW] {
        legend.add(name, palette.colour(name), Sign::Line);
    }
    let width = PANEL.0 * u32::try_from(PANELS.len())?;
    file.write((width + legend.width(), 40 + PANEL.1), |area| {
        let area =
            area.titled("95% interval of an arm's mean, at all times", ("sans-serif", 18))?;
        let (charts, beside) = area.split_horizontally(width);
        let panels = charts.split_evenly((1, PANELS.len()));
        for (panel, (mean, epsilon)) in panels.iter().zip(PANELS) {
            draw_panel(panel, (mean, epsilon), &palette)?;
        }
        legend.draw(&beside)
    })
}

fn draw_panel(
    area: &Area<'_>,
    (mean, epsilon): (f64, f64),
    palette: &Palette,
) -> anyhow::Result<()> {
    let title = format!("mean {mean}, epsilon {epsilon}");
    let range = (1e2..1e6).log_scale();
    let top = (4.0 * mean).min(1.0);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(48)
        .build_cartesian_2d(range, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|x| log_label(*x))
        .y_label_formatter(&|y| count_label(*y))
        .x_desc("reports of the arm")
        .draw()?;
    let floor = Floor::for_epsilon(Epsilon::new(epsilon)?);
    let (before, now) = (
        NormalMixture::new(ErrorLevel::FIVE_PERCENT),
        LogOddsMixture::new(ErrorLevel::FIVE_PERCENT),
    );
    let mut lines = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for step in 0..=80 {
        let reports = 10_f64.powf(2.0 + f64::from(step) / 20.0).round();
        let tally = expected(reports, private_mean_of(floor, mean))?;
        let intervals: [Interval; 2] = [before.mean(floor, tally), now.mean(floor, tally)];
        for (place, interval) in intervals.into_iter().enumerate() {
            let shown = interval.clamped(0.0, top);
            lines[2 * place].push((reports, shown.low()));
            lines[2 * place + 1].push((reports, shown.high()));
        }
    }
    for (place, line) in lines.into_iter().enumerate() {
        let colour = palette.colour([BEFORE, NOW][place / 2]);
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
    }
    Ok(())
}

/// The tally that is expected of so many reports.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers from 0 to a million"
)]
fn expected(reports: f64, mean: f64) -> anyhow::Result<Tally> {
    Ok(Tally::new(reports as u64, (reports * mean).round() as u64)?)
}
