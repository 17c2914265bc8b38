//! Extraction of commands from a page, to run them as written.
//!
//! A chapter begins with `## `. Its blocks that are fenced with `sh` are run one after the other by
//! one bash, in an empty folder; blocks of other languages are not. Each command must exit with 0.
//! A comment at its end, or on separate lines after it, states other expectations:
//!
//! - `# exits: N`: the exit code is N.
//! - `# prints: TEXT`: its standard output or error contains TEXT.
//! - `# logs: TEXT`: the output of background programs, from this command on, contains TEXT.
//!
//! The output of a command must also contain the lines of a block fenced with `text` after it.
//!
//! A command that ends with `&`, or with `& name=$!`, runs in the background; the next one begins
//! when it has printed a line that begins with its TEXT. All other comments are ignored.
//!
//! One substitution is made: `:7301`, `:7302`, `:7401` and `:7402`, wherever they stand, become
//! free ports, which the server receives through its environment in place of its defaults. So pages
//! can be run concurrently, and on a host with a running server.

mod shell;

use anyhow::{Context as _, ensure};

pub use shell::Shell;

/// Prefixes of expectations in comments after a command.
const EXITS: &str = "# exits: ";
const PRINTS: &str = "# prints: ";
const LOGS: &str = "# logs: ";

/// A chapter of a page.
#[derive(Clone, Debug, Default)]
pub struct Chapter {
    /// Its heading.
    pub title: String,
    /// Its commands.
    pub steps: Vec<Step>,
    /// Its blocks of commands, as they stand on the page.
    pub blocks: Vec<Block>,
}

/// A block of commands, as it stands on the page.
#[derive(Clone, Debug, Default)]
pub struct Block {
    text: String,
    /// Its commands.
    pub steps: Vec<Step>,
}

/// A command with its expectations.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Number of its first line in the page.
    pub line: usize,
    /// The command.
    pub command: String,
    exits: i32,
    prints: Vec<String>,
    logs: Vec<String>,
}

/// The chapters of a page in Markdown.
///
/// # Errors
/// When a block has no language, or an expectation no command.
pub fn chapters(page: &str) -> anyhow::Result<Vec<Chapter>> {
    let mut chapters = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            chapters.push(Chapter { title: title.to_owned(), ..Chapter::default() });
        }
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let block: Vec<_> = lines.by_ref().take_while(|(_, line)| line.trim() != "```").collect();
        let Some(chapter) = chapters.last_mut() else { continue };
        ensure!(!language.is_empty(), "line {number}: a block has no language");
        if language == "sh" {
            let steps = steps(&block)?;
            chapter.steps.extend(steps.clone());
            let text = block.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n");
            chapter.blocks.push(Block { text, steps });
        } else if let ("text", Some(step)) = (language, chapter.steps.last_mut()) {
            let lines = block.iter().filter(|(_, line)| !line.is_empty());
            step.prints.extend(lines.map(|(_, line)| (*line).to_owned()));
        }
    }
    Ok(chapters)
}

/// The commands of a block.
fn steps(block: &[(usize, &str)]) -> anyhow::Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = block.iter();
    while let Some(&(line, text)) = lines.next() {
        let is_expectation = [EXITS, PRINTS, LOGS].iter().any(|mark| text.starts_with(mark));
        if text.trim().is_empty() || (text.starts_with('#') && !is_expectation) {
            continue;
        }
        if is_expectation {
            let step = steps.last_mut();
            step.with_context(|| format!("line {line}: no command"))?.expect(line, text)?;
            continue;
        }
        let (mut command, expectation) = split(text);
        let mut step = Step { line, ..Step::default() };
        if let Some(expectation) = expectation {
            step.expect(line, expectation)?;
        }
        if let Some((_, end)) = text.split_once("<<") {
            let end = end.trim_matches('\'');
            for (_, more) in lines.by_ref() {
                command = command + "\n" + more;
                if *more == end {
                    break;
                }
            }
        }
        while command.ends_with('\\') {
            let &(line, text) = lines.next().with_context(|| format!("line {line}: no end"))?;
            let (more, expectation) = split(text);
            command = command + "\n" + &more;
            if let Some(expectation) = expectation {
                step.expect(line, expectation)?;
            }
        }
        steps.push(Step { command, ..step });
    }
    Ok(steps)
}

/// A line's command, and its expectation.
fn split(text: &str) -> (String, Option<&str>) {
    let place = [EXITS, PRINTS, LOGS].iter().filter_map(|mark| text.find(mark)).min();
    let (command, expectation) = place.map_or((text, None), |place| {
        let (command, expectation) = text.split_at(place);
        (command, Some(expectation))
    });
    (command.trim_end().to_owned(), expectation)
}

impl Step {
    fn expect(&mut self, line: usize, text: &str) -> anyhow::Result<()> {
        let text = text.trim_end();
        if let Some(text) = text.strip_prefix(PRINTS) {
            self.prints.push(text.to_owned());
        } else if let Some(text) = text.strip_prefix(LOGS) {
            self.logs.push(text.to_owned());
        } else if let Some(code) = text.strip_prefix(EXITS) {
            let code = code.parse().with_context(|| format!("line {line}: {code} is no code"))?;
            self.exits = code;
        }
        Ok(())
    }

    /// Whether the command runs in the background.
    fn is_in_background(&self) -> bool {
        let end = self.command.rsplit(' ').next().unwrap_or_default();
        let command = match end.strip_suffix("=$!") {
            Some(_) => self.command.trim_end_matches(end).trim_end(),
            None => &self.command,
        };
        command.ends_with('&') && !command.ends_with("&&")
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    const PAGE: &str = "\
# A page
## Greet
```sh
echo hello \\
    you                # prints: hello you
cat > file <<END
a line
END
# prints: nothing
sleep 60 & sleeper=$!
grep -c line file      # prints: 1
```
```console
systemctl start greeter
```
## Leave
```sh
(exit 3)
# exits: 3
```
";

    #[test]
    fn pages_are_read() -> anyhow::Result<()> {
        let chapters = chapters(PAGE)?;
        let [greet, leave] = &chapters[..] else { bail!("{chapters:?}") };
        let commands: Vec<_> = greet.steps.iter().map(|step| &step.command[..]).collect();
        let heredoc = "cat > file <<END\na line\nEND";
        let all = ["echo hello \\\n    you", heredoc, "sleep 60 & sleeper=$!", "grep -c line file"];
        assert_eq!(commands, all);
        let in_background = greet.steps.iter().map(Step::is_in_background);
        assert_eq!(in_background.collect::<Vec<_>>(), [false, false, true, false]);
        assert_eq!((&leave.title[..], leave.steps[0].exits), ("Leave", 3));
        Ok(())
    }
}
