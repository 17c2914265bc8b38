//! Regret studies: their picture, and trials that are kept in a file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use plotters::prelude::*;

use crate::picture::{Area, COLOURS, Sign, draw_legend, log_label};
use crate::program::Outcome;
use bandana_lab::{FinishedTrial, Row, Study, StudyOutcome};

const PANEL: (u32, u32) = (500, 400);

/// Width of the legend.
const LEGEND: u32 = 210;

/// Lower limit of drawn regrets; smaller ones are drawn at it.
const FLOOR: f64 = 10.0;

/// The rows of one curve, by horizon.
type Curves<'r> = BTreeMap<(String, String), Vec<&'r Row>>;

/// A file with finished trials, a line of JSON for each.
#[derive(Debug)]
pub struct KeptTrials {
    trials: Vec<FinishedTrial>,
    file: Mutex<File>,
}

impl KeptTrials {
    /// Opens a file, or makes it. A last line without an end, as an interrupted write leaves it, is
    /// cut off.
    ///
    /// # Errors
    /// When it can't be read or written, and when a line is no trial.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let told = || format!("the trials in {}", path.display());
        let file = OpenOptions::new().append(true).create(true).open(path).with_context(told)?;
        let text = std::fs::read_to_string(path).with_context(told)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).with_context(told)?;
        let line = |(line, number): (&str, usize)| {
            serde_json::from_str(line)
                .with_context(|| format!("{}, line {number}, which is no trial of a study", told()))
        };
        let trials = text[..whole].lines().zip(1..).map(line).collect::<anyhow::Result<_>>()?;
        Ok(Self { trials, file: Mutex::new(file) })
    }

    /// Runs the trials of a study that are not kept, and keeps them.
    ///
    /// # Errors
    /// As [`Study::resume`]; when a trial can't be written.
    pub fn run(
        self,
        study: &Study,
        stop: &AtomicBool,
        progress: &(dyn Fn(usize) + Sync),
    ) -> anyhow::Result<StudyOutcome> {
        let done = AtomicUsize::new(0);
        study.resume(self.trials, stop, |trial| {
            let line = serde_json::to_string(trial)? + "\n";
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes()).context("keeping a trial")?;
            drop(file);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            Ok(())
        })
    }
}

