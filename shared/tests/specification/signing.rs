//! Signatures of specifications: which are valid, and that no others are.

use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::rewards::Rewards;
use bandana_shared::signing::{KeyError, PublicKey, Signature, SignatureError, SigningKey};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::wire::{
    WireError, decode_specification, experiment_with_signatures, signatures, v1,
};
use ed25519_dalek::Signer as _;
use proptest::prelude::*;

use crate::specification::samples::{replayable, specifications};

/// The first key of RFC 8032, section 7.1.
const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// OpenSSL's signature with that key, the expiry below and the specification below.
const SIGNATURE: &str = "2f32ceaf8c23e52e08543421727921246955516445b3575dcf5c05aa3e96fdc6\
                         a126b1b48796b581ac8b4199ad0a95f2366b7c985581034044046329b0e63709";

const EXPIRES: UnixSeconds = UnixSeconds::new(1_800_000_000);
const BEFORE: UnixSeconds = UnixSeconds::new(1_799_999_999);

fn key() -> SigningKey {
    SigningKey::from_secret_text(SECRET).unwrap()
}

fn specification() -> Specification {
    Specification::first(
        ExperimentId::new("button-colour").unwrap(),
        Epsilon::new(1.0).unwrap(),
        Rewards::binary(),
        Mechanism::RandomizedResponse,
        vec![Arm::new("red").unwrap(), Arm::new("green").unwrap()],
        ReleaseTiming::IMMEDIATE,
    )
    .unwrap()
}

/// The 32 bytes of little-endian number `low`, of which the upper ones are `rest`
/// and the last is `top`.
fn point(low: u8, rest: u8, top: u8) -> [u8; 32] {
    let mut bytes = [rest; 32];
    (bytes[0], bytes[31]) = (low, top);
    bytes
}

fn flipped<const N: usize>(bytes: &[u8; N]) -> impl Iterator<Item = [u8; N]> {
    (0..N * 8).map(|bit| {
        let mut changed = *bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        changed
    })
}

