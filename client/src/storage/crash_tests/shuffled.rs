//! Shuffled reports on a faulty disk, of an app that believes the relay and after a restart does not.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::shuffling::{BatchSize, Envelope, ShuffledReport};
use ohttp::hpke::{Aead, Kdf, Kem};
use ohttp::{KeyConfig, Server, SymmetricSuite};

use super::*;
use crate::shuffled::Shuffled;
use crate::shuffled_task::ShuffledTask;

fn key(secret: u8) -> Result<(Server, GatewayKeys), Failure> {
    let suite = SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305);
    let derived = || KeyConfig::derive(1, Kem::X25519Sha256, vec![suite], &[secret; 32]);
    let keys = GatewayKeys::new(&KeyConfig::encode_list(&[derived()?])?)?;
    Ok((Server::new(derived()?)?, keys))
}

const RELAY: u8 = 1;
const AGGREGATOR: u8 = 2;
const DELTA: f64 = 1e-6;

/// Specification and terms with batches, if there are any.
pub(super) fn agreed(
    shuffling: Option<Believes>,
    specification: Specification,
    acceptance: Acceptance,
) -> Result<(Specification, Acceptance), Failure> {
    let Some(believes) = shuffling else { return Ok((specification, acceptance)) };
    let acceptance = match believes {
        Believes::Yes => {
            let (relay, delta) = (key(RELAY)?.1, Delta::new(DELTA)?);
            acceptance.shuffled(Shuffled::by(relay, PrivacyLoss::UNBOUNDED, delta))
        }
        Believes::No => acceptance,
    };
    Ok((specification.in_batches(BatchSize::new(100)?)?, acceptance))
}

/// What relay and aggregator see in turn.
pub(super) fn opened(task: &ShuffledTask) -> Result<(Content, usize, usize), Failure> {
    let ((relay, _), (aggregator, keys)) = (key(RELAY)?, key(AGGREGATOR)?);
    let sealed = task.seal(&keys)?.envelope;
    let (envelope, _) = relay.decapsulate(&sealed)?;
    let envelope = Envelope::from_bytes(&envelope).ok_or("no envelope")?;
    let (report, _) = aggregator.decapsulate(&envelope.report)?;
    let report = ShuffledReport::from_bytes(&report).ok_or("no report")?;
    assert_eq!((report.digest, report.cell), (envelope.digest, envelope.cell));
    let outside = Envelope { report: [0; ShuffledReport::SEALED_BYTES], ..envelope };
    let content = [&outside.to_bytes()[..], &report.to_bytes()].concat();
    Ok(((outside.id, content), report.cell.get(), sealed.len()))
}

/// Checks that the central account includes every shuffled report that was sent.
pub(super) fn check_ledger(device: &Device) -> Result<(), Failure> {
    if device.shuffling.is_none() {
        return Ok(());
    }
    let sent = device.reported.len() as u64;
    let spent = device.core.spent();
    let price = DeltaUnits::from_delta(Delta::new(DELTA)?);
    assert!(spent.central_lifetime.delta.get() >= price.get() * sent, "{sent} left, {spent:?}");
    assert!(spent.central_lifetime.epsilon < spent.lifetime || sent == 0, "{spent:?}");
    // In each account it is the sum of the prices of as many reports.
    let reports = spent.lifetime.get() / 1_000_000_000;
    assert_eq!(spent.central_lifetime.delta.get(), price.get() * reports);
    Ok(())
}

fn start(disk: Disk, seed: u64) -> Result<Device, Failure> {
    let mut device = Device::start(disk, seed, false)?;
    // The first specification that is heard has batches.
    device.core.opt_out();
    device.core.opt_in();
    device.shuffling = Some(Believes::Yes);
    device.enroll(0)?;
    Ok(device)
}

/// A life with a crash at one operation, after which the app believes no relay.
fn one_life(seed: u64, fault: Option<(u32, Fault)>) -> Result<(Device, usize), Failure> {
    let disk = Disk::new(seed, None);
    let mut device = start(disk.clone(), seed)?;
    device.write(0);
    disk.fail_at(fault.map(|(operation, fault)| (disk.operations() + operation, fault)));
    device.live(liked)?;
    let kept = device.core.waiting_reports();
    let waiting: Vec<AssignmentId> = device.core.assignments().collect();
    assert_eq!(kept, device.core.reports_without_relay());
    // An update of the app does.
    let later = SECONDS + 60 * 200;
    device.start_again(later)?;
    while device.shuffling != Some(Believes::Yes) {
        device.start_again(later)?;
    }
    for minute in 0..200 {
        device.write(later + 60 * minute);
        device.send(later + 60 * minute)?;
    }
    assert_eq!(device.core.waiting_reports(), 0);
    for assignment in device.durable.iter().chain(&waiting) {
        assert!(device.reported.contains_key(assignment), "{assignment:?} was never reported");
    }
    device.check_ledger()?;
    Ok((device, kept))
}

#[test]
fn wherever_it_is_killed_a_shuffled_report_leaves_for_the_relay_or_not_at_all()
-> Result<(), Failure> {
    let (whole, _) = one_life(1, None)?;
    assert_eq!(whole.reported.len(), 7, "the budget of the window");
    let lengths: BTreeSet<usize> = whole.seen.iter().map(|(_, _, length)| *length).collect();
    assert_eq!(lengths, BTreeSet::from([Envelope::SEALED_BYTES]));
    let (mut waited, mut lives) = (0, 0);
    for operation in 0..60 {
        for seed in 0..6 {
            let (_, kept) = one_life(seed, Some((operation, Fault::Crash)))
                .map_err(|error| format!("operation {operation}, seed {seed}: {error}"))?;
            waited += kept;
            lives += u32::from(kept > 0);
        }
    }
    assert!(waited > 300 && lives > 100, "{waited} reports waited, in {lives} lives");
    Ok(())
}

#[test]
fn a_disk_that_fails_for_a_while_changes_no_way() -> Result<(), Failure> {
    for operation in 0..40 {
        let (device, kept) = one_life(u64::from(operation), Some((operation, Fault::Errors(3))))?;
        assert_eq!((device.reported.len(), kept), (7, 0), "operation {operation}");
    }
    Ok(())
}
