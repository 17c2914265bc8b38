//! The text of a tokens file.
//!
//! ```text
//! # name, the SHA-256 of the token, and its roles
//! anna@laptop 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 experimenter,analyst
//! ```
//!
//! Lines that are empty or begin with `#` are skipped and preserved by changes. A line without
//! roles was made before roles existed, and has every role. App keys have no roles.
//!
//! A truncated last line may lack its roles and would then have every role, so a list must end with
//! a newline.

use std::collections::HashMap;
use std::io::{BufRead, Read as _};

use thiserror::Error;

use super::role::{RoleError, Roles};
use super::token::{TokenHash, TokenKind, TokenName, TokenNameError};

/// Most bytes of a line: more than any line with a token has.
const LINE_BYTES_MAX: u64 = 4096;

/// The tokens of a file, by name and by hash.
///
/// The index by hash is keyed by a secret of the process, and hashes are compared in constant time.
/// So the time of a search reveals nothing about the hashes of a list. Besides, a known hash is not
/// a token.
#[derive(Clone, Debug, Default)]
pub struct TokenList {
    lines: Vec<Line>,
    by_name: HashMap<TokenName, usize>,
    by_hash: HashMap<TokenHash, usize>,
}

/// A token of a list.
#[derive(Clone, Debug)]
struct Line {
    name: TokenName,
    hash: TokenHash,
    /// None: the line is from before roles existed.
    roles: Option<Roles>,
}

impl TokenList {
    /// Most bytes of a list: about 150,000 tokens.
    pub const BYTES_MAX: usize = 16 * 1024 * 1024;

    /// Reads a list.
    ///
    /// # Errors
    /// [`TokenListError`] names the line and the error.
    pub fn parse(kind: TokenKind, text: &str) -> Result<Self, TokenListError> {
        if text.len() > Self::BYTES_MAX {
            return Err(TokenListError::TooLong);
        }
        let last = text.split_inclusive('\n').next_back().unwrap_or_default();
        if !last.ends_with('\n') && !is_comment(last) {
            return Err(TokenListError::Unfinished { line: text.lines().count() });
        }
        let mut list = Self::default();
        for (line, number) in text.lines().zip(1..) {
            if !is_comment(line) {
                list.push(Line::parse(kind, line, number)?, number)?;
            }
        }
        Ok(list)
    }

    fn push(&mut self, line: Line, number: usize) -> Result<(), TokenListError> {
        let place = self.lines.len();
        if self.by_name.contains_key(&line.name) {
            return Err(TokenListError::Twice { line: number, name: line.name });
        }
        if let Some(other) = self.by_hash.get(&line.hash) {
            let other = self.lines[*other].name.clone();
            return Err(TokenListError::SameToken { line: number, name: line.name, other });
        }
        self.by_name.insert(line.name.clone(), place);
        self.by_hash.insert(line.hash, place);
        self.lines.push(line);
        Ok(())
    }

    /// The part of this list that remains under a text that is too long or truncated. A token
    /// remains if the text has it, with no more roles than the text gives it. So tokens removed
    /// from the text are revoked.
    ///
    /// # Errors
    /// When the text can't be read.
    pub fn left_by(&self, kind: TokenKind, mut text: impl BufRead) -> std::io::Result<Self> {
        let (mut left, mut bytes, mut is_whole) = (Self::default(), Vec::new(), true);
        loop {
            bytes.clear();
            if text.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(left);
            }
            // A longer line comes in pieces, none of which counts as a line.
            let (begins, ends) = (is_whole, bytes.ends_with(b"\n"));
            is_whole = ends;
            let line = str::from_utf8(&bytes).ok().filter(|_| begins);
            let Some(Ok(line)) = line.map(|line| Line::parse(kind, line, 0)) else { continue };
            let Some(known) = self.by_hash.get(&line.hash).map(|place| &self.lines[*place]) else {
                continue;
            };
            if known.name == line.name {
                let both = known.roles.into_iter().chain(line.roles).reduce(Roles::and);
                // The first of two equal lines counts.
                left.push(Line { roles: both, ..line }, 0).ok();
            }
        }
    }

    /// The names, in the order of the file, each with its roles. None: a line without roles.
    pub fn names(&self) -> impl ExactSizeIterator<Item = (&TokenName, Option<Roles>)> {
        self.lines.iter().map(|line| (&line.name, line.roles))
    }

    /// Whether a token has this name.
    pub fn has(&self, name: &TokenName) -> bool {
        self.by_name.contains_key(name)
    }

    /// The name and the roles of the token with this hash.
    pub fn find(&self, hash: &TokenHash) -> Option<(&TokenName, Roles)> {
        let line = &self.lines[*self.by_hash.get(hash)?];
        Some((&line.name, line.roles.unwrap_or(Roles::ALL)))
    }

    /// The text with one more token.
    ///
    /// # Errors
    /// When the text is not a list, already has the name, or has no room.
    pub fn with(
        kind: TokenKind,
        text: &str,
        name: &TokenName,
        hash: &TokenHash,
        roles: Option<Roles>,
    ) -> Result<String, TokenListError> {
        // A truncated line must not be completed by accident.
        Self::parse(kind, text)?;
        let ends = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let roles = roles.map(|roles| format!(" {roles}")).unwrap_or_default();
        let text = format!("{text}{ends}{name} {hash}{roles}\n");
        Self::parse(kind, &text).map(|_| text)
    }

    /// The text without the token of this name. A text that is too long, or has other invalid
    /// lines, must not prevent a revocation. A truncated last line stays so.
    ///
    /// # Errors
    /// When the text lacks the name.
    pub fn without(text: &str, name: &TokenName) -> Result<String, TokenListError> {
        let name_text = name.to_string();
        let is_other =
            |line: &&str| is_comment(line) || line.split_whitespace().next() != Some(&*name_text);
        if text.lines().all(|line| is_other(&line)) {
            return Err(TokenListError::Unknown(name.clone()));
        }
        Ok(text.split_inclusive('\n').filter(is_other).collect())
    }
}

