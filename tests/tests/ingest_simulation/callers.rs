//! Those who wait for an answer, and which one they must hear.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use anyhow::{bail, ensure};
use bandana_aggregator::ingest::IngestError;
use bandana_aggregator::store::Verdict;
use bandana_shared::identity::Digest;

use super::model::Key;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Upload(Key),
    Change,
}

/// A revision that somebody has heard of.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) experiment: String,
    pub(crate) digest: Digest,
    pub(crate) arms: usize,
}

/// What somebody hears.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Verdict(Result<Verdict, IngestError>),
    Change(Result<Known, String>),
}

/// A call that is under way.
pub(crate) type Call = Pin<Box<dyn Future<Output = Answer> + Send>>;

struct Caller {
    question: Question,
    /// None: the caller has gone away.
    call: Option<Call>,
    /// Whether the writer has taken the call out of the queue.
    is_taken: bool,
}

/// When it is asked who has heard something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before or while a group is committed.
    Commit,
    /// The writer waits for work.
    Rest,
    /// The writer has ended in order, after all that it had taken.
    Close,
    /// The writer is gone.
    Death,
}

/// The callers of one server, in the order of its queue.
#[derive(Default)]
pub(crate) struct Callers {
    waiting: VecDeque<Caller>,
    /// What the store has said of uploads, in the order in which it was asked.
    expected: BTreeMap<Key, VecDeque<Result<Verdict, IngestError>>>,
}

/// Looks whether there is an answer.
pub(crate) fn poll(call: &mut Call) -> Poll<Answer> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

impl Callers {
    /// How many calls are in the queue.
    pub(crate) fn queued(&self) -> usize {
        self.waiting.iter().filter(|caller| !caller.is_taken).count()
    }

    pub(crate) fn push(&mut self, question: Question, call: Call) {
        self.waiting.push_back(Caller { question, call: Some(call), is_taken: false });
    }

    /// The writer takes the first of the queue.
    pub(crate) fn take(&mut self, most: usize) {
        let queued = self.waiting.iter_mut().filter(|caller| !caller.is_taken);
        queued.take(most).for_each(|caller| caller.is_taken = true);
    }

    /// A caller goes away, if this one is there and waits for an upload.
    pub(crate) fn cancel(&mut self, place: usize) -> bool {
        let mut uploads = self.waiting.iter_mut().filter(|c| c.question != Question::Change);
        uploads.nth(place).is_some_and(|caller| caller.call.take().is_some())
    }

    /// The store has decided, and the writer knows it.
    pub(crate) fn expect(&mut self, key: Key, told: Result<Verdict, IngestError>) {
        self.expected.entry(key).or_default().push_back(told);
    }

    /// Checks that everybody has heard what they should have by now, and nobody anything else.
    pub(crate) fn hear(&mut self, moment: Moment) -> anyhow::Result<Vec<(Question, Answer)>> {
        let mut heard = Vec::new();
        for mut caller in std::mem::take(&mut self.waiting) {
            let expected = match caller.question {
                Question::Upload(key) if caller.is_taken => {
                    self.expected.get_mut(&key).and_then(VecDeque::pop_front)
                }
                _ => None,
            };
            let must_be_over = match moment {
                Moment::Commit => expected.is_some(),
                Moment::Rest => caller.is_taken,
                Moment::Close | Moment::Death => true,
            };
            let is_done = matches!(moment, Moment::Rest | Moment::Close) && caller.is_taken;
            let Some(call) = &mut caller.call else {
                if !must_be_over {
                    self.waiting.push_back(caller);
                } else if is_done && caller.question != Question::Change {
                    ensure!(expected.is_some(), "{:?} was thrown away", caller.question);
                }
                continue;
            };
            match poll(call) {
                Poll::Ready(answer) => {
                    check(&caller, expected, &answer, moment)?;
                    heard.push((caller.question, answer));
                }
                Poll::Pending if must_be_over => bail!("nobody answers {:?}", caller.question),
                Poll::Pending => self.waiting.push_back(caller),
            }
        }
        if moment != Moment::Commit {
            let left = self.expected.values().map(VecDeque::len).sum::<usize>();
            ensure!(left == 0, "{left} verdicts about uploads that nobody has sent");
        }
        Ok(heard)
    }
}

fn check(
    caller: &Caller,
    expected: Option<Result<Verdict, IngestError>>,
    answer: &Answer,
    moment: Moment,
) -> anyhow::Result<()> {
    let is_right = match (answer, expected) {
        (Answer::Verdict(told), Some(expected)) => *told == expected,
        (Answer::Verdict(told), None) => {
            let is_ended = match moment {
                Moment::Commit | Moment::Rest => false,
                Moment::Close => !caller.is_taken,
                Moment::Death => true,
            };
            is_ended && *told == Err(IngestError::Ended)
        }
        (Answer::Change(_), _) => {
            caller.is_taken || matches!(moment, Moment::Close | Moment::Death)
        }
    };
    ensure!(
        is_right,
        "{:?} hears {answer:?}, at the moment of {moment:?}, when the store has said {expected:?}",
        caller.question
    );
    Ok(())
}
