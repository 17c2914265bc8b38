//! Regret against time, as a picture.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::outcome::{Row, StudyOutcome};

/// Colours that remain distinct for colour-blind people (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 120, 60),
];

const PANEL: (u32, u32) = (560, 400);

/// Lower limit of drawn regrets; smaller ones are drawn at it.
const FLOOR: f64 = 10.0;

type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;

/// The rows of one curve, by horizon.
type Curves<'r> = BTreeMap<(String, String), Vec<&'r Row>>;

/// Writes one panel for each epsilon as an SVG file: mean regrets with their 95%
/// intervals, and bounds in the same colour: the lower one as a thin line, the upper one,
/// where the papers have one, dashed. Curves without privacy are in all panels.
///
/// # Errors
/// When the file can't be written.
pub fn write(path: &Path, title: &str, outcome: &StudyOutcome) -> anyhow::Result<()> {
    let mut epsilons: Vec<f64> = outcome.rows.iter().filter_map(|row| row.epsilon).collect();
    epsilons.sort_by(f64::total_cmp);
    epsilons.dedup();
    let panels = epsilons.len().max(1);
    let columns = panels.min(2);
    let lines = panels.div_ceil(columns);
    let size = (PANEL.0 * u32::try_from(columns)?, 40 + PANEL.1 * u32::try_from(lines)?);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(title, ("sans-serif", 18))?;
    let mut palette = BTreeMap::new();
    for row in &outcome.rows {
        let next = COLOURS[palette.len() % COLOURS.len()];
        palette.entry(key(row)).or_insert(next);
    }
    for (place, panel) in area.split_evenly((lines, columns)).iter().enumerate().take(panels) {
        let epsilon = epsilons.get(place).copied();
        draw(panel, outcome, epsilon, &palette)?;
    }
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

fn key(row: &Row) -> (String, String) {
    (row.learner.clone(), row.mechanism.clone())
}

fn draw(
    area: &Area<'_>,
    outcome: &StudyOutcome,
    epsilon: Option<f64>,
    palette: &BTreeMap<(String, String), RGBColor>,
) -> anyhow::Result<()> {
    let mut curves: Curves<'_> = BTreeMap::new();
    for row in outcome.rows.iter().filter(|row| row.epsilon.is_none() || row.epsilon == epsilon) {
        curves.entry(key(row)).or_default().push(row);
    }
    let all = || curves.values().flatten();
    let horizon = all().map(|row| row.horizon).max().unwrap_or(1000);
    let highest = |row: &&Row| (row.mean_regret + row.ci95).max(row.upper_bound.unwrap_or(0.0));
    let top = all().map(highest).fold(10.0 * FLOOR, f64::max) * 1.1;
    let caption = epsilon.map_or("without privacy".to_owned(), |e| format!("epsilon {e}"));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d((100_u64..horizon).log_scale(), (FLOOR..top).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("rounds")
        .y_desc("regret")
        .x_label_formatter(&|rounds| format!("{rounds}"))
        .y_label_formatter(&|regret| format!("{regret:.0}"))
        .draw()?;
    for (name, rows) in &curves {
        let colour = palette.get(name).copied().unwrap_or(BLACK);
        let point = |row: &&Row| (row.horizon, row.mean_regret.max(FLOOR));
        let line = LineSeries::new(rows.iter().map(point), colour.stroke_width(2));
        let legend =
            if name.1 == "none" { name.0.clone() } else { format!("{}, {}", name.0, name.1) };
        chart
            .draw_series(line)?
            .label(legend)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        let whiskers = rows.iter().map(|row| {
            let (low, high) = (row.mean_regret - row.ci95, row.mean_regret + row.ci95);
            PathElement::new(
                [(row.horizon, low.max(FLOOR)), (row.horizon, high.max(FLOOR))],
                colour,
            )
        });
        chart.draw_series(whiskers)?;
        let bound = rows.iter().filter_map(|row| Some((row.horizon, row.lower_bound?)));
        let visible = bound.filter(|(_, bound)| *bound <= top);
        chart.draw_series(LineSeries::new(visible, colour.mix(0.4).stroke_width(1)))?;
        let bound = rows.iter().filter_map(|row| Some((row.horizon, row.upper_bound?)));
        let dashes = colour.mix(0.6).stroke_width(1);
        chart.draw_series(DashedLineSeries::new(bound, 5, 4, dashes))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 11))
        .draw()?;
    Ok(())
}
