//! A picture of a simulation: traffic per arm, and regret over time.

use std::path::Path;

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::simulation::Progress;
use bandana_lab::instance::Instance;
use bandana_lab::instance::largest;

/// Number of arms with a colour and a legend entry: those played most.
const NAMED_ARMS: usize = 6;

/// Colours that remain distinct for colour-blind people (Okabe and Ito).
const COLOURS: [RGBColor; NAMED_ARMS] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

const OTHERS: RGBColor = RGBColor(170, 170, 170);

/// Writes the picture as an SVG file.
///
/// # Errors
/// When the file can't be written.
pub fn write(
    path: &Path,
    title: &str,
    instance: &Instance,
    rounds: &[Progress],
) -> anyhow::Result<()> {
    let area = SVGBackend::new(path, (960, 760)).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(title, ("sans-serif", 20))?;
    let (upper, lower) = area.split_vertically(400);
    draw_traffic(&upper, instance, rounds)?;
    draw_regret(&lower, instance, rounds)?;
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;

/// Draws the share of each arm among the users of each round.
fn draw_traffic(area: &Area<'_>, instance: &Instance, rounds: &[Progress]) -> anyhow::Result<()> {
    let users = rounds.last().map_or(1, |round| round.users);
    let mut chart = ChartBuilder::on(area)
        .caption("Traffic per arm (share of the users of a round)", ("sans-serif", 15))
        .margin(10)
        .margin_right(32)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0..users, 0.0..1.0)?;
    chart.configure_mesh().light_line_style(WHITE).x_desc("users").y_desc("share").draw()?;

    let last = rounds.last().map_or(&[][..], |round| &round.plays);
    let mut order: Vec<usize> = (0..instance.arms.len()).collect();
    order.sort_by_key(|&arm| std::cmp::Reverse(last.get(arm).copied().unwrap_or(0)));
    // Grey lines first, so that none covers a coloured one.
    let (named, others) = order.split_at(order.len().min(NAMED_ARMS));
    let ranked = others.iter().zip(NAMED_ARMS..).chain(named.iter().zip(0..));
    for (&arm, rank) in ranked {
        let colour = COLOURS.get(rank).copied().unwrap_or(OTHERS);
        let width = if rank < NAMED_ARMS { 2 } else { 1 };
        let line = LineSeries::new(shares(rounds, arm), colour.stroke_width(width));
        let series = chart.draw_series(line)?;
        if rank < NAMED_ARMS {
            let key = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
            series.label(instance.arms[arm].label.clone()).legend(key);
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.85))
        .border_style(OTHERS)
        .draw()?;
    Ok(())
}

/// For every round, its end and the share of its users that got `arm`.
fn shares(rounds: &[Progress], arm: usize) -> Vec<(u64, f64)> {
    let before = std::iter::once((0, 0)).chain(rounds.iter().map(|r| (r.users, r.plays[arm])));
    let share = |(round, (users, plays)): (&Progress, (u64, u64))| {
        let share = (round.plays[arm] - plays) as f64 / (round.users - users).max(1) as f64;
        (round.users, share)
    };
    rounds.iter().zip(before).map(share).collect()
}

/// Draws the regret so far, and that of uniform play.
fn draw_regret(area: &Area<'_>, instance: &Instance, rounds: &[Progress]) -> anyhow::Result<()> {
    let means = instance.means();
    let best = means[largest(&means)];
    let gap = means.iter().map(|mean| best - mean).sum::<f64>() / means.len() as f64;
    let (users, regret) = rounds.last().map_or((1, 1.0), |round| (round.users, round.regret));
    let top = regret.max(gap * users as f64).max(1.0) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption("Regret", ("sans-serif", 15))
        .margin(10)
        .margin_right(32)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0..users, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("users")
        .y_desc("regret")
        .y_label_formatter(&|regret| format!("{regret:.0}"))
        .draw()?;
    let lines = [
        ("learner", COLOURS[0], rounds.iter().map(|r| (r.users, r.regret)).collect::<Vec<_>>()),
        ("uniform play", OTHERS, vec![(0, 0.0), (users, gap * users as f64)]),
    ];
    for (name, colour, points) in lines {
        let series = chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        let key = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
        series.label(name).legend(key);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(OTHERS)
        .draw()?;
    Ok(())
}