#[test]
fn golden_signature() {
    let signature = key().sign(&specification(), EXPIRES);
    assert_eq!(signature.key().to_string(), PUBLIC);
    assert_eq!(signature.as_bytes().map(|byte| format!("{byte:02x}")).concat(), SIGNATURE);
    assert_eq!(signature.verify(&specification(), BEFORE), Ok(()));
    let expired = SignatureError::Expired { key: key().public_key(), expired: EXPIRES };
    for now in [EXPIRES.get(), u64::MAX] {
        assert_eq!(signature.verify(&specification(), UnixSeconds::new(now)), Err(expired));
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let signed = specification();
    let good = key().sign(&signed, EXPIRES);
    let (key, bytes) = (good.key(), *good.as_bytes());
    let refused = |signature: Signature, specification: &Specification| {
        let now = UnixSeconds::new(0);
        let invalid = SignatureError::Invalid { key: signature.key() };
        assert_eq!(signature.verify(specification, now), Err(invalid), "{signature:?}");
    };
    for changed in flipped(&bytes) {
        refused(Signature::new(key, EXPIRES, changed), &signed);
    }
    for changed in flipped(&EXPIRES.get().to_be_bytes()) {
        let expires = UnixSeconds::new(u64::from_be_bytes(changed));
        refused(Signature::new(key, expires, bytes), &signed);
    }
    let others = flipped(key.as_bytes()).filter_map(|changed| PublicKey::new(changed).ok());
    let tried = others.map(|other| refused(Signature::new(other, EXPIRES, bytes), &signed)).count();
    assert!(tried > 64, "about half of all bytes are points: {tried}");
    let canonical: [u8; 66] = signed.canonical_bytes().try_into().unwrap();
    let others = flipped(&canonical).filter_map(|changed| decode_specification(&changed).ok());
    let tried = others.map(|other| refused(good, &other)).count();
    assert!(tried > 64, "letters, epsilon, range and timing have valid neighbours: {tried}");
}

#[test]
fn a_signature_holds_for_one_revision_and_one_domain() {
    let first = specification();
    let second = first.with_arm(Arm::new("blue").unwrap()).unwrap();
    let third = second.with_arm(Arm::new("black").unwrap()).unwrap();
    let signature = key().sign(&second, EXPIRES);
    assert_eq!([&first, &second, &third].map(|s| signature.fits(s)), [false, true, false]);

    let raw = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let public = PublicKey::new(raw.verifying_key().to_bytes()).unwrap();
    let signed_in = |domain: &[u8]| {
        let expiry = EXPIRES.get().to_be_bytes();
        let message = [domain, &expiry, &first.canonical_bytes()].concat();
        Signature::new(public, EXPIRES, raw.sign(&message).to_bytes())
    };
    assert!(signed_in(b"bandana.v1.signed-specification\0").fits(&first));
    for domain in [&b"bandana.v1.specification\0"[..], b"bandana.v1.signed-specification", b""] {
        assert!(!signed_in(domain).fits(&first), "{domain:?}");
    }
}

#[test]
fn weak_and_malformed_keys_are_refused() {
    // y = 1, y = 0 and y = -1, of order 1, 4 and 2.
    for weak in [point(1, 0, 0), point(0, 0, 0), point(0xec, 0xff, 0x7f)] {
        assert_eq!(PublicKey::new(weak), Err(KeyError::Weak));
    }
    assert_eq!(PublicKey::new(point(2, 0, 0)), Err(KeyError::Point), "not on the curve");
    assert!(PublicKey::new(point(3, 0, 0)).is_ok(), "on the curve");
    // y from p = 2^255 - 19 on stands for y - p, which has its own encoding.
    for low in 0xed..=0xff {
        for top in [0x7f, 0xff] {
            assert!(PublicKey::new(point(low, 0xff, top)).is_err(), "{low:x} {top:x}");
        }
    }
    assert_eq!(PublicKey::try_from(&[3; 31][..]), Err(KeyError::Length(31)));
    for text in
        ["", &PUBLIC[1..], &PUBLIC.replace('d', "g"), &format!("{PUBLIC}0"), &"é".repeat(32)]
    {
        assert_eq!(text.parse::<PublicKey>(), Err(KeyError::Text), "{text}");
    }
    assert_eq!(PUBLIC.to_uppercase().parse(), Ok(key().public_key()));
}

#[test]
fn keys_are_random_and_secrets_are_not_printed() {
    let (one, two) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    assert_ne!(one.public_key(), two.public_key());
    let read = SigningKey::from_secret_text(&one.to_secret_text()).unwrap();
    assert_eq!(read.public_key(), one.public_key());
    assert_eq!(*key().to_secret_text(), SECRET);
    assert_eq!(format!("{:?}", key()), format!("SigningKey(<secret> of {PUBLIC})"));
}

#[test]
fn malformed_signatures_on_the_wire_are_nobodys() {
    let signed = specification();
    let good = key().sign(&signed, EXPIRES);
    let mut experiment = experiment_with_signatures(&signed, [&good]);
    let message = experiment.signatures[0].clone();
    let short_key =
        v1::SpecificationSignature { public_key: vec![3; 31].into(), ..message.clone() };
    let short_signature =
        v1::SpecificationSignature { signature: vec![3; 63].into(), ..message.clone() };
    let refused = [&short_key, &short_signature].map(Signature::try_from);
    assert!(matches!(refused[0], Err(WireError::Key(KeyError::Length(31)))));
    assert!(matches!(refused[1], Err(WireError::SignatureLength(63))));
    experiment.signatures = vec![short_key.clone(), message.clone(), short_signature];
    assert_eq!(signatures(&experiment.signatures), [good]);
    // No more signatures than the limit are checked.
    experiment.signatures = vec![short_key; SIGNATURES_MAX - 1];
    experiment.signatures.extend([message.clone(), message]);
    assert_eq!(signatures(&experiment.signatures), [good]);
}

proptest! {
    #![proptest_config(replayable(64))]

    #[test]
    fn a_signature_fits_what_was_signed_only(
        signed in specifications(),
        other in specifications(),
        secret: [u8; 32],
        expires in 1..=u64::MAX,
    ) {
        let key = SigningKey::from_secret(&secret);
        let expires = UnixSeconds::new(expires);
        let signature = key.sign(&signed, expires);
        let before = UnixSeconds::new(expires.get() - 1);
        prop_assert_eq!(signature.verify(&signed, before), Ok(()));
        prop_assert_eq!(signature.fits(&other), signed == other);
        let message = v1::SpecificationSignature::from(&signature);
        prop_assert_eq!(Signature::try_from(&message).unwrap(), signature);
        prop_assert!(PublicKey::new(*signature.key().as_bytes()).is_ok());
    }
}
