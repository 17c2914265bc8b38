//! Signatures on their way from the signer to a device that verifies them.

use bandana_client::{SignatureRefusal, Signers, Timestamp};
use bandana_edge::clock::{Clock as _, SystemClock};
use bandana_shared::identity::UnixSeconds;
use bandana_shared::limits::{SIGNATURE_DAYS_MAX, SIGNATURES_MAX};
use bandana_shared::signing::{Signature, SigningKey};
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::wire::{signatures, v1};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use tonic::Code;
use v1::{AddArmRequest, AddSignatureRequest, ExperimentName, GetExperimentRequest};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

fn now() -> UnixSeconds {
    UnixSeconds::new(SystemClock::new().unix_seconds())
}

fn holder(number: u8) -> SigningKey {
    SigningKey::from_secret(&[number; 32])
}

fn addition(specification: &Specification, signature: &Signature) -> AddSignatureRequest {
    AddSignatureRequest {
        experiment_id: specification.experiment_id().to_string(),
        digest: specification.digest().as_bytes().to_vec().into(),
        signature: Some(signature.into()),
    }
}

/// The answer to a device without any specification.
async fn fetched(
    aggregator: &mut Aggregator,
    experiment: &Specification,
) -> anyhow::Result<(Specification, Vec<Signature>)> {
    let experiment_id = experiment.experiment_id().to_string();
    let request = GetExperimentRequest { experiment_id };
    let answer = aggregator.device.get_experiment(request).await?.into_inner();
    let experiment = answer.experiment.unwrap_or_default();
    Ok((Specification::try_from(&experiment)?, signatures(&experiment.signatures)))
}

