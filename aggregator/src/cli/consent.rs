//! Consent to an irreversible command: a prompt, or the flag `--yes`.

use std::io::{BufRead, IsTerminal as _, Write, stderr, stdin};

use anyhow::{bail, ensure};

/// A request for consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    /// The action to confirm; completes "Type "yes" to".
    pub act: &'static str,
    /// The message on refusal: the action that was not performed.
    pub undone: &'static str,
    /// The condition under which `--yes` is appropriate; completes "if".
    pub unasked: &'static str,
}

impl Prompt {
    /// Asks on the terminal, unless `yes` has it.
    pub(super) fn confirmed(self, yes: bool) -> anyhow::Result<()> {
        Consent::new(self, yes, stdin().is_terminal())?.obtain(stdin().lock(), stderr())
    }
}

/// The source of the consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    /// Given on the command line.
    Given,
    /// To be obtained with a prompt.
    Ask(Prompt),
}

impl Consent {
    /// Evaluates the flag `--yes`, given whether standard input is a terminal.
    pub(super) fn new(question: Prompt, yes: bool, terminal: bool) -> anyhow::Result<Self> {
        match (yes, terminal) {
            (true, _) => Ok(Self::Given),
            (false, true) => Ok(Self::Ask(question)),
            (false, false) => bail!(
                "standard input is not a terminal, so nobody can be asked; run this in a terminal, \
                 or add --yes if {}",
                question.unasked
            ),
        }
    }

    /// Prompts if necessary, and fails unless consent is given.
    pub(super) fn obtain(
        self,
        mut input: impl BufRead,
        mut prompt: impl Write,
    ) -> anyhow::Result<()> {
        let Self::Ask(question) = self else { return Ok(()) };
        write!(prompt, "Type \"yes\" to {}: ", question.act)?;
        prompt.flush()?;
        let mut answer = String::new();
        input.read_line(&mut answer)?;
        ensure!(answer.trim() == "yes", "{}: the answer was not \"yes\"", question.undone);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Prompt =
        Prompt { act: "go on", undone: "nothing was done", unasked: "that is fine" };

    #[test]
    fn only_yes_is_a_yes() {
        let ask = |answer: &str| {
            let mut prompt = Vec::new();
            let outcome = Consent::Ask(QUESTION).obtain(answer.as_bytes(), &mut prompt);
            assert!(!prompt.is_empty());
            outcome.is_ok()
        };
        assert!(ask("yes\n") && ask(" yes \r\n"));
        assert!(!ask("") && !ask("\n") && !ask("y\n") && !ask("no\nyes\n") && !ask("YES\n"));
        // There is no prompt.
        let mut prompt = Vec::new();
        assert!(Consent::Given.obtain(&b"no\n"[..], &mut prompt).is_ok() && prompt.is_empty());
        assert_eq!(Consent::new(QUESTION, true, false).unwrap(), Consent::Given);
        assert_eq!(Consent::new(QUESTION, false, true).unwrap(), Consent::Ask(QUESTION));
        assert!(Consent::new(QUESTION, false, false).unwrap_err().to_string().contains("--yes"));
    }
}
