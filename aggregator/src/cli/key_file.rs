//! The file of a secret key.
//!
//! Three lines of text; lines that are empty or begin with `#` are skipped:
//!
//! ```text
//! bandana signing key 1
//! public d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a
//! secret 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60
//! ```
//!
//! The public key is derived from the secret key, so it serves as a checksum.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bandana_shared::signing::{KeyError, PublicKey, SigningKey};
use thiserror::Error;
use zeroize::Zeroizing;

use super::{Readers, write_new};

/// The first line, without the version.
const TITLE: &str = "bandana signing key ";

/// The version of the format.
const VERSION: &str = "1";

/// Upper limit on the size of a key file, with room for comments.
const BYTES_MAX: usize = 4096;

const COMMENT: &str = "\
# Keep this file secret. Whoever has it can sign experiments for the devices that
# pin the public key below.
";

/// Writes `key` to a new file that is readable by its owner only.
pub(super) fn write(path: &Path, key: &SigningKey) -> anyhow::Result<()> {
    write_new(path, to_text(key).as_bytes(), Readers::Owner)
}

/// Reads the key from a file.
pub(super) fn read(path: &Path) -> Result<SigningKey, KeyFileError> {
    let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
    let content = |problem| KeyFileError::Content { path: path.to_owned(), problem };
    // Allocated at full capacity: a reallocation would leave copies of the secret.
    let mut text = Zeroizing::new(String::with_capacity(BYTES_MAX + 1));
    let file = File::open(path).map_err(failed)?;
    match file.take(BYTES_MAX as u64 + 1).read_to_string(&mut text) {
        Ok(length) if length <= BYTES_MAX => from_text(&text).map_err(content),
        Ok(_) => Err(content(Problem::Title)),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(content(Problem::Title))
        }
        Err(error) => Err(failed(error)),
    }
}

fn to_text(key: &SigningKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(BYTES_MAX));
    let (public, secret) = (key.public_key().to_string(), key.to_secret_text());
    for part in [COMMENT, TITLE, VERSION, "\npublic ", &public, "\nsecret ", &secret, "\n"] {
        text.push_str(part);
    }
    text
}

fn from_text(text: &str) -> Result<SigningKey, Problem> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let version = lines.next().and_then(|line| line.strip_prefix(TITLE)).ok_or(Problem::Title)?;
    if version != VERSION {
        return Err(Problem::Version(version.to_owned()));
    }
    let mut field = |name: &'static str| {
        let line = lines.next().ok_or(Problem::Field(name))?;
        line.strip_prefix(name).map(str::trim_start).ok_or(Problem::Field(name))
    };
    let (public, secret) = (field("public ")?, field("secret ")?);
    let public: PublicKey =
        public.parse().map_err(|source| Problem::Key { name: "public", source })?;
    let key = SigningKey::from_secret_text(secret)
        .map_err(|source| Problem::Key { name: "secret", source })?;
    if lines.next().is_some() {
        return Err(Problem::More);
    }
    if key.public_key() == public { Ok(key) } else { Err(Problem::Mismatch) }
}

/// Checks that a parsed key survives a round trip through its text.
#[cfg(feature = "fuzzing")]
pub(super) fn fuzz(text: &str) {
    if let Ok(key) = from_text(text) {
        let again = from_text(&to_text(&key)).map(|again| again.public_key());
        assert_eq!(again.ok(), Some(key.public_key()));
    }
}

/// A key file that can't be used.
#[derive(Debug, Error)]
pub(super) enum KeyFileError {
    /// The file can't be read.
    #[error("can't read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The content of the file is not a key.
    #[error("{} can't be used as a key file", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The defect.
        #[source]
        problem: Problem,
    },
}

/// A defect in the text of a key file. Never displays the secret.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum Problem {
    #[error(
        "its first line is not \"{TITLE}{VERSION}\"; name a file that `bandana keys generate` wrote"
    )]
    Title,
    #[error("it has version {0:?} of the format, this program reads version {VERSION}")]
    Version(String),
    #[error("its line \"{0}...\" is missing or not where it belongs; take a copy of the file")]
    Field(&'static str),
    #[error("its {name} key can't be read; take a copy of the file")]
    Key { name: &'static str, source: KeyError },
    #[error("its public key is not that of its secret key, so one of them is damaged; take a copy")]
    Mismatch,
    #[error("it has more than one key; put each into a file of its own")]
    More,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_secret(&[7; 32])
    }

    #[test]
    fn golden_text() {
        let text = "\
            # Keep this file secret. Whoever has it can sign experiments for the devices that\n\
            # pin the public key below.\n\
            bandana signing key 1\n\
            public ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c\n\
            secret 0707070707070707070707070707070707070707070707070707070707070707\n";
        assert_eq!(*to_text(&key()), text);
        assert_eq!(from_text(text).unwrap().public_key(), key().public_key());
        let windows = text.replace('\n', "\r\n\r\n");
        assert_eq!(from_text(&windows).unwrap().public_key(), key().public_key());
    }

    #[test]
    fn what_is_not_a_whole_key_is_refused_without_showing_it() {
        let text = to_text(&key());
        let refuse = |text: &str| from_text(text).unwrap_err();
        assert_eq!(refuse(""), Problem::Title);
        assert_eq!(refuse("-----BEGIN PRIVATE KEY-----\n"), Problem::Title);
        assert_eq!(refuse(&text.replace("key 1", "key 2")), Problem::Version("2".to_owned()));
        assert_eq!(refuse(&text.replace("secret", "secrets")), Problem::Field("secret "));
        assert_eq!(refuse(&text.replace("public", "")), Problem::Field("public "));
        assert_eq!(refuse(&text.repeat(2)), Problem::More);
        assert_eq!(refuse(&text.replace("0707\n", "0708\n")), Problem::Mismatch);
        for changed in [text.replace("0707\n", "07\n"), text.replace("0707\n", "07zz\n")] {
            let problem = refuse(&changed);
            assert_eq!(problem, Problem::Key { name: "secret", source: KeyError::Text });
            assert!(!format!("{problem:?} {problem}").contains("0707"));
        }
        for cut in 0..text.trim_end().len() {
            assert!(from_text(&text[..cut]).is_err(), "{cut}");
        }
    }
}
