//! Signatures of specifications, and signatures and keys to refuse.

use anyhow::ensure;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::signing::{PublicKey, Signature, SigningKey};
use bandana_shared::specification::{Arm, Specification};
use serde::Serialize;

use super::{hex, word};

/// When the signatures expire, unless their purpose is to differ in it.
const EXPIRES: UnixSeconds = UnixSeconds::new(1_800_000_000);

#[derive(Serialize)]
pub(super) struct SignatureVectors {
    accepted: Vec<SignatureVector>,
    refused: Vec<RefusedSignature>,
    refused_keys: Vec<RefusedKey>,
}

#[derive(Serialize)]
struct SignatureVector {
    secret_key: String,
    #[serde(flatten)]
    signed: Signed,
    signed_bytes: String,
}

#[derive(Serialize)]
struct RefusedSignature {
    reason: &'static str,
    #[serde(flatten)]
    signed: Signed,
}

#[derive(Serialize)]
struct RefusedKey {
    reason: &'static str,
    public_key: String,
}

/// A signature, and the specification that it claims to sign.
#[derive(Serialize)]
struct Signed {
    public_key: String,
    expires_at_unix_seconds: String,
    specification: String,
    signature: String,
}

impl Signed {
    fn new(signature: &Signature, specification: &Specification) -> Self {
        Self {
            public_key: signature.key().to_string(),
            expires_at_unix_seconds: signature.expires().get().to_string(),
            specification: hex(&specification.canonical_bytes()),
            signature: hex(signature.as_bytes()),
        }
    }
}

/// A pseudo-random secret key, the same in every run.
fn secret(number: u64) -> [u8; 32] {
    let mut secret = [0; 32];
    for (place, chunk) in (0..).zip(secret.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&word(20_000 + 4 * number + place).to_be_bytes());
    }
    secret
}

pub(super) fn signatures() -> anyhow::Result<SignatureVectors> {
    let examples = super::messages::examples()?;
    let moments = [EXPIRES, UnixSeconds::new(1), UnixSeconds::new(u64::MAX)];
    let numbered = (0_u64..).zip(&examples).zip(moments.into_iter().cycle());
    let accepted = numbered.map(|((number, specification), expires)| {
        let secret = secret(number);
        let signature = SigningKey::from_secret(&secret).sign(specification, expires);
        ensure!(signature.fits(specification), "a signature that does not fit");
        let message = [
            b"bandana.v1.signed-specification\0",
            &expires.get().to_be_bytes()[..],
            &specification.canonical_bytes(),
        ];
        Ok(SignatureVector {
            secret_key: hex(&secret),
            signed: Signed::new(&signature, specification),
            signed_bytes: hex(&message.concat()),
        })
    });
    Ok(SignatureVectors {
        accepted: accepted.collect::<anyhow::Result<_>>()?,
        refused: refused(&examples[0])?,
        refused_keys: refused_keys()?,
    })
}

fn refused(specification: &Specification) -> anyhow::Result<Vec<RefusedSignature>> {
    let key = SigningKey::from_secret(&secret(0));
    let other_key = SigningKey::from_secret(&secret(1)).public_key();
    let good = key.sign(specification, EXPIRES);
    let revised = specification.with_arm(Arm::new("blue")?)?;
    let (mut damaged, mut unreduced) = (*good.as_bytes(), *good.as_bytes());
    damaged[0] ^= 1;
    add_group_order(&mut unreduced);
    let claim = |key, expires: UnixSeconds, bytes| Signature::new(key, expires, bytes);
    let later = UnixSeconds::new(EXPIRES.get() + 1);
    let examples = [
        ("another revision", good, &revised),
        ("another expiry", claim(good.key(), later, *good.as_bytes()), specification),
        ("another key", claim(other_key, EXPIRES, *good.as_bytes()), specification),
        ("a damaged signature", claim(good.key(), EXPIRES, damaged), specification),
        ("S not below the group's order", claim(good.key(), EXPIRES, unreduced), specification),
    ];
    examples
        .into_iter()
        .map(|(reason, signature, specification)| {
            ensure!(!signature.fits(specification), "accepted: {reason}");
            Ok(RefusedSignature { reason, signed: Signed::new(&signature, specification) })
        })
        .collect()
}

/// Adds the order of the group to S. The same equation holds, so a verifier that does not check the
/// range of S accepts a second signature as the first.
fn add_group_order(signature: &mut [u8; 64]) {
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut carry = 0;
    for (byte, addend) in signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(addend) + carry;
        [*byte, _] = sum.to_le_bytes();
        carry = sum >> 8;
    }
}

fn refused_keys() -> anyhow::Result<Vec<RefusedKey>> {
    let point = |low, rest, top| {
        let mut bytes = [rest; 32];
        (bytes[0], bytes[31]) = (low, top);
        bytes
    };
    let examples = [
        ("of order 1", point(1, 0, 0)),
        ("of order 2", point(0xec, 0xff, 0x7f)),
        ("of order 4", point(0, 0, 0)),
        ("not on the curve", point(2, 0, 0)),
        ("y is not reduced", point(0xf0, 0xff, 0x7f)),
    ];
    examples
        .into_iter()
        .map(|(reason, bytes)| {
            ensure!(PublicKey::new(bytes).is_err(), "accepted: {reason}");
            Ok(RefusedKey { reason, public_key: hex(&bytes) })
        })
        .collect()
}
