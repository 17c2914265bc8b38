//! The picture of `private-queries`.

use std::path::Path;

use anyhow::Context as _;
use bandana_mechanisms::queries::counting::accuracy;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Price, PureLoss};
use bandana_shared::accounting::delta::Delta;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::contest::{DELTA, Outcome, whole};

/// Colours that remain distinct for colour-blind people (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115)];

type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;

/// A named line.
type Line = (String, Vec<(f64, f64)>);

/// Writes two panels as an SVG file: the guaranteed error against the number of counts, and the
/// mean error of many adaptive queries.
///
/// # Errors
/// When the file can't be written.
pub fn write(path: &Path, epsilon: f64, outcome: &Outcome) -> anyhow::Result<()> {
    let area = SVGBackend::new(path, (1120, 440)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{} people, epsilon = {epsilon} for all queries together", outcome.rows);
    let area = area.titled(&title, ("sans-serif", 18))?;
    let (left, right) = area.split_horizontally(560);
    let promised = promised(epsilon, outcome)?;
    draw(&left, "Error that k counts keep within (95%)", "counts k", &promised)?;
    let running = outcome.contestants.iter().map(|contestant| {
        let points = contestant.curve.iter().map(|&(round, error)| (round as f64, error));
        (contestant.name.to_owned(), points.collect())
    });
    let running: Vec<Line> = running.collect();
    draw(&right, "Mean error of adaptive queries so far", "queries", &running)?;
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

fn promised(epsilon: f64, outcome: &Outcome) -> anyhow::Result<Vec<Line>> {
    let loss = PureLoss::new(epsilon)?;
    let rho = ConcentratedLoss::within(loss.loss(), Delta::new(DELTA)?)?;
    let prices = [
        ("Laplace".to_owned(), Price::Pure(loss)),
        (format!("Gaussian, delta = {DELTA}"), Price::Concentrated(rho)),
    ];
    let ks = (0..=40).map(|i| spread(outcome.queries, f64::from(i) / 40.0));
    let ks: Vec<u64> = ks.collect();
    let line = |price: Price| -> anyhow::Result<Vec<(f64, f64)>> {
        let share = |&k: &u64| -> anyhow::Result<(f64, f64)> {
            Ok((k as f64, accuracy(k, price, 0.05)? as f64 / outcome.rows as f64))
        };
        ks.iter().map(share).collect()
    };
    // The first colour is reserved for multiplicative weights.
    let mut lines = vec![(String::new(), Vec::new())];
    for (name, price) in prices {
        lines.push((name, line(price)?));
    }
    Ok(lines)
}

/// A power of the number of queries, as a number of queries.
fn spread(queries: u64, exponent: f64) -> u64 {
    whole((queries as f64).powf(exponent))
}

fn draw(area: &Area<'_>, caption: &str, x: &str, lines: &[Line]) -> anyhow::Result<()> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let right = points().map(|point| point.0).fold(10.0, f64::max);
    let top = points().map(|point| point.1).fold(1e-9, f64::max) * 2.0;
    // The legend is placed below the curves.
    let bottom = points().map(|point| point.1).fold(top, f64::min).max(1e-9) / 6.0;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(10)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d((1.0..right).log_scale(), (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(x)
        .y_desc("error, as a share of the rows")
        .draw()?;
    for ((name, points), colour) in lines.iter().zip(COLOURS) {
        if points.is_empty() {
            continue;
        }
        let series = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
        let key = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
        chart.draw_series(series)?.label(name.clone()).legend(key);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(170, 170, 170))
        .draw()?;
    Ok(())
}
