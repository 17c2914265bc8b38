//! Tokens, which operators and apps show, and the hashes that the server keeps.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;
use zeroize::Zeroizing;

/// Random bytes of a token.
const SECRET_BYTES: usize = 32;

/// Longest name of a token, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The kind of a token's bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The people who run experiments. Their tokens are secrets.
    Operator,
    /// All installations of an app. A copy of the app contains its key.
    App,
}

impl TokenKind {
    /// The prefix of every token of this kind, by which people and secret scanners recognise it.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Operator => "bndn_",
            Self::App => "bndk_",
        }
    }

    /// The kind's name for people.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Operator => "token",
            Self::App => "app key",
        }
    }

    /// The command that makes and revokes tokens of this kind.
    pub fn command(self) -> &'static str {
        match self {
            Self::Operator => "bandana token",
            Self::App => "bandana app-key",
        }
    }
}

/// A secret that lets its bearer call the operator services or the device service.
pub struct Token(Zeroizing<String>);

impl Token {
    /// A new token: 32 bytes of the operating system's randomness.
    ///
    /// # Errors
    /// When the operating system's random source fails.
    pub fn generate(kind: TokenKind) -> Result<Self, getrandom::Error> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut *secret)?;
        // Allocated at full size, since a growing buffer leaves copies of the secret.
        let prefix = kind.prefix();
        let mut text = Zeroizing::new(String::with_capacity(2 * SECRET_BYTES + prefix.len()));
        text.push_str(prefix);
        URL_SAFE_NO_PAD.encode_string(*secret, &mut text);
        Ok(Self(text))
    }

    /// The secret itself: the prefix of its kind and 43 characters of base64url.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash that the server keeps.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(self.reveal().as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(<private>)")
    }
}

/// The SHA-256 of a token's text.
///
/// The hash is plain, not slow and salted as a password's would be: a token has 256 random bits,
/// which can't be guessed however fast a trial is.
#[derive(Clone, Copy, Debug)]
pub struct TokenHash([u8; 32]);

/// Compares in constant time.
impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for TokenHash {}

/// Consistent with equality.
impl Hash for TokenHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl TokenHash {
    /// The hash of a presented token.
    pub fn of(presented: &[u8]) -> Self {
        Self(Sha256::digest(presented).into())
    }
}

impl ConstantTimeEq for TokenHash {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for TokenHash {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
            let digits = digits.map(|digit| char::from(digit).to_digit(16));
            let [Some(high), Some(low)] = digits else { return Err(()) };
            *byte = u8::try_from(high << 4 | low).map_err(drop)?;
        }
        Ok(Self(hash))
    }
}

/// The name of a token in the log: 1 to 64 letters, digits and `-`, `_`, `.`, `@`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenName(String);

impl TokenName {
    /// Checks a name.
    ///
    /// # Errors
    /// When the text is not a valid name.
    pub fn new(name: impl Into<String>) -> Result<Self, TokenNameError> {
        let name = name.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) {
            Ok(Self(name))
        } else {
            Err(TokenNameError)
        }
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TokenName {
    type Err = TokenNameError;

    fn from_str(text: &str) -> Result<Self, TokenNameError> {
        Self::new(text)
    }
}

/// The error for an invalid name.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a name has 1 to {NAME_BYTES_MAX} of the characters a-z, A-Z, 0-9, -, _, . and @")]
pub struct TokenNameError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_hidden() {
        let new = || Token::generate(TokenKind::Operator).unwrap();
        let (one, other) = (new(), new());
        let key = Token::generate(TokenKind::App).unwrap();
        assert!(key.reveal().starts_with("bndk_"));
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(one.reveal().len(), 48);
        assert!(one.reveal().starts_with("bndn_"));
        assert_eq!(format!("{one:?}"), "Token(<private>)");
        assert!(bool::from(one.hash().ct_eq(&TokenHash::of(one.reveal().as_bytes()))));
        assert!(!bool::from(one.hash().ct_eq(&other.hash())));
    }

    #[test]
    fn hashes_are_those_of_sha256sum() {
        let text = TokenHash::of(b"abc").to_string();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(text.parse::<TokenHash>().unwrap().to_string(), text);
        assert!(text[1..].parse::<TokenHash>().is_err());
        assert!(text.replace('b', "+").parse::<TokenHash>().is_err());
        assert!("é".repeat(32).parse::<TokenHash>().is_err());
    }

    #[test]
    fn names_can_stand_in_a_log() {
        for good in ["a", "anna@laptop", "ci-2.x_Y", &"n".repeat(64)] {
            assert_eq!(TokenName::new(good).unwrap().to_string(), good);
        }
        for bad in ["", " ", "a b", "a\n", "#a", "ä", &"n".repeat(65)] {
            assert_eq!(TokenName::new(bad), Err(TokenNameError));
        }
    }
}