impl Line {
    fn parse(kind: TokenKind, line: &str, number: usize) -> Result<Self, TokenListError> {
        let mut words = line.split_whitespace();
        let (name, hash, roles, rest) = (words.next(), words.next(), words.next(), words.next());
        let is_too_much = rest.is_some() || (roles.is_some() && kind == TokenKind::App);
        let (Some(name), Some(hash), false) = (name, hash, is_too_much) else {
            return Err(TokenListError::Words { line: number });
        };
        let name =
            TokenName::new(name).map_err(|source| TokenListError::Name { line: number, source })?;
        let hash = hash.parse().map_err(|()| TokenListError::Hash { line: number })?;
        let roles = roles.map(str::parse).transpose();
        let roles = roles.map_err(|source| TokenListError::Roles { line: number, source })?;
        Ok(Self { name, hash, roles })
    }
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// The error of an invalid list of tokens.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenListError {
    /// The list is too long.
    #[error(
        "it has more than {} MiB, so nothing is added from it; revoke what nobody uses",
        TokenList::BYTES_MAX >> 20
    )]
    TooLong,
    /// The last line does not end with a newline, as if the file had been truncated.
    #[error(
        "line {line}, the last one, does not end with a newline, so the file may have been cut; \
         see whether the line is whole, with its roles, and end it with a newline"
    )]
    Unfinished {
        /// The line, from 1.
        line: usize,
    },
    /// A line has too few or too many words.
    #[error("line {line} is not as the command `new` writes it: NAME SHA-256, and roles of tokens")]
    Words {
        /// The line, from 1.
        line: usize,
    },
    /// A name is invalid.
    #[error("line {line} does not begin with a name")]
    Name {
        /// The line, from 1.
        line: usize,
        /// The rule for names.
        source: TokenNameError,
    },
    /// A hash is invalid.
    #[error(
        "line {line} lacks a SHA-256 of 64 hexadecimal digits after the name; the token itself \
         does not belong into this file"
    )]
    Hash {
        /// The line, from 1.
        line: usize,
    },
    /// A word is not a role.
    #[error("line {line} ends with something else than roles with commas in between")]
    Roles {
        /// The line, from 1.
        line: usize,
        /// The rule for roles.
        source: RoleError,
    },
    /// Two names have the same token.
    #[error("line {line}: {name} is the token of {other} once more; make each a token of its own")]
    SameToken {
        /// The line, from 1.
        line: usize,
        /// The name.
        name: TokenName,
        /// The name in the earlier line.
        other: TokenName,
    },
    /// Two tokens have the same name.
    #[error(
        "line {line}: the name {name} is there already; choose another one, or revoke that one"
    )]
    Twice {
        /// The line, from 1.
        line: usize,
        /// The name.
        name: TokenName,
    },
    /// No token has this name.
    #[error("there is no name {0}; the command `list` shows the names")]
    Unknown(TokenName),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> TokenName {
        TokenName::new(name).unwrap()
    }

    fn hash(text: &str) -> TokenHash {
        TokenHash::of(text.as_bytes())
    }

    fn parse(text: &str) -> Result<TokenList, TokenListError> {
        TokenList::parse(TokenKind::Operator, text)
    }

    fn roles(text: &str) -> Roles {
        text.parse().unwrap()
    }

    #[test]
    fn tokens_come_and_go_and_comments_stay() {
        let with = |text: &str, who: &str, token, roles| {
            TokenList::with(TokenKind::Operator, text, &name(who), &hash(token), roles)
        };
        let text = "# ours\n\n# anna is first";
        let text = with(text, "anna", "1", None).unwrap();
        let text = with(&text, "ben", "2", Some(roles("viewer,analyst"))).unwrap();
        let list = parse(&text).unwrap();
        assert_eq!(list.find(&hash("1")), Some((&name("anna"), Roles::ALL)));
        assert_eq!(list.find(&hash("2")), Some((&name("ben"), roles("viewer,analyst"))));
        assert_eq!(list.find(&hash("3")), None);
        assert_eq!(TokenList::default().find(&hash("1")), None);

        let left = TokenList::without(&text, &name("anna")).unwrap();
        assert!(left.starts_with("# ours\n\n# anna is first\nben "), "{left}");
        let list = parse(&left).unwrap();
        assert_eq!(list.find(&hash("1")), None);
        let names: Vec<_> = list.names().collect();
        assert_eq!(names, [(&name("ben"), Some(roles("viewer,analyst")))]);
        let unknown = TokenListError::Unknown(name("anna"));
        assert_eq!(TokenList::without(&left, &name("anna")), Err(unknown));
        let twice = TokenListError::Twice { line: 5, name: name("ben") };
        assert_eq!(with(&left, "ben", "3", None), Err(twice));
        let (line, other) = (5, name("ben"));
        let same = TokenListError::SameToken { line, name: name("eve"), other };
        assert_eq!(with(&left, "eve", "2", None), Err(same));
    }

    #[test]
    fn what_is_not_a_list_is_refused_with_its_line() {
        let refuse = |text: &str| parse(text).unwrap_err();
        let hash = TokenHash::of(b"");
        assert_eq!(refuse("\nanna\n"), TokenListError::Words { line: 2 });
        assert_eq!(refuse(&format!("anna {hash} viewer x\n")), TokenListError::Words { line: 1 });
        let source = RoleError;
        assert_eq!(refuse(&format!("anna {hash} x\n")), TokenListError::Roles { line: 1, source });
        let key = TokenList::parse(TokenKind::App, &format!("anna {hash} viewer\n"));
        assert_eq!(key.unwrap_err(), TokenListError::Words { line: 1 });
        let source = TokenNameError;
        assert_eq!(refuse(&format!("ann! {hash}\n")), TokenListError::Name { line: 1, source });
        assert_eq!(refuse("anna bndn_secret\n"), TokenListError::Hash { line: 1 });
        assert!(!refuse("anna bndn_secret\n").to_string().contains("secret"));
        let long = "#\n".repeat(TokenList::BYTES_MAX / 2 + 1);
        assert_eq!(refuse(&long), TokenListError::TooLong);
        let unknown = Err(TokenListError::Unknown(name("anna")));
        assert_eq!(TokenList::without("", &name("anna")), unknown);
    }

    #[test]
    fn a_line_that_was_cut_gives_no_roles() {
        let (anna, ben) = (format!("anna {} analyst\n", hash("1")), format!("ben {}", hash("2")));
        let whole = anna.clone() + &ben + " viewer\n";
        let known = parse(&whole).unwrap();
        let cut = anna.clone() + &ben;
        for cut in [&cut, &(cut.clone() + " "), &(cut.clone() + " viewer")] {
            assert_eq!(parse(cut).unwrap_err(), TokenListError::Unfinished { line: 2 });
            let left = known.left_by(TokenKind::Operator, cut.as_bytes()).unwrap();
            assert_eq!(left.find(&hash("2")), Some((&name("ben"), roles("viewer"))));
            // No command completes the truncated line.
            let with = TokenList::with(TokenKind::Operator, cut, &name("eve"), &hash("3"), None);
            assert_eq!(with, Err(TokenListError::Unfinished { line: 2 }));
            assert_eq!(TokenList::without(cut, &name("anna")).unwrap(), cut[anna.len()..]);
            assert_eq!(TokenList::without(cut, &name("ben")).unwrap(), anna);
        }
        let key = TokenList::parse(TokenKind::App, &ben);
        assert_eq!(key.unwrap_err(), TokenListError::Unfinished { line: 1 });
        assert!(parse(&(anna + "# a comment")).is_ok());
    }

    #[test]
    fn a_hundred_thousand_tokens_are_a_list() {
        let line = |i: u32| format!("app-{i} {} viewer\n", hash(&i.to_string()));
        let text: String = (0..100_000).map(line).collect();
        let list = parse(&text).unwrap();
        assert_eq!(list.names().len(), 100_000);
        for i in [0, 50_000, 99_999] {
            let found = list.find(&hash(&i.to_string())).unwrap();
            assert_eq!(found, (&name(&format!("app-{i}")), roles("viewer")));
        }
        assert_eq!(list.find(&hash("100000")), None);
    }

    #[test]
    fn a_text_that_is_too_long_revokes_and_adds_nothing() {
        let line = |who: &str, token: &str, roles: &str| format!("{who} {} {roles}\n", hash(token));
        let old = line("anna", "1", "") + &line("ben", "2", "") + &line("cem", "3", "viewer");
        let old = old + &line("dora", "4", "viewer,analyst");
        let long_line = format!("{} {}", "#".repeat(5000), line("x", "5", ""));
        let text = line("anna", "1", "") + &line("eve", "3", "") + &line("fay", "6", "");
        let text = text + &long_line + "\u{0}\n" + &line("dora", "4", "analyst,custodian");
        let left = parse(&old).unwrap().left_by(TokenKind::Operator, text.as_bytes()).unwrap();
        assert_eq!(left.find(&hash("1")), Some((&name("anna"), Roles::ALL)));
        assert_eq!(left.find(&hash("4")), Some((&name("dora"), roles("analyst"))));
        for gone in ["2", "3", "5", "6"] {
            assert_eq!(left.find(&hash(gone)), None, "{gone}");
        }
    }
}