#[tokio::test]
async fn a_device_gets_the_signatures_whatever_happens_to_the_server() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("signed")).await?;
    let (operator, countersigner) = (holder(1), holder(2));
    let signers =
        Signers::operator_and_countersigner(operator.public_key(), countersigner.public_key())?;
    let until = |days| UnixSeconds::new(now().get()).after_days(days);
    let at = Timestamp::from_unix_ms(now().get() * 1000);
    let (soon, late) = (until(1), until(30));

    let early = operator.sign(&experiment, soon);
    aggregator.operator.add_signature(addition(&experiment, &early)).await?;
    let (received, by) = fetched(&mut aggregator, &experiment).await?;
    assert_eq!((&received, &by[..]), (&experiment, &[early][..]));
    let missing = SignatureRefusal::Missing { key: countersigner.public_key() };
    assert_eq!(signers.judge(&received, &by, at), Err(missing));

    let second = countersigner.sign(&experiment, late);
    aggregator.operator.add_signature(addition(&experiment, &second)).await?;
    let mut aggregator = aggregator.kill_and_restart().await?;
    let (received, by) = fetched(&mut aggregator, &experiment).await?;
    let until_both = Timestamp::from_unix_ms(soon.get() * 1000);
    assert_eq!(signers.judge(&received, &by, at), Ok(until_both));

    // The same key again: the later signature replaces the earlier one.
    let renewed = operator.sign(&experiment, late);
    let answer = aggregator.operator.add_signature(addition(&experiment, &renewed)).await?;
    assert_eq!(answer.into_inner().signatures.len(), 2);
    // Signatures survive a new policy and a new state.
    let name = || ExperimentName { experiment_id: "signed".to_owned() };
    let day = aggregator.day(&experiment).await?;
    let request = upload(1, &experiment, day, &[(0, true)])?;
    aggregator.device.submit_upload(request).await?;
    aggregator.operator.refresh_policy(name()).await?;
    aggregator.operator.pause_experiment(name()).await?;
    let (received, by) = fetched(&mut aggregator, &experiment).await?;
    let until_both = Timestamp::from_unix_ms(late.get() * 1000);
    assert_eq!(signers.judge(&received, &by, at), Ok(until_both));
    let status = aggregator.operator.get_experiment_status(name()).await?.into_inner();
    let listed: Vec<_> =
        status.signatures.iter().map(Signature::try_from).collect::<Result<_, _>>()?;
    assert_eq!(listed, by);
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_new_revision_needs_new_signatures() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let first = aggregator.create(three_arms("revised")).await?;
    let signature = holder(1).sign(&first, now().after_days(9));
    aggregator.operator.add_signature(addition(&first, &signature)).await?;
    let add = AddArmRequest { experiment_id: "revised".to_owned(), label: "black".to_owned() };
    let status = aggregator.operator.add_arm(add).await?.into_inner();
    assert!(status.signatures.is_empty());
    let second = first.with_arm(Arm::new("black")?)?;
    assert_eq!(fetched(&mut aggregator, &first).await?, (second.clone(), vec![]));

    // The first revision can still be signed; devices get the second.
    let renewed = holder(1).sign(&first, now().after_days(10));
    let status = aggregator.operator.add_signature(addition(&first, &renewed)).await?.into_inner();
    assert!(status.signatures.is_empty() && status.digest[..] == second.digest().as_bytes()[..]);
    let signature = holder(1).sign(&second, now().after_days(9));
    aggregator.operator.add_signature(addition(&second, &signature)).await?;
    let mut aggregator = aggregator.stop_and_restart().await?;
    assert_eq!(fetched(&mut aggregator, &first).await?, (second, vec![signature]));
    Ok(())
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_a_reason() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("strict")).await?;
    let other = aggregator.create(three_arms("other")).await?;
    let good = holder(1).sign(&experiment, now().after_days(1));
    let with = |change: fn(&mut v1::SpecificationSignature)| {
        let mut request = addition(&experiment, &good);
        request.signature.iter_mut().for_each(change);
        request
    };
    let signed = |expires| addition(&experiment, &holder(1).sign(&experiment, expires));
    let too_long = now().after_days(SIGNATURE_DAYS_MAX + 2);
    let request = || addition(&experiment, &good);
    let invalid = Code::InvalidArgument;
    let cases = [
        (with(|s| s.expires_at_unix_seconds += 1), invalid, "does not fit"),
        (with(|s| s.signature = vec![7; 64].into()), invalid, "does not fit"),
        (with(|s| s.signature = vec![7; 63].into()), invalid, "64 bytes"),
        (with(|s| s.public_key = vec![7; 31].into()), invalid, "32 bytes"),
        (with(|s| s.public_key = vec![0; 32].into()), invalid, "weak"),
        (addition(&experiment, &holder(1).sign(&other, good.expires())), invalid, "does not fit"),
        (signed(now()), invalid, "expired at"),
        (signed(too_long), invalid, "3650 days"),
        (signed(UnixSeconds::new(u64::MAX)), invalid, "3650 days"),
        (AddSignatureRequest { signature: None, ..request() }, invalid, "`signature`"),
        (AddSignatureRequest { digest: vec![1; 15].into(), ..request() }, invalid, "16 bytes"),
        (
            AddSignatureRequest { digest: vec![1; 16].into(), ..request() },
            Code::NotFound,
            "no revision",
        ),
        (
            AddSignatureRequest { experiment_id: "other".to_owned(), ..request() },
            Code::NotFound,
            "no revision",
        ),
        (
            AddSignatureRequest { experiment_id: "nobody".to_owned(), ..request() },
            Code::NotFound,
            "no experiment",
        ),
    ];
    for (request, code, part) in cases {
        let error = aggregator.operator.add_signature(request).await.unwrap_err();
        assert_eq!(error.code(), code, "{part}: {error}");
        assert!(error.message().contains(part), "{part}: {}", error.message());
    }
    for experiment in [&experiment, &other] {
        assert!(fetched(&mut aggregator, experiment).await?.1.is_empty());
    }

    for number in 1..=u8::try_from(SIGNATURES_MAX)? {
        let signature = holder(number).sign(&experiment, now().after_days(1));
        aggregator.operator.add_signature(addition(&experiment, &signature)).await?;
    }
    let one_more = holder(99).sign(&experiment, now().after_days(1));
    let error = aggregator.operator.add_signature(addition(&experiment, &one_more)).await;
    assert_eq!(error.unwrap_err().code(), Code::FailedPrecondition);
    // The server continues, and a signature by one of the keys always finds room.
    aggregator.operator.add_signature(request()).await?;
    assert_eq!(fetched(&mut aggregator, &experiment).await?.1.len(), SIGNATURES_MAX);
    aggregator.process.stop().await
}
