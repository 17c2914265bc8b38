//! The time in which a device checks a view of a public log, after a year of epochs.
//!
//! The goal is printed beside the figure. It is not asserted.

use std::hint::black_box;

use bandana_shared::identity::UnixSeconds;
use bandana_shared::signing::SigningKey;
use bandana_shared::transparency::{
    Checkpoint, Epoch, Frontier, NoteSigner, Role, View, Witnessed, leaf_hash,
};
use criterion::{Criterion, criterion_group, criterion_main};

/// Epochs of a year, one a minute.
const EPOCHS: u64 = 365 * 24 * 60;

const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);

fn signer(number: u8) -> NoteSigner {
    let role = if number == 0 { Role::Log } else { Role::Witness };
    NoteSigner::new(format!("key.example/{number}"), role, SigningKey::from_secret(&[number; 32]))
        .unwrap_or_else(|_| unreachable!("the name is plain"))
}

fn check(bench: &mut Criterion) {
    let signers: Vec<NoteSigner> = (0..4).map(signer).collect();
    let (log, witnesses) = (&signers[0], &signers[1..]);
    let mut tree = Frontier::default();
    (1..EPOCHS).for_each(|epoch| tree.push(leaf_hash(&epoch.to_le_bytes())));
    let path = tree.path();
    // Seven experiments, and the keys of the gateway.
    let subjects = (0..8_u8).map(|subject| ([subject.wrapping_mul(37); 32], [subject; 32]));
    let (subject, value) = ([37; 32], [1; 32]);
    let epoch = Epoch::new(NOW, subjects);
    tree.push(leaf_hash(&epoch.entry()));
    let origin = log.public().name().to_owned();
    let text = Checkpoint { origin, size: EPOCHS, root: tree.root() }.text();
    let view = View {
        size: EPOCHS,
        path,
        time: NOW,
        siblings: epoch.siblings(&subject),
        log_signature: log.sign(&text),
        cosignatures: witnesses[..2].iter().map(|witness| witness.cosign(&text, NOW)).collect(),
    };
    let keys = witnesses.iter().map(|witness| witness.public().clone()).collect();
    let witnessed = Witnessed::new(log.public().clone(), keys, 2)
        .unwrap_or_else(|_| unreachable!("two of three are most"));
    assert_eq!(witnessed.check(Some(&view), (&subject, &value), 0, NOW), Ok(EPOCHS));
    bench.bench_function("view of a log, 2 of 3 witnesses (goal: 1 ms on a phone)", |bench| {
        bench.iter(|| witnessed.check(black_box(Some(&view)), (&subject, &value), 0, NOW));
    });
}

criterion_group!(benches, check);
criterion_main!(benches);
