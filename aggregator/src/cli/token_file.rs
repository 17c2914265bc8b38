//! Files of tokens and of app keys, which share one format.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use bandana_edge::auth::{Roles, Token, TokenKind, TokenList, TokenName};

use super::{Readers, say, write_new};

/// The token file or app key file of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenFile<'a> {
    kind: TokenKind,
    path: &'a Path,
}

impl<'a> TokenFile<'a> {
    pub(super) fn new(kind: TokenKind, path: &'a Path) -> Self {
        Self { kind, path }
    }

    /// Generates a token, appends its hash to the file, and prints the token. App keys have no
    /// roles.
    pub(super) fn add(self, name: &TokenName, roles: Option<Roles>) -> anyhow::Result<()> {
        let Self { kind, path } = self;
        let token = Token::generate(kind)?;
        change(kind, path, |text| Ok(TokenList::with(kind, text, name, &token.hash(), roles)?))?;
        say(&format!("{}\n", token.reveal()))
    }

    /// Prints the names, and for tokens their roles.
    pub(super) fn list(self) -> anyhow::Result<()> {
        let Self { kind, path } = self;
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("can't read {}", path.display()))?;
        let list = TokenList::parse(kind, &text).with_context(|| unusable(kind, path))?;
        let line = |(name, roles): (&TokenName, Option<Roles>)| match (kind, roles) {
            (TokenKind::App, _) => format!("{name}\n"),
            (TokenKind::Operator, Some(roles)) => format!("{name}  {roles}\n"),
            (TokenKind::Operator, None) => format!("{name}  administrator (no role in its line)\n"),
        };
        say(&list.names().map(line).collect::<String>())
    }

    /// Removes a token.
    pub(super) fn remove(self, name: &TokenName) -> anyhow::Result<()> {
        change(self.kind, self.path, |text| Ok(TokenList::without(text, name)?))
    }
}

/// Replaces the file atomically, so that a server never reads a partial one. The file may be
/// missing. A concurrent change is refused.
fn change(
    kind: TokenKind,
    path: &Path,
    edit: impl FnOnce(&str) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("{} is no file", path.display()))?;
    let mut next = name.to_owned();
    next.push(".next");
    let next = path.with_file_name(next);
    // Created before the file is read: it also serves as the lock against concurrent changes.
    write_new(&next, b"", Readers::Owner).with_context(|| {
        let (command, noun) = (kind.command(), kind.noun());
        format!("another `{command}` is at work on the {noun}s file, or one was interrupted")
    })?;
    let outcome = replace(kind, path, &next, edit);
    if outcome.is_err() {
        // The first error is the one to report.
        std::fs::remove_file(&next).ok();
    }
    outcome
}

fn replace(
    kind: TokenKind,
    path: &Path,
    next: &Path,
    edit: impl FnOnce(&str) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("can't read {}", path.display()))?,
    };
    let text = edit(&text).with_context(|| unusable(kind, path))?;
    let write = || {
        std::fs::write(next, text)?;
        std::fs::File::open(next)?.sync_all()?;
        std::fs::rename(next, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("can't replace {}", path.display()))
}

fn unusable(kind: TokenKind, path: &Path) -> String {
    format!("the {}s file {} can't be used, and is not changed", kind.noun(), path.display())
}
