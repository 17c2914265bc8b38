//! Cells: their indices, the draw of a metric, and the privacy of a report with its cell.

#![cfg(test)]

use bandana_shared::cells::{Cell, Measurement, Segmentations};
use bandana_shared::channel::Channel;
use bandana_shared::curve::{Curve, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ArmIndex, CellIndex, ExperimentId};
use bandana_shared::participation::Millionths;
use bandana_shared::policy::{PolicyError, Weights};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;

fn measurement(segments: &[&str], metrics: &[&str]) -> Measurement {
    let segmentations = segments.iter().map(|text| text.parse().unwrap()).collect();
    Measurement {
        segmentations: Segmentations::new(segmentations).unwrap(),
        metrics: metrics.iter().map(|text| text.parse().unwrap()).collect(),
        ..Measurement::REWARDS_ONLY
    }
}

fn with_holdout(measurement: Measurement) -> Measurement {
    Measurement { holdout: Millionths::from_share(0.1).unwrap(), ..measurement }
}

#[test]
fn every_cell_has_one_index_and_added_arms_come_last() {
    let measurement = measurement(&["platform=ios,android,web"], &["a:0.1", "b:0.2"]);
    let cells = measurement.cells(4);
    assert_eq!((cells.len(), cells.segments(), cells.metrics()), (36, 3, 3));
    let more = measurement.cells(5);
    let mut seen = [false; 36];
    for arm in 0..4 {
        for (segment, metric) in (0..3).flat_map(|segment| (0..3).map(move |m| (segment, m))) {
            let arm = ArmIndex::new(arm).unwrap();
            let cell = Cell { segment, metric, ..Cell::of(arm) };
            let index = cells.index(cell);
            assert_eq!(cells.cell(index), Some(cell));
            assert_eq!(more.index(cell), index);
            assert!(!std::mem::replace(&mut seen[index.get()], true), "{index}");
        }
    }
    assert!(seen.iter().all(|seen| *seen));
    assert_eq!(cells.cell(CellIndex::new(36).unwrap()), None);
    let plain = Measurement::REWARDS_ONLY.cells(4);
    assert_eq!(plain.index(Cell::of(ArmIndex::new(3).unwrap())).get(), 3);
}

#[test]
fn a_segment_is_a_combination_of_a_value_of_each_segmentation() {
    let texts = ["platform=ios,android", "age=young,old,unknown", "new=no,yes"];
    let measurement = measurement(&texts, &[]);
    let all = &measurement.segmentations;
    assert_eq!(
        (all.segments(), measurement.lists(), measurement.cells(2).segments()),
        (12, 12, 12)
    );
    let mut expected = Vec::new();
    for platform in ["ios", "android"] {
        for age in ["young", "old", "unknown"] {
            expected.extend(["no", "yes"].map(|new| [platform, age, new].join(", ")));
        }
    }
    let labels: Vec<String> = (0..12).map(|segment| all.label(segment)).collect();
    assert_eq!(labels, expected);
    assert!(
        (0..12)
            .all(|segment| all.segment(all.places(segment).into_iter().map(Some)) == Some(segment))
    );
    assert_eq!(all.segment([Some(0), None, Some(1)]), None);
    assert_eq!(all.segment([Some(0), Some(1)]), None);
    let none = Segmentations::NONE;
    assert_eq!((none.segments(), none.segment([]), none.places(0)), (1, Some(0), Vec::new()));
}

#[test]
fn a_holdout_has_cells_of_its_own_and_the_others_are_counted_apart() {
    let measurement = with_holdout(measurement(&["platform=ios,android"], &["a:0.1"]));
    let (cells, more) = (measurement.cells(3), measurement.cells(4));
    assert_eq!((cells.len(), cells.has_holdout()), (24, true));
    let places = (0..24).map(|place| CellIndex::new(place).unwrap());
    let found: Vec<Cell> = places.map(|place| cells.cell(place).unwrap()).collect();
    let tally = |cell: &Cell| Tally::new(cells.index(*cell).get() as u64 + 1, 0).unwrap();
    let tallies: Vec<Tally> = found.iter().map(tally).collect();
    for (place, cell) in found.iter().enumerate() {
        assert_eq!((cells.index(*cell).get(), more.index(*cell).get()), (place, place));
    }
    let reports = |is_mine: &dyn Fn(&Cell) -> bool| -> Vec<u64> {
        let of_arm = |arm| {
            let mine = found.iter().filter(|cell| cell.arm.get() == arm && is_mine(cell));
            mine.map(|cell| tally(cell).reports()).sum()
        };
        (0..3).map(of_arm).collect()
    };
    let sums = |tallies: Vec<Tally>| -> Vec<u64> { tallies.iter().map(|t| t.reports()).collect() };
    for group in [false, true] {
        let mine = reports(&|cell| cell.metric == 0 && cell.is_held_out == group);
        assert_eq!(sums(cells.of_group(&tallies, group)), mine);
    }
    assert_eq!(cells.reports_of_arms(&tallies), reports(&|cell| !cell.is_held_out));
    for (segment, metric) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let mine = reports(&|cell| (cell.segment, cell.metric) == (segment, metric));
        assert_eq!(sums(cells.of_arms(&tallies, metric, Some(segment))), mine);
    }
    assert_eq!(sums(cells.of_arms(&tallies, 0, None)), reports(&|cell| cell.metric == 0));
}

