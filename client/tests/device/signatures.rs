//! Apps that pin keys.

use bandana_client::{
    Acceptance, Budget, Client, ClientError, FetchTask, Fetched, Refusal, SignatureRefusal, Signers,
};
use bandana_shared::identity::UnixSeconds;
use bandana_shared::rewards::Rewards;
use bandana_shared::signing::{Signature, SigningKey};
use bandana_shared::specification::{Arm, Specification};

use super::{Failure, acceptance, answer, at, day, id, parts, question};

const DAY: u64 = 86_400;

fn key(number: u8) -> SigningKey {
    SigningKey::from_secret(&[number; 32])
}

/// Second `seconds` of the tests' clock.
fn expiry(seconds: u64) -> UnixSeconds {
    UnixSeconds::new(at(seconds).unix_ms() / 1000)
}

fn signed(specification: &Specification, signatures: Vec<Signature>) -> Result<Fetched, Failure> {
    Ok(Fetched { signatures, ..answer(specification.clone(), 10)? })
}

fn pinned(specification: &Specification) -> Result<(Client, Acceptance), Failure> {
    let signers = Signers::operator_and_countersigner(key(1).public_key(), key(2).public_key())?;
    let acceptance = acceptance(specification).signed_by(signers);
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(id()?, acceptance.clone());
    Ok((client, acceptance))
}

#[test]
fn both_parties_must_have_signed() -> Result<(), Failure> {
    let specification = Specification::new(parts(1.0, Rewards::binary())?)?;
    let next = specification.with_arm(Arm::new("black")?)?;
    let operator = key(1).sign(&specification, expiry(DAY));
    let countersigner = key(2).sign(&specification, expiry(DAY));
    let missing = |number| SignatureRefusal::Missing { key: key(number).public_key() };
    let cases = [
        (vec![], Some(missing(1))),
        (vec![operator], Some(missing(2))),
        (vec![countersigner], Some(missing(1))),
        (vec![operator, key(3).sign(&specification, expiry(DAY))], Some(missing(2))),
        (
            vec![operator, key(2).sign(&next, expiry(DAY))],
            Some(SignatureRefusal::Invalid { key: key(2).public_key() }),
        ),
        (
            vec![operator, key(2).sign(&specification, expiry(0))],
            Some(SignatureRefusal::Expired { key: key(2).public_key(), expired: expiry(0) }),
        ),
        (vec![countersigner, key(3).sign(&specification, expiry(DAY)), operator], None),
    ];
    for (signatures, refusal) in cases {
        let (mut client, _) = pinned(&specification)?;
        match (
            client.on_fetched(&FetchTask::new(id()?), signed(&specification, signatures)?, at(0)),
            refusal,
        ) {
            (Ok(()), None) => {}
            (Err(ClientError::Refused(Refusal::Signature(got))), Some(expected)) => {
                assert_eq!(got, expected);
                assert!(client.draw(&id()?, at(0)).is_err());
            }
            (got, expected) => return Err(format!("{got:?}, not {expected:?}").into()),
        }
    }
    Ok(())
}

#[test]
fn nothing_is_chosen_after_the_first_signature_has_expired() -> Result<(), Failure> {
    let specification = Specification::new(parts(1.0, Rewards::binary())?)?;
    let sign = |number, days| key(number).sign(&specification, expiry(days * DAY));
    let (mut client, _) = pinned(&specification)?;
    client.on_fetched(
        &FetchTask::new(id()?),
        signed(&specification, vec![sign(1, 9), sign(2, 3)])?,
        at(0),
    )?;
    client.draw(&id()?, at(3 * DAY - 1))?;
    let expired = client.draw(&id()?, at(3 * DAY));
    assert!(matches!(expired, Err(ClientError::SignaturesExpired { .. })), "{expired:?}");
    // Setting the clock back does not help: it is the server's day at least.
    let (mut client, _) = pinned(&specification)?;
    client.on_fetched(
        &FetchTask::new(id()?),
        signed(&specification, vec![sign(1, 9), sign(2, 3)])?,
        at(0),
    )?;
    let again = Fetched { day: day(12), ..signed(&specification, vec![sign(1, 9), sign(2, 3)])? };
    client.on_fetched(&FetchTask::new(id()?), again, at(2 * DAY))?;
    let late = Fetched { day: day(12), ..signed(&specification, vec![sign(1, 9), sign(2, 1)])? };
    let late = client.on_fetched(&FetchTask::new(id()?), late, at(DAY / 2));
    assert!(matches!(late, Err(ClientError::Refused(Refusal::Signature(_)))), "{late:?}");
    Ok(())
}

#[test]
fn signatures_are_renewed_before_they_expire() -> Result<(), Failure> {
    let specification = Specification::new(parts(1.0, Rewards::binary())?)?;
    let sign = |days: u64| -> Vec<Signature> {
        [1, 2].map(|number| key(number).sign(&specification, expiry(days * DAY))).into()
    };
    let (mut client, acceptance) = pinned(&specification)?;
    client.on_fetched(&FetchTask::new(id()?), signed(&specification, sign(3))?, at(0))?;
    client.draw(&id()?, at(DAY))?;
    let (_, now) = question(&mut client, at(DAY))?;
    client.on_fetch_failed(&FetchTask::new(id()?), None, now)?;
    client.draw(&id()?, at(2 * DAY))?;
    question(&mut client, at(2 * DAY))?;
    client.on_fetched(&FetchTask::new(id()?), signed(&specification, sign(30))?, at(2 * DAY))?;
    client.draw(&id()?, at(29 * DAY))?;

    // An app that pins another key does not use the held specification.
    client.enroll(id()?, acceptance.clone());
    client.draw(&id()?, at(29 * DAY))?;
    client.enroll(id()?, acceptance.signed_by(Signers::key(key(3).public_key())));
    assert!(client.draw(&id()?, at(29 * DAY)).is_err());
    Ok(())
}
