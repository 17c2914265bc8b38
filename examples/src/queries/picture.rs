//! The picture of `private-queries`.

use bandana_mechanisms::queries::counting::accuracy;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Price, PureLoss};
use bandana_shared::accounting::delta::Delta;
use bandana_studies::picture::{Area, Legend, Palette, PictureFile, Sign, count_label, log_label};
use plotters::prelude::*;

use super::contest::{DELTA, Outcome, whole};

const PANEL: (u32, u32) = (540, 400);

/// The least error that is drawn, as a share of the rows.
const LEAST: f64 = 1e-9;

/// The points of a contestant's curve.
type Line = (&'static str, Vec<(f64, f64)>);

/// Writes two panels: the guaranteed error against the number of counts, and the mean error of many
/// adaptive queries.
///
/// # Errors
/// When the file can't be written.
pub fn write(file: &PictureFile, epsilon: f64, outcome: &Outcome) -> anyhow::Result<()> {
    let people = if outcome.rows == 1 { "person" } else { "people" };
    let title = format!("{} {people}, epsilon = {epsilon} for all queries together", outcome.rows);
    let promised = promised(epsilon, outcome)?;
    let running = outcome.contestants.iter().map(|contestant| {
        let points = contestant.curve.iter().map(|&(round, error)| (round as f64, error));
        (contestant.name, points.collect())
    });
    let running: Vec<Line> = running.collect();
    let palette = Palette::of(outcome.contestants.iter().map(|contestant| contestant.name));
    let mut legend = Legend::default();
    for contestant in &outcome.contestants {
        let name = match contestant.name {
            "Gaussian" => format!("Gaussian, delta = {DELTA}"),
            name => name.to_owned(),
        };
        legend.add(&name, palette.colour(contestant.name), Sign::Line);
    }
    file.write((2 * PANEL.0 + legend.width(), 40 + PANEL.1), |area| {
        let area = area.titled(&title, ("sans-serif", 18))?;
        let (panels, beside) = area.split_horizontally(2 * PANEL.0);
        let (left, right) = panels.split_horizontally(PANEL.0);
        draw(&left, "Error that k counts keep within (95%)", "counts k", &promised, &palette)?;
        draw(&right, "Mean error of adaptive queries so far", "queries", &running, &palette)?;
        legend.draw(&beside)
    })
}

fn promised(epsilon: f64, outcome: &Outcome) -> anyhow::Result<Vec<Line>> {
    let loss = PureLoss::new(epsilon)?;
    let rho = ConcentratedLoss::within(loss.loss(), Delta::new(DELTA)?)?;
    let prices = [("Laplace", Price::Pure(loss)), ("Gaussian", Price::Concentrated(rho))];
    let ks = (0..=40).map(|i| spread(outcome.queries, f64::from(i) / 40.0));
    let ks: Vec<u64> = ks.collect();
    let line = |price: Price| -> anyhow::Result<Vec<(f64, f64)>> {
        let share = |&k: &u64| -> anyhow::Result<(f64, f64)> {
            Ok((k as f64, accuracy(k, price, 0.05)? as f64 / outcome.rows as f64))
        };
        ks.iter().map(share).collect()
    };
    prices.into_iter().map(|(name, price)| Ok((name, line(price)?))).collect()
}

/// A power of the number of queries, as a number of queries.
fn spread(queries: u64, exponent: f64) -> u64 {
    whole((queries as f64).powf(exponent))
}

fn draw(
    area: &Area<'_>,
    caption: &str,
    x: &str,
    lines: &[Line],
    palette: &Palette,
) -> anyhow::Result<()> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let right = points().map(|point| point.0).fold(10.0, f64::max);
    let top = points().map(|point| point.1).fold(LEAST, f64::max) * 2.0;
    let bottom = points().map(|point| point.1).fold(top / 10.0, f64::min).max(LEAST) / 2.0;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d((1.0..right).log_scale(), (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|counts| log_label(*counts))
        .y_label_formatter(&|share| count_label(*share))
        .x_desc(x)
        .y_desc("error, as a share of the rows")
        .draw()?;
    for (name, points) in lines {
        let points = points.iter().map(|&(x, y)| (x, y.max(bottom)));
        chart.draw_series(LineSeries::new(points, palette.colour(name).stroke_width(2)))?;
    }
    Ok(())
}
