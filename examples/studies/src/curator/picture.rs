//! Regret and its price against time, as a picture.

use std::path::Path;

use anyhow::Context as _;
use plotters::prelude::*;

use super::outcome::{CuratorOutcome, Row};
use crate::picture::{Area, COLOURS, count_label, log_label};
use crate::program::Outcome;

const PANEL: (u32, u32) = (520, 320);

/// Lower end of the regret axis.
const FLOOR: f64 = 1.0;

impl Outcome for CuratorOutcome {
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

/// Writes two panels for each algorithm as an SVG file: mean regrets with their 95% intervals,
/// with and without privacy, and the price of privacy.
fn write(path: &Path, outcome: &CuratorOutcome) -> anyhow::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for row in &outcome.rows {
        if !names.contains(&row.algorithm.as_str()) {
            names.push(&row.algorithm);
        }
    }
    let size = (2 * PANEL.0, PANEL.1 * u32::try_from(names.len().max(1))?);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((names.len().max(1), 2));
    for (name, panels) in names.iter().zip(panels.chunks_exact(2)) {
        let rows: Vec<&Row> = outcome.rows.iter().filter(|row| row.algorithm == *name).collect();
        draw_regret(&panels[0], name, &curves(&rows))?;
        draw_price(&panels[1], name, &curves(&rows))?;
    }
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

/// The rows, grouped by ρ.
fn curves<'r>(rows: &[&'r Row]) -> Vec<(f64, Vec<&'r Row>)> {
    let mut curves: Vec<(f64, Vec<&Row>)> = Vec::new();
    for row in rows {
        match curves.iter_mut().find(|(rho, _)| rho.total_cmp(&row.rho).is_eq()) {
            Some((_, curve)) => curve.push(row),
            None => curves.push((row.rho, vec![row])),
        }
    }
    curves
}

fn ends(curves: &[(f64, Vec<&Row>)]) -> std::ops::Range<u64> {
    let horizons = || curves.iter().flat_map(|(_, rows)| rows.iter().map(|row| row.horizon));
    let (first, last) = (horizons().min().unwrap_or(1), horizons().max().unwrap_or(10));
    first..last.max(first + 1)
}

fn draw_regret(area: &Area<'_>, name: &str, curves: &[(f64, Vec<&Row>)]) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, rows)| rows);
    let top = all().map(|row| row.mean_regret + row.ci95).fold(10.0 * FLOOR, f64::max) * 1.2;
    let least = |row: &&Row| row.nonprivate_regret.min(row.mean_regret - row.ci95);
    let bottom = (0.8 * all().map(least).fold(f64::INFINITY, f64::min)).clamp(FLOOR, top / 10.0);
    // The legend is placed above the curves.
    let top = top * (top / bottom).powf(0.4);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{name}: regret"), ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(ends(curves).log_scale(), (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("rounds")
        .x_label_formatter(&|rounds| log_label(*rounds as f64))
        .y_label_formatter(&|regret| log_label(*regret))
        .draw()?;
    for (place, (rho, rows)) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let points = rows.iter().map(|row| (row.horizon, row.mean_regret.max(bottom)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(format!("rho {rho}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        let whisker = |row: &&Row| {
            let (low, high) = (row.mean_regret - row.ci95, row.mean_regret + row.ci95);
            let ends = [(row.horizon, low.max(bottom)), (row.horizon, high.max(bottom))];
            PathElement::new(ends, colour)
        };
        chart.draw_series(rows.iter().map(whisker))?;
    }
    if let Some((_, rows)) = curves.first() {
        let points = rows.iter().map(|row| (row.horizon, row.nonprivate_regret.max(bottom)));
        chart
            .draw_series(LineSeries::new(points, BLACK.stroke_width(1)))?
            .label("no privacy")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    Ok(())
}

fn draw_price(area: &Area<'_>, name: &str, curves: &[(f64, Vec<&Row>)]) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, rows)| rows);
    let top = all().map(|row| row.price_of_privacy + row.price_ci95).fold(1.0, f64::max) * 1.1;
    let low = all().map(|row| row.price_of_privacy - row.price_ci95).fold(0.0, f64::min) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{name}: price of privacy"), ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(ends(curves).log_scale(), low..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("rounds")
        .x_label_formatter(&|rounds| log_label(*rounds as f64))
        .y_label_formatter(&|regret| count_label(*regret))
        .draw()?;
    for (place, (_, rows)) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let points = rows.iter().map(|row| (row.horizon, row.price_of_privacy));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        let whisker = |row: &&Row| {
            let (price, half) = (row.price_of_privacy, row.price_ci95);
            PathElement::new([(row.horizon, price - half), (row.horizon, price + half)], colour)
        };
        chart.draw_series(rows.iter().map(whisker))?;
    }
    Ok(())
}
