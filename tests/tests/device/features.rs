//! Several public properties of installations: segments learn from those that share a value.

use anyhow::Context as _;
use bandana_shared::cells::{Cell, Segmentation};
use bandana_shared::identity::{ArmIndex, UploadId};
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::{
    self, ExperimentName, GetExperimentRequest, SelectArmRequest, UploadStatus,
};
use bandana_tests::harness::{Aggregator, three_arms};
use prost::Message as _;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Nobody with these values reports: the last segment.
const UNSEEN: usize = 15;

/// Three arms, and four properties with two values each.
fn wanted(id: &str) -> anyhow::Result<v1::Specification> {
    let named = |name: &str| Segmentation::new(name, ["no", "yes"]);
    let segmentations = ["new", "paying", "tablet", "abroad"].map(named);
    let message = |one: Result<Segmentation, _>| one.map(|one| v1::Segmentation::from(&one));
    Ok(v1::Specification {
        simulation: true,
        epsilon: 4.0,
        attribution_window_seconds: 0,
        segmentations: segmentations.into_iter().map(message).collect::<Result<_, _>>()?,
        ..three_arms(id)
    })
}

/// The arm that users of a segment like: the second one if they are new, otherwise the first. Nothing
/// else matters.
fn liked(segment: usize) -> usize {
    segment >> 3
}

/// Reports of users of every segment but one on every arm: of 20 each, 16 ones on what they like, and
/// 8 on the others.
async fn report(aggregator: &mut Aggregator, experiment: &Specification) -> anyhow::Result<()> {
    let (day, cells) = (aggregator.day(experiment).await?, experiment.cells());
    let mut number = 0_u128;
    for segment in (0..16).filter(|segment| *segment != UNSEEN) {
        for arm in 0..3 {
            let ones = if arm == liked(segment) { 16 } else { 8 };
            for place in 0..20 {
                number += 1;
                let cell = cells.index(Cell { segment, ..Cell::of(ArmIndex::new(arm)?) });
                let upload = Upload {
                    id: UploadId::new(number.to_be_bytes()),
                    digest: experiment.digest(),
                    day,
                    reports: PackedReports::single(cell, place < ones),
                };
                let request = v1::UploadRequest::decode(&upload.to_bytes()[..])?;
                let answer = aggregator.device.submit_upload(request).await?.into_inner();
                assert_eq!(answer.status(), UploadStatus::Accepted, "{answer:?}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_segment_that_nobody_reports_from_is_served_what_its_values_tell() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(wanted("checkout")?).await?;
    report(&mut aggregator, &experiment).await?;
    let name = ExperimentName { experiment_id: "checkout".to_owned() };
    aggregator.operator.refresh_policy(name).await?;

    let id = GetExperimentRequest { experiment_id: "checkout".to_owned() };
    let policy = aggregator.device.get_experiment(id).await?.into_inner().policy.context("none")?;
    let lists: Vec<&[u64]> = policy.weights.chunks(3).collect();
    assert_eq!(lists.len(), 17);
    for (segment, list) in lists[1..].iter().enumerate() {
        let favourite = (0..3).max_by_key(|arm| list[*arm]);
        assert_eq!(favourite, Some(liked(segment)), "segment {segment}: {list:?}");
    }

    // A call for a device of the segment that nobody has reported from.
    let segment_values = ["yes"; 4].map(str::to_owned).to_vec();
    let request = SelectArmRequest { experiment_id: "checkout".to_owned(), segment_values };
    assert!(aggregator.device.select_arm(request).await?.into_inner().arm < 3);

    // The rewards by each value: four properties with two values each, with all reports in every one.
    let found = aggregator.estimates(&experiment).await?;
    let names: Vec<_> =
        found.segments.iter().map(|one| [&*one.segmentation, &*one.value].join("=")).collect();
    let expected = ["new", "paying", "tablet", "abroad"]
        .map(|name| ["no", "yes"].map(|value| [name, value].join("=")));
    assert_eq!(names, expected.concat());
    let reports = |one: &v1::SegmentEstimates| one.arms.iter().map(|arm| arm.reports).sum::<u64>();
    for pair in found.segments.chunks(2) {
        assert_eq!((reports(&pair[0]), reports(&pair[1])), (8 * 60, 7 * 60));
    }
    let weights: Vec<f64> = found.segments[1].arms.iter().map(|arm| arm.weight).collect();
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{weights:?}");
    assert!(weights[1] > 0.5, "{weights:?}");
    aggregator.process.stop().await?;
    Ok(())
}
