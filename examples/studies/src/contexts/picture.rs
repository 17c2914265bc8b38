//! The picture of a context study: the share of contexts' worth that is recovered, by epsilon.

use plotters::prelude::*;

use super::{ContextOutcome, ContextRow};
use crate::picture::{Area, Legend, Palette, PictureFile, Sign};
use crate::program::Outcome;

const PANEL: (u32, u32) = (460, 340);

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

    fn draw(&self, file: &PictureFile) -> anyhow::Result<()> {
        write(file, self)
    }
}

/// Writes one panel as a picture: a line for each instance with contexts that are worth something.
fn write(file: &PictureFile, outcome: &ContextOutcome) -> anyhow::Result<()> {
    let rows: Vec<&ContextRow> = outcome.rows.iter().filter(|row| row.worth > 0.0).collect();
    let mut lines: Vec<String> = Vec::new();
    for name in rows.iter().map(|row| name_of(row)) {
        if !lines.contains(&name) {
            lines.push(name);
        }
    }
    let palette = Palette::of(lines.iter().map(String::as_str));
    let mut legend = Legend::default();
    for line in &lines {
        legend.add(line, palette.colour(line), Sign::Point);
    }
    let (users, share) = (outcome.users, 100.0 * outcome.exploration);
    let title = format!("{users} users in private contexts, {share}% of whom explore");
    file.write((PANEL.0 + legend.width(), 40 + PANEL.1.max(legend.height())), |area| {
        let area = area.titled(&title, ("sans-serif", 18))?;
        let (chart, beside) = area.split_horizontally(PANEL.0);
        draw(&chart, &rows, &lines, &palette)?;
        legend.draw(&beside)
    })
}

fn name_of(row: &ContextRow) -> String {
    format!("{}, {}", row.instance, row.features)
}

fn draw(
    area: &Area<'_>,
    rows: &[&ContextRow],
    lines: &[String],
    palette: &Palette,
) -> anyhow::Result<()> {
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
    for line in lines {
        let colour = palette.colour(line);
        let own = rows.iter().filter(|row| name_of(row) == *line);
        let points: Vec<(f64, f64)> =
            own.map(|row| (row.epsilon, row.recovered.max(LEAST))).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|at| Circle::new(*at, 4, colour.filled())))?;
    }
    Ok(())
}
