//! Budgets while the device's clock is moved: what leaves in a window of true days stays within its
//! cap, and nothing ends reporting for good.

use std::path::Path;
use std::sync::Arc;

use bandana_client::{Bandana, Reporting, Tasks, Unreported};

use super::{Failure, Hands, NAME, serve, started};

const DAY: u64 = 86_400;
const YEAR: i64 = 365 * 86_400;

fn why(bandana: &Bandana) -> Result<Option<Unreported>, Failure> {
    let choice = bandana.experiment(NAME)?.draw();
    Ok(choice.assignment().ok_or("no arm")?.unreported())
}

/// Draws so many arms, and returns how many of them report.
fn reporting(bandana: &Bandana, draws: u32) -> Result<usize, Failure> {
    let whys = (0..draws).map(|_| why(bandana));
    Ok(whys.collect::<Result<Vec<_>, _>>()?.iter().filter(|why| why.is_none()).count())
}

/// Lets two hours pass, by when all that was drawn is due, and returns the number of uploads. If they
/// fill the window, the day is heard within five minutes after them.
fn sent(tasks: &mut Tasks, clock: &Hands) -> Result<usize, Failure> {
    clock.forward(7200);
    let sent = serve(tasks, clock)?.len();
    clock.forward(300);
    Ok(sent + serve(tasks, clock)?.len())
}

/// Starts with a cap of five reports in seven days.
fn start(path: &Path, clock: &Arc<Hands>) -> Result<(Bandana, Tasks), Failure> {
    started(path, clock, 5)
}

/// Checks that the window that has just been spent opens on the seventh day, and not before.
fn opens_after_a_week(bandana: &Bandana, tasks: &mut Tasks, clock: &Hands) -> Result<(), Failure> {
    for (days, open) in [(6, 0), (1, 5)] {
        clock.forward(days * DAY);
        why(bandana)?;
        sent(tasks, clock)?;
        assert_eq!(reporting(bandana, 10)?, open, "{days} more days");
    }
    Ok(())
}

#[test]
fn a_clock_that_runs_ahead_opens_no_window() -> Result<(), Failure> {
    for has_boot_time in [true, false] {
        let directory = tempfile::tempdir()?;
        let clock = Hands::with_boot_time(has_boot_time);
        let (bandana, mut tasks) = start(directory.path(), &clock)?;
        let mut left = 0;
        for times in 0..10 {
            // Eight days ahead, a second each, and right again.
            clock.set_wrong(8 * 86_400 * (times + 1));
            reporting(&bandana, 10)?;
            clock.forward(1);
            left += serve(&mut tasks, &clock)?.len();
            clock.set_wrong(0);
            reporting(&bandana, 10)?;
            left += serve(&mut tasks, &clock)?.len();
        }
        for _ in 0..6 {
            left += sent(&mut tasks, &clock)?;
            reporting(&bandana, 10)?;
        }
        assert_eq!(left, 5, "boot time: {has_boot_time}");
        assert_eq!(bandana.status().spent.window.get(), 5_000_000_000);
    }
    Ok(())
}

#[test]
fn a_glitch_ends_nothing() -> Result<(), Failure> {
    for has_boot_time in [true, false] {
        let directory = tempfile::tempdir()?;
        let clock = Hands::with_boot_time(has_boot_time);
        let (bandana, mut tasks) = start(directory.path(), &clock)?;
        // The last second of a 32-bit clock.
        clock.set_wrong(80 * YEAR);
        let during = why(&bandana)?;
        assert_eq!(during, has_boot_time.then_some(Unreported::ClockDisagrees));
        serve(&mut tasks, &clock)?;
        drop((bandana, tasks));
        clock.set_wrong(0);
        let (bandana, mut tasks) = start(directory.path(), &clock)?;
        let during = usize::from(!has_boot_time);
        assert_eq!(reporting(&bandana, 10)?, 5 - during);
        // Without a boot time the report of the glitch left with the start.
        assert_eq!(sent(&mut tasks, &clock)?, 5 - during);
        clock.forward(7 * DAY);
        serve(&mut tasks, &clock)?;
        why(&bandana)?;
        sent(&mut tasks, &clock)?;
        assert!(reporting(&bandana, 10)? >= 4, "the next window is open");
    }
    Ok(())
}

#[test]
fn a_clock_set_back_opens_no_window_and_arms_come_without_reports() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = start(directory.path(), &clock)?;
    assert_eq!(reporting(&bandana, 10)?, 5);
    assert_eq!(sent(&mut tasks, &clock)?, 5);
    clock.set_wrong(-YEAR);
    assert_eq!(why(&bandana)?, Some(Unreported::ClockDisagrees));
    assert!(matches!(bandana.status().reporting, Reporting::ClockDisagrees));
    drop((bandana, tasks));
    let (bandana, mut tasks) = start(directory.path(), &clock)?;
    assert_eq!(why(&bandana)?, Some(Unreported::ClockDisagrees), "after a restart too");
    clock.set_wrong(0);
    assert!(matches!(bandana.status().reporting, Reporting::On));
    opens_after_a_week(&bandana, &mut tasks, &clock)
}

#[test]
fn what_arrives_late_counts_when_it_arrives() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = start(directory.path(), &clock)?;
    assert_eq!(reporting(&bandana, 10)?, 5);
    tasks.write();
    // No network for two weeks.
    for _ in 0..14 {
        clock.forward(DAY);
        assert_eq!(reporting(&bandana, 10)?, 0);
    }
    assert_eq!(sent(&mut tasks, &clock)?, 5);
    opens_after_a_week(&bandana, &mut tasks, &clock)
}