#[test]
fn tallies_of_arms_are_sums_of_their_cells() {
    let cells = measurement(&["platform=ios,android"], &["a:0.1"]).cells(3);
    let tallies: Vec<Tally> = (1..=12).map(|n| Tally::new(n, n / 2).unwrap()).collect();
    let reports = |metric, segment| -> Vec<u64> {
        cells.of_arms(&tallies, metric, segment).iter().map(|tally| tally.reports()).collect()
    };
    assert_eq!(reports(0, Some(0)), [1, 5, 9]);
    assert_eq!(reports(1, Some(1)), [4, 8, 12]);
    assert_eq!(reports(0, None), [4, 12, 20]);
    assert_eq!(cells.reports_of_arms(&tallies), [10, 26, 42]);
    // An arm that was just added has no tallies yet.
    assert_eq!(cells.reports_of_arms(&tallies[..8]), [10, 26, 0]);
    assert_eq!(cells.of_arms(&tallies[..8], 0, None)[2], Tally::EMPTY);
}

#[test]
fn metrics_are_drawn_by_their_shares_in_integers() {
    let measurement = measurement(&[], &["a:0.1", "b:0.25", "c:0.000001"]);
    let bounds = [100_000_u64, 350_000, 350_001].map(|parts| (parts << 32) / 1_000_000);
    for (metric, bound) in (1..).zip(bounds) {
        let bound = u32::try_from(bound).unwrap();
        assert_eq!(measurement.draw(bound - 1), metric);
        assert_eq!(measurement.draw(bound), if metric == 3 { 0 } else { metric + 1 });
    }
    assert_eq!((measurement.draw(0), measurement.draw(u32::MAX)), (1, 0));
    let shares: f64 = (0..4).map(|metric| measurement.share(metric)).sum();
    assert!((shares - 1.0).abs() < 1e-12);
}

/// A report is a cell and a bit. The cell is drawn before there is any value, so its probability is
/// the same for all values, and the ratio of two probabilities of a report is that of the bit alone:
/// at most (2^64 - t0) / t0, whatever the metric.
#[test]
fn a_report_with_its_cell_loses_no_more_than_its_bit() {
    for nats in [0.1, 0.5, 1.0, 4.0] {
        let specification = Specification::first(
            ExperimentId::new("ab").unwrap(),
            Epsilon::new(nats).unwrap(),
            Rewards::bounded(RewardRange::UNIT),
            Mechanism::Exponential,
            vec![Arm::new("x").unwrap(), Arm::new("y").unwrap()],
            ReleaseTiming::IMMEDIATE,
        )
        .unwrap();
        let measurement = measurement(&["p=a,b"], &["a:0.1", "b:0.25:-3..9:at-most=2"]);
        let specification = specification.measuring(measurement).unwrap();
        let Channel::Bit(floor) = specification.channel() else { panic!("not bits") };
        let (least, most) =
            (u128::from(floor.get()) << 64, u128::MAX - (u128::from(floor.get()) << 64) + 1);
        for metric in 0..3 {
            let curve = Curve::new(specification.mechanism_of(metric), specification.epsilon());
            let range = specification.values_of(metric).range();
            for step in 0..=1000 {
                let value = range.low() + range.width() * f64::from(step) / 1000.0;
                let level = range.level(value.min(range.high())).unwrap();
                let ones = floor.threshold(curve.apply(level)).to_u128();
                assert!((least..=most).contains(&ones), "{nats} {metric} {value}");
            }
            let ends = [range.low(), range.high()].map(|end| range.level(end).unwrap());
            let ends = ends.map(|level| floor.threshold(curve.apply(level)).to_u128());
            assert_eq!(ends, [least, most], "the full range is used");
        }
    }
}

#[test]
fn weights_of_segments_are_told_from_those_of_arms_by_their_sum() {
    let half = 1_u64 << 31;
    let one = Weights::new(&[half, half]).unwrap();
    assert_eq!((one.len(), one.segments()), (2, 0));
    let flat = [half, half, 0, 2 * half, 2 * half, 0];
    let three = Weights::new(&flat).unwrap();
    assert_eq!((three.len(), three.segments()), (2, 2));
    assert_eq!(three.iter().collect::<Vec<_>>(), flat);
    assert_eq!([None, Some(0), Some(1)].map(|s| three.get_in(s, 1)), [half, 2 * half, 0]);
    assert_eq!([None, Some(0), Some(1)].map(|s| three.draw_in(s, 5).get()), [0, 1, 0]);
    // A segment that is not there has the weights of all.
    assert_eq!(three.get_in(Some(2), 1), half);
    let uneven = [half, half, half, 2 * half, half, 0];
    assert!(matches!(Weights::new(&uneven), Err(PolicyError::Sum { .. })));
    let odd = [2 * half, half, half];
    assert!(matches!(Weights::new(&odd), Err(PolicyError::Sum { .. })));
    assert!(matches!(one.with_segments(&[three]), Err(PolicyError::ArmCount { arms: 6 })));
}
