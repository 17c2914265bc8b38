//! A picture of a simulation: traffic per arm, and regret over time.

use bandana_lab::instance::Instance;
use bandana_lab::instance::largest;
use bandana_studies::picture::{
    Area, Legend, OTHERS, Palette, PictureFile, Sign, count_label, shortened,
};
use plotters::coord::types::{RangedCoordf64, RangedCoordu64};
use plotters::prelude::*;

use crate::simulation::Progress;

/// Number of arms with a colour and a legend entry: those played most.
const NAMED_ARMS: usize = 6;

/// Width of both panels, and the height of each.
const WIDTH: u32 = 780;
const HEIGHT: u32 = 360;

/// The colour of the learner's regret.
const LEARNER: RGBColor = RGBColor(0, 114, 178);

/// Writes the picture.
///
/// # Errors
/// When the file can't be written.
pub fn write(
    file: &PictureFile,
    title: &str,
    instance: &Instance,
    rounds: &[Progress],
) -> anyhow::Result<()> {
    let last = rounds.last().map_or(&[][..], |round| &round.plays);
    let mut order: Vec<usize> = (0..instance.arms.len()).collect();
    order.sort_by_key(|&arm| std::cmp::Reverse(last.get(arm).copied().unwrap_or(0)));
    let (named, others) = order.split_at(order.len().min(NAMED_ARMS));
    let label = |arm: usize| instance.arms[arm].label.as_str();
    let palette = Palette::of(named.iter().map(|arm| label(*arm)));
    // Grey lines first, so that none covers a coloured one.
    let grey = others.iter().map(|arm| (*arm, OTHERS, 1));
    let coloured = named.iter().rev().map(|arm| (*arm, palette.colour(label(*arm)), 2));
    let arms: Vec<(usize, RGBColor, u32)> = grey.chain(coloured).collect();

    let (mut traffic, mut regret) = (Legend::default(), Legend::default());
    for arm in named {
        traffic.add(label(*arm), palette.colour(label(*arm)), Sign::Line);
    }
    if !others.is_empty() {
        traffic.add(&format!("{} other arms", others.len()), OTHERS, Sign::Thin);
    }
    regret.add("the learner", LEARNER, Sign::Line);
    regret.add("uniform play", OTHERS, Sign::Line);

    let beside = traffic.width().max(regret.width());
    file.write((WIDTH + beside, 40 + 2 * HEIGHT), |area| {
        let area = area.titled(&shortened(title, 100), ("sans-serif", 18))?;
        let (panels, legends) = area.split_horizontally(WIDTH);
        let (upper, lower) = panels.split_vertically(HEIGHT);
        draw_traffic(&upper, &arms, rounds)?;
        draw_regret(&lower, instance, rounds)?;
        let (upper, lower) = legends.split_vertically(HEIGHT);
        traffic.draw(&upper)?;
        regret.draw(&lower)
    })
}

/// A panel by numbers of users.
type Panel<'a, 'p> = ChartContext<'a, SVGBackend<'p>, Cartesian2d<RangedCoordu64, RangedCoordf64>>;

/// Draws the axes of a panel, which end at this number of users and at `top`.
fn axes<'a, 'p>(
    area: &'a Area<'p>,
    caption: &str,
    quantity: &str,
    (users, top): (u64, f64),
) -> anyhow::Result<Panel<'a, 'p>> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(10)
        .margin_right(32)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0..users, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels(8)
        .x_label_formatter(&|users| count_label(*users as f64))
        .x_desc("users")
        .y_desc(quantity)
        .y_label_formatter(&|number| count_label(*number))
        .draw()?;
    Ok(chart)
}

/// Draws the share of each arm among the users of each round.
fn draw_traffic(
    area: &Area<'_>,
    arms: &[(usize, RGBColor, u32)],
    rounds: &[Progress],
) -> anyhow::Result<()> {
    let users = rounds.last().map_or(1, |round| round.users);
    let caption = "Traffic per arm (share of the users of a round)";
    let mut chart = axes(area, caption, "share", (users, 1.0))?;
    for &(arm, colour, width) in arms {
        let line = LineSeries::new(shares(rounds, arm), colour.stroke_width(width));
        chart.draw_series(line)?;
    }
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
    let mut chart = axes(area, "Regret", "regret", (users, top))?;
    let line = rounds.iter().map(|round| (round.users, round.regret));
    let uniform = [(0, 0.0), (users, gap * users as f64)];
    chart.draw_series(LineSeries::new(uniform, OTHERS.stroke_width(2)))?;
    chart.draw_series(LineSeries::new(line, LEARNER.stroke_width(2)))?;
    Ok(())
}
