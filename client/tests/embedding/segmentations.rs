//! Experiments with several segmentations, whose values together make the segment.

use bandana_client::{Acceptance, Choice, DefaultReason, FetchTask, Fetched, Refusal};
use bandana_shared::cells::{Measurement, Segmentations};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::specification::Specification;

use super::{Failure, Hands, NAME, acceptance, builder_accepting, fetched, send, specification};

/// Two arms; a platform and an age make six segments.
fn offered() -> Result<Specification, Failure> {
    let all = ["platform=ios,android", "age=young,old,unknown"].map(str::parse);
    let segmentations = Segmentations::new(all.into_iter().collect::<Result<_, _>>()?)?;
    Ok(specification()?.measuring(Measurement { segmentations, ..Measurement::REWARDS_ONLY })?)
}

/// The first arm for the segments with an even number, the second one for the others.
fn answer(offered: &Specification, clock: &Hands) -> Result<Fetched, Failure> {
    let [even, first, second] =
        [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]].map(|shares| Weights::from_shares(&shares));
    let pair = [first?, second?];
    let lists: Vec<Weights> = pair.iter().cycle().take(6).cloned().collect();
    let fetched = fetched(offered, clock.truth())?;
    let policy = Policy { weights: even?.with_segments(&lists)?, ..fetched.policy };
    Ok(Fetched { policy, ..fetched })
}

/// What an app with these terms is given, and the segment that it reports.
fn told(terms: Acceptance) -> Result<(Choice, Option<usize>), Failure> {
    let (directory, clock, offered) = (tempfile::tempdir()?, Hands::new(), offered()?);
    let (bandana, mut tasks) = builder_accepting(directory.path(), &clock, terms, 1000)?.build();
    bandana.experiment(NAME)?;
    let task = FetchTask::new(offered.experiment_id().clone());
    tasks.on_fetched(&task, answer(&offered, &clock)?).ok();
    let choice = bandana.experiment(NAME)?.choose();
    clock.forward(2 * 86_400);
    tasks.on_fetched(&task, answer(&offered, &clock)?).ok();
    let sent = send(&mut tasks)?;
    let cell = sent.first().and_then(|upload| upload.reports.last_cell());
    let cell = cell.and_then(|cell| offered.cells().cell(cell));
    Ok((choice, cell.map(|cell| cell.segment)))
}

#[test]
fn a_device_chooses_and_reports_by_the_values_of_all_segmentations() -> Result<(), Failure> {
    let ages = ["young", "old", "unknown"];
    for (place, platform) in ["ios", "android"].into_iter().enumerate() {
        for (age, value) in ages.into_iter().enumerate() {
            // The order in which an app names them does not matter.
            let terms = acceptance()?.segment("age", value).segment("platform", platform);
            let (choice, segment) = told(terms)?;
            let expected = place * 3 + age;
            assert_eq!(choice.assignment().map(|one| one.arm().get()), Some(expected % 2));
            assert_eq!(segment, Some(expected));
        }
    }
    Ok(())
}

#[test]
fn an_app_that_has_not_agreed_to_all_segmentations_takes_no_part() -> Result<(), Failure> {
    let some = acceptance()?.segment("platform", "ios");
    let name = "age".to_owned();
    let outside = some.clone().segment("age", "ancient");
    for (terms, expected) in [
        (some, DefaultReason::Refused(Refusal::Segmentation { name })),
        (outside, DefaultReason::NotSampled),
    ] {
        let (choice, segment) = told(terms)?;
        let Choice::Default(reason) = choice else { return Err("an arm".into()) };
        assert_eq!((reason, segment), (expected, None));
    }
    Ok(())
}