impl Outcome for StudyOutcome {
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

/// Writes one panel for each epsilon as an SVG file: mean regrets with their 95%
/// intervals, and bounds in the same colour: the lower one as a thin line, the upper one,
/// where the papers have one, dashed. Curves without privacy are in all panels.
fn write(path: &Path, outcome: &StudyOutcome) -> anyhow::Result<()> {
    let mut epsilons: Vec<f64> = outcome.rows.iter().filter_map(|row| row.epsilon).collect();
    epsilons.sort_by(f64::total_cmp);
    epsilons.dedup();
    let panels = epsilons.len().max(1);
    let columns = panels.min(2);
    let lines = panels.div_ceil(columns);
    let width = PANEL.0 * u32::try_from(columns)?;
    let size = (width + LEGEND, 40 + PANEL.1 * u32::try_from(lines)?);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let trials = outcome.rows.iter().map(|row| row.trials).max().unwrap_or(0);
    let title = format!("{}, {trials} trials", outcome.instance);
    let area = area.titled(&title, ("sans-serif", 18))?;
    let (charts, legend) = area.split_horizontally(width);
    let mut palette = BTreeMap::new();
    for row in &outcome.rows {
        let next = COLOURS[palette.len() % COLOURS.len()];
        palette.entry(key(row)).or_insert(next);
    }
    for (place, panel) in charts.split_evenly((lines, columns)).iter().enumerate().take(panels) {
        let epsilon = epsilons.get(place).copied();
        draw(panel, outcome, epsilon, &palette)?;
    }
    draw_legend(&legend, &entries(outcome, &palette))?;
    area.present().with_context(|| format!("writing the plot {}", path.display()))
}

/// The legend: every curve, and what the lines without a name are.
fn entries(
    outcome: &StudyOutcome,
    palette: &BTreeMap<(String, String), RGBColor>,
) -> Vec<(String, RGBColor, Sign)> {
    let name = |(learner, mechanism): &(String, String)| match mechanism.as_str() {
        "none" => learner.clone(),
        _ => format!("{learner}, {mechanism}"),
    };
    let curve = |(key, colour): (&(String, String), &RGBColor)| (name(key), *colour, Sign::Line);
    let mut entries: Vec<_> = palette.iter().map(curve).collect();
    let grey = RGBColor(110, 110, 110);
    if outcome.rows.iter().any(|row| row.lower_bound.is_some()) {
        entries.push(("lower bound of the channel".to_owned(), grey, Sign::Thin));
    }
    if outcome.rows.iter().any(|row| row.upper_bound.is_some()) {
        entries.push(("proven upper bound".to_owned(), grey, Sign::Dashed));
    }
    entries
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
        .x_label_formatter(&|rounds| log_label(*rounds as f64))
        .y_label_formatter(&|regret| log_label(*regret))
        .draw()?;
    for (name, rows) in &curves {
        let colour = palette.get(name).copied().unwrap_or(BLACK);
        let point = |row: &&Row| (row.horizon, row.mean_regret.max(FLOOR));
        let line = LineSeries::new(rows.iter().map(point), colour.stroke_width(2));
        chart.draw_series(line)?;
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bandana_lab::{Contestant, Course, Instance, Privacy, StandardLearner};
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;

    use super::*;

    fn study(trials: usize) -> Study {
        let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(2.0).unwrap() };
        let learner = |one: StandardLearner| Arc::new(one) as Arc<dyn Contestant>;
        let learners = vec![learner(StandardLearner::LdpTs), learner(StandardLearner::Imed)];
        Study {
            trials,
            course: Course::to(1000),
            ..Study::new("paper-20", Arc::new(Instance::paper_20()), privacy, learners)
        }
    }

    #[test]
    fn a_picture_names_its_curves_and_its_bounds() {
        let mechanisms = vec![Mechanism::Linear, Mechanism::Exponential];
        let study = Study { mechanisms, ..study(2) };
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("regret.svg");
        outcome.draw(&path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        for name in
            ["ldp-ts, linear", "imed, exponential", "lower bound of", "upper bound", "epsilon 2"]
        {
            assert!(picture.contains(name), "{name}");
        }
    }

    #[test]
    fn a_study_that_was_interrupted_goes_on_with_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trials.jsonl");
        let run = |trials, stop_after: usize| {
            let (stop, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
            let kept = KeptTrials::open(&path).unwrap();
            let outcome = kept.run(&study(trials), &stop, &|done| {
                ran.store(done, Ordering::Relaxed);
                stop.store(done == stop_after, Ordering::Relaxed);
            });
            (outcome.unwrap(), ran.into_inner())
        };
        let (part, ran) = run(4, 3);
        assert!(part.interrupted && ran == 3);
        // As a kill in the middle of a write leaves it.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"entry\":\"ldp-ts").unwrap();
        let (whole, ran) = run(4, usize::MAX);
        assert_eq!(ran, 5);
        let regrets = |outcome: &StudyOutcome| -> Vec<f64> {
            outcome.rows.iter().map(|row| row.mean_regret).collect()
        };
        let at_once = study(4).run(&AtomicBool::new(false), |_| {}).unwrap();
        assert_eq!(regrets(&whole), regrets(&at_once));
        // Trials of another course are not taken for these, and a line that is none is said.
        let other = Study { course: Course::to(2000), ..study(1) };
        let kept = KeptTrials::open(&path).unwrap();
        let counted = AtomicUsize::new(0);
        let count = |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        kept.run(&other, &AtomicBool::new(false), &count).unwrap();
        assert_eq!(counted.into_inner(), 2);
        std::fs::write(&path, "no trial\n").unwrap();
        let error = format!("{:#}", KeptTrials::open(&path).unwrap_err());
        assert!(error.contains("line 1, which is no trial"), "{error}");
    }
}
