//! Regret and its price against time, as a picture.

use plotters::prelude::*;

use super::outcome::{CuratorOutcome, Row};
use crate::picture::{Area, Legend, Palette, PictureFile, Sign, count_label, log_label};
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

    fn draw(&self, file: &PictureFile) -> anyhow::Result<()> {
        write(file, self)
    }
}

/// Writes two panels for each algorithm as a picture: mean regrets with their 95% intervals,
/// with and without privacy, and the price of privacy.
fn write(file: &PictureFile, outcome: &CuratorOutcome) -> anyhow::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for row in &outcome.rows {
        if !names.contains(&row.algorithm.as_str()) {
            names.push(&row.algorithm);
        }
    }
    let all: Vec<&Row> = outcome.rows.iter().collect();
    let curves_of_all = curves(&all);
    let rhos: Vec<String> = curves_of_all.iter().map(|(rho, _)| label(*rho)).collect();
    let palette = Palette::of(rhos.iter().map(String::as_str));
    let mut legend = Legend::default();
    for rho in &rhos {
        legend.add(rho, palette.colour(rho), Sign::Line);
    }
    legend.add("no privacy", BLACK, Sign::Thin);
    let (width, lines) = (2 * PANEL.0, names.len().max(1));
    let height = (PANEL.1 * u32::try_from(lines)?).max(legend.height());
    file.write((width + legend.width(), height), |area| {
        let (charts, beside) = area.split_horizontally(width);
        let panels = charts.split_evenly((lines, 2));
        for (name, panels) in names.iter().zip(panels.chunks_exact(2)) {
            let rows: Vec<&Row> =
                outcome.rows.iter().filter(|row| row.algorithm == *name).collect();
            draw_regret(&panels[0], name, &curves(&rows), &palette)?;
            draw_price(&panels[1], name, &curves(&rows), &palette)?;
        }
        legend.draw(&beside)
    })
}

/// The name of a curve.
fn label(rho: f64) -> String {
    format!("rho {rho}")
}

/// The rows, grouped by ρ, in its order.
fn curves<'r>(rows: &[&'r Row]) -> Vec<(f64, Vec<&'r Row>)> {
    let mut curves: Vec<(f64, Vec<&Row>)> = Vec::new();
    for row in rows {
        match curves.iter_mut().find(|(rho, _)| rho.total_cmp(&row.rho).is_eq()) {
            Some((_, curve)) => curve.push(row),
            None => curves.push((row.rho, vec![row])),
        }
    }
    curves.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    curves
}

fn ends(curves: &[(f64, Vec<&Row>)]) -> std::ops::Range<u64> {
    let horizons = || curves.iter().flat_map(|(_, rows)| rows.iter().map(|row| row.horizon));
    let (first, last) = (horizons().min().unwrap_or(1), horizons().max().unwrap_or(10));
    first..last.max(first + 1)
}

fn draw_regret(
    area: &Area<'_>,
    name: &str,
    curves: &[(f64, Vec<&Row>)],
    palette: &Palette,
) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, rows)| rows);
    let top = all().map(|row| row.mean_regret + row.ci95).fold(10.0 * FLOOR, f64::max) * 1.2;
    let least = |row: &&Row| row.nonprivate_regret.min(row.mean_regret - row.ci95);
    let bottom = (0.8 * all().map(least).fold(f64::INFINITY, f64::min)).clamp(FLOOR, top / 10.0);
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
    for (rho, rows) in curves {
        let colour = palette.colour(&label(*rho));
        let points = rows.iter().map(|row| (row.horizon, row.mean_regret.max(bottom)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        let whisker = |row: &&Row| {
            let (low, high) = (row.mean_regret - row.ci95, row.mean_regret + row.ci95);
            let ends = [(row.horizon, low.max(bottom)), (row.horizon, high.max(bottom))];
            PathElement::new(ends, colour)
        };
        chart.draw_series(rows.iter().map(whisker))?;
    }
    if let Some((_, rows)) = curves.first() {
        let points = rows.iter().map(|row| (row.horizon, row.nonprivate_regret.max(bottom)));
        chart.draw_series(LineSeries::new(points, BLACK.stroke_width(1)))?;
    }
    Ok(())
}

fn draw_price(
    area: &Area<'_>,
    name: &str,
    curves: &[(f64, Vec<&Row>)],
    palette: &Palette,
) -> anyhow::Result<()> {
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
    for (rho, rows) in curves {
        let colour = palette.colour(&label(*rho));
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
