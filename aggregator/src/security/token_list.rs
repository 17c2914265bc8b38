//! The text of a tokens file.
//!
//! ```text
//! # name, and the SHA-256 of the token
//! anna@laptop 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
//! ```
//!
//! Lines that are empty or begin with `#` are skipped. Changes leave them as they are.

use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use thiserror::Error;

use super::token::{TokenHash, TokenName, TokenNameError};

/// The tokens of a file, by name.
#[derive(Clone, Debug, Default)]
pub struct TokenList(Vec<(TokenName, TokenHash)>);

impl TokenList {
    /// Longest text of a list, in bytes: several hundred tokens, and a bound on what
    /// one call can cost.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// Reads a list.
    ///
    /// # Errors
    /// [`TokenListError`] says what is wrong in which line.
    pub fn parse(text: &str) -> Result<Self, TokenListError> {
        if text.len() > Self::BYTES_MAX {
            return Err(TokenListError::TooLong);
        }
        let mut list = Self::default();
        for (line, number) in text.lines().zip(1..) {
            if is_comment(line) {
                continue;
            }
            let mut words = line.split_whitespace();
            let (Some(name), Some(hash), None) = (words.next(), words.next(), words.next()) else {
                return Err(TokenListError::Words { line: number });
            };
            let name = TokenName::new(name)
                .map_err(|source| TokenListError::Name { line: number, source })?;
            let hash = hash.parse().map_err(|()| TokenListError::Hash { line: number })?;
            if list.names().any(|other| *other == name) {
                return Err(TokenListError::Twice { line: number, name });
            }
            list.0.push((name, hash));
        }
        Ok(list)
    }

    /// The names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &TokenName> {
        self.0.iter().map(|(name, _)| name)
    }

    /// The name of the token with this hash. Takes the same time whichever it is, and
    /// if there is none.
    pub fn find(&self, hash: &TokenHash) -> Option<&TokenName> {
        // Place 0 stands for "none".
        let mut found = 0_u64;
        for ((_, known), place) in self.0.iter().zip(1_u64..) {
            found.conditional_assign(&place, known.ct_eq(hash));
        }
        let place = usize::try_from(found).ok()?.checked_sub(1)?;
        self.0.get(place).map(|(name, _)| name)
    }

    /// A text with one token more.
    ///
    /// # Errors
    /// When the text is not a list, or has the name or no room.
    pub fn with(text: &str, name: &TokenName, hash: &TokenHash) -> Result<String, TokenListError> {
        let ends = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let text = format!("{text}{ends}{name} {hash}\n");
        Self::parse(&text).map(|_| text)
    }

    /// A text without the token of this name.
    ///
    /// # Errors
    /// When the text is not a list, or lacks the name.
    pub fn without(text: &str, name: &TokenName) -> Result<String, TokenListError> {
        if !Self::parse(text)?.names().any(|other| other == name) {
            return Err(TokenListError::Unknown(name.clone()));
        }
        let is_other = |line: &&str| {
            let word = line.split_whitespace().next();
            is_comment(line) || word != Some(&*name.to_string())
        };
        Ok(text.lines().filter(is_other).flat_map(|line| [line, "\n"]).collect())
    }
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// What is wrong with a list of tokens.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenListError {
    /// It is longer than any list.
    #[error("it has more than {max} bytes; revoke what nobody uses", max = TokenList::BYTES_MAX)]
    TooLong,
    /// A line has too few or too many words.
    #[error("line {line} is not \"NAME SHA-256\", as the command `new` writes it")]
    Words {
        /// The line, from 1.
        line: usize,
    },
    /// A name can't be one.
    #[error("line {line} does not begin with a name")]
    Name {
        /// The line, from 1.
        line: usize,
        /// What names are.
        source: TokenNameError,
    },
    /// A hash is not one.
    #[error(
        "line {line} does not end with a SHA-256 of 64 hexadecimal digits; the token itself does \
         not belong into this file"
    )]
    Hash {
        /// The line, from 1.
        line: usize,
    },
    /// Two tokens have one name.
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

    #[test]
    fn tokens_come_and_go_and_comments_stay() {
        let hash = |text: &str| TokenHash::of(text.as_bytes());
        let text = "# ours\n\n# anna is first";
        let text = TokenList::with(text, &name("anna"), &hash("1")).unwrap();
        let text = TokenList::with(&text, &name("ben"), &hash("2")).unwrap();
        let list = TokenList::parse(&text).unwrap();
        assert_eq!(list.find(&hash("1")), Some(&name("anna")));
        assert_eq!(list.find(&hash("2")), Some(&name("ben")));
        assert_eq!(list.find(&hash("3")), None);
        assert_eq!(TokenList::default().find(&hash("1")), None);

        let left = TokenList::without(&text, &name("anna")).unwrap();
        assert!(left.starts_with("# ours\n\n# anna is first\nben "), "{left}");
        let list = TokenList::parse(&left).unwrap();
        assert_eq!(list.find(&hash("1")), None);
        assert_eq!(list.names().collect::<Vec<_>>(), [&name("ben")]);
        let unknown = TokenListError::Unknown(name("anna"));
        assert_eq!(TokenList::without(&left, &name("anna")), Err(unknown));
        let twice = TokenListError::Twice { line: 5, name: name("ben") };
        assert_eq!(TokenList::with(&left, &name("ben"), &hash("3")), Err(twice));
    }

    #[test]
    fn what_is_not_a_list_is_refused_with_its_line() {
        let refuse = |text: &str| TokenList::parse(text).unwrap_err();
        let hash = TokenHash::of(b"");
        assert_eq!(refuse("\nanna\n"), TokenListError::Words { line: 2 });
        assert_eq!(refuse(&format!("anna {hash} x")), TokenListError::Words { line: 1 });
        let source = TokenNameError;
        assert_eq!(refuse(&format!("ann! {hash}")), TokenListError::Name { line: 1, source });
        assert_eq!(refuse("anna bndn_secret"), TokenListError::Hash { line: 1 });
        assert!(!refuse("anna bndn_secret").to_string().contains("secret"));
        assert_eq!(refuse(&"#\n".repeat(40_000)), TokenListError::TooLong);
    }
}
