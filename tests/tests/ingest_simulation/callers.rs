//! Waiting callers, and the answer that each must receive.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use anyhow::{bail, ensure};
use bandana_aggregator::ingest::IngestError;
use bandana_shared::identity::Digest;
use bandana_store::Verdict;

use super::model::Key;

/// A caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Upload(Key),
    Change,
}

/// A revision known to some caller.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) experiment: String,
    pub(crate) digest: Digest,
    pub(crate) arms: usize,
}

/// An answer to a caller.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Verdict(Result<Verdict, IngestError>),
    Change(Result<Known, String>),
}

/// A call under way.
pub(crate) type Call = Pin<Box<dyn Future<Output = Answer> + Send>>;

struct Caller {
    question: Question,
    /// None: the caller has gone.
    call: Option<Call>,
    /// Whether the writer has taken the call from the queue.
    is_taken: bool,
}

/// The moment at which received answers are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before or during the commit of a group.
    Commit,
    /// The writer is idle.
    Rest,
    /// The writer has shut down, after all taken calls.
    Close,
    /// The writer has died.
    Death,
}

/// The callers of one server, in queue order.
#[derive(Default)]
pub(crate) struct Callers {
    waiting: VecDeque<Caller>,
    /// The store's verdicts on uploads, in order.
    expected: BTreeMap<Key, VecDeque<Result<Verdict, IngestError>>>,
}

/// Polls a call for an answer.
pub(crate) fn poll(call: &mut Call) -> Poll<Answer> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

impl Callers {
    /// The number of calls in the queue.
    pub(crate) fn queued(&self) -> usize {
        self.waiting.iter().filter(|caller| !caller.is_taken).count()
    }

    pub(crate) fn push(&mut self, question: Question, call: Call) {
        self.waiting.push_back(Caller { question, call: Some(call), is_taken: false });
    }

    /// Records that the writer takes the first calls of the queue.
    pub(crate) fn take(&mut self, most: usize) {
        let queued = self.waiting.iter_mut().filter(|caller| !caller.is_taken);
        queued.take(most).for_each(|caller| caller.is_taken = true);
    }

    /// Cancels the call at this index, if it exists and waits for an upload.
    pub(crate) fn cancel(&mut self, place: usize) -> bool {
        let mut uploads = self.waiting.iter_mut().filter(|c| c.question != Question::Change);
        uploads.nth(place).is_some_and(|caller| caller.call.take().is_some())
    }

    /// Records a verdict that the store has returned to the writer.
    pub(crate) fn expect(&mut self, key: Key, told: Result<Verdict, IngestError>) {
        self.expected.entry(key).or_default().push_back(told);
    }

    /// Checks that every caller has received the answers due by now, and no others.
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
