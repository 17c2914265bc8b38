//! Regret against changes of arm, as a picture.

use plotters::prelude::*;

use super::outcome::{VisitsOutcome, VisitsRow};
use crate::picture::{Area, Legend, Palette, PictureFile, Sign, shortened};
use crate::program::Outcome;

const PANEL: (u32, u32) = (420, 340);

impl Outcome for VisitsOutcome {
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

/// Writes one panel for each epsilon as a picture: regret per visit with its 95% interval, by
/// changes of arm per user, a point for each way of assignment.
fn write(file: &PictureFile, outcome: &VisitsOutcome) -> anyhow::Result<()> {
    let (mut epsilons, mut ways): (Vec<f64>, Vec<&str>) = (Vec::new(), Vec::new());
    for row in &outcome.rows {
        if !epsilons.contains(&row.epsilon) {
            epsilons.push(row.epsilon);
        }
        if !ways.contains(&row.assignment.as_str()) {
            ways.push(&row.assignment);
        }
    }
    let width = PANEL.0 * u32::try_from(epsilons.len())?;
    let palette = Palette::of(ways.iter().copied());
    let mut legend = Legend::default();
    for way in &ways {
        legend.add(way, palette.colour(way), Sign::Point);
    }
    let VisitsOutcome { instance, learner, users, visits, .. } = outcome;
    let title =
        format!("{}, {learner}, {users} users with {visits} visits", shortened(instance, 40));
    file.write((width + legend.width(), 40 + PANEL.1.max(legend.height())), |area| {
        let area = area.titled(&title, ("sans-serif", 18))?;
        let (charts, beside) = area.split_horizontally(width);
        for (panel, epsilon) in charts.split_evenly((1, epsilons.len())).iter().zip(&epsilons) {
            let rows = outcome.rows.iter().filter(|row| row.epsilon.total_cmp(epsilon).is_eq());
            draw(panel, &rows.collect::<Vec<_>>(), &palette)?;
        }
        legend.draw(&beside)
    })
}

fn draw(area: &Area<'_>, rows: &[&VisitsRow], palette: &Palette) -> anyhow::Result<()> {
    let most = |of: fn(&VisitsRow) -> f64| rows.iter().map(|row| of(row)).fold(0.0, f64::max);
    let right = 1.1 * most(|row| row.changes_per_user).max(0.01);
    let top = 1.1 * most(|row| row.regret_per_visit + row.regret_ci95).max(1e-4);
    let epsilon = rows.first().map_or(0.0, |row| row.epsilon);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("epsilon {epsilon} of a report"), ("sans-serif", 15))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(64)
        // A point at 0 is whole.
        .build_cartesian_2d(-0.03 * right..right, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels(6)
        .x_desc("changes of arm per user")
        .y_desc("regret per visit")
        .draw()?;
    for row in rows {
        let colour = palette.colour(&row.assignment);
        let (x, y, half) = (row.changes_per_user, row.regret_per_visit, row.regret_ci95);
        let ends = [(x, (y - half).max(0.0)), (x, y + half)];
        chart.draw_series([PathElement::new(ends, colour.stroke_width(2))])?;
        chart.draw_series([Circle::new((x, y), 4, colour.filled())])?;
    }
    Ok(())
}
