//! The secret key of a log or a witness, with its name, in a file.
//!
//! Four lines of text; lines that are empty or begin with `#` are skipped:
//!
//! ```text
//! bandana log key 1
//! role log
//! name bandana.example/log
//! secret 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60
//! ```

use std::path::{Path, PathBuf};

use bandana_shared::signing::SigningKey;
use bandana_shared::transparency::{NoteKeyError, NoteSigner, Role};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::regular_file;

const TITLE: &str = "bandana log key 1";

const COMMENT: &str = "\
# Keep this file secret. Whoever has it can sign for the log or witness below.
";

/// Reads the key of a log or a witness.
///
/// # Errors
/// [`LogKeyError`] when the file can't be read, or has no such key for this role.
pub fn read(path: &Path, role: Role) -> Result<NoteSigner, LogKeyError> {
    let signer = read_any(path)?;
    let found = signer.public().role();
    if found == role {
        Ok(signer)
    } else {
        Err(LogKeyError::Role { path: path.to_owned(), role: role_name(found) })
    }
}

/// Reads the key of a log or a witness, whichever it is.
///
/// # Errors
/// As [`read`].
pub fn read_any(path: &Path) -> Result<NoteSigner, LogKeyError> {
    let failed = |source| LogKeyError::Read { path: path.to_owned(), source };
    let text = regular_file::read_secret(path).map_err(failed)?;
    let (role, name, secret) =
        parts(&text).ok_or_else(|| LogKeyError::Content { path: path.to_owned() })?;
    Ok(NoteSigner::new(name, role, secret)?)
}

/// The text of a key's file.
pub fn to_text(role: Role, name: &str, secret: &SigningKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(1024));
    let (role, secret) = (role_name(role), secret.to_secret_text());
    for part in [COMMENT, TITLE, "\nrole ", role, "\nname ", name, "\nsecret ", &secret, "\n"] {
        text.push_str(part);
    }
    text
}

/// The role's name in the file.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Log => "log",
        Role::Witness => "witness",
    }
}

fn parts(text: &str) -> Option<(Role, &str, SigningKey)> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    if lines.next() != Some(TITLE) {
        return None;
    }
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let (role, name, secret) = (field("role")?, field("name")?, field("secret")?);
    let role = [Role::Log, Role::Witness].into_iter().find(|one| role_name(*one) == role)?;
    let secret = SigningKey::from_secret_text(secret.trim_start()).ok()?;
    lines.next().is_none().then_some((role, name, secret))
}

/// A key of a log or a witness that can't be used.
#[derive(Debug, Error)]
pub enum LogKeyError {
    /// The file can't be read.
    #[error("can't read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file has another content. It is not shown.
    #[error("{} is not the key of a log or witness; name a file that `bandana log-key` wrote", path.display())]
    Content {
        /// The file.
        path: PathBuf,
    },
    /// The key is for another role.
    #[error("{} has the key of a {role}; make one for this role with `bandana log-key`", path.display())]
    Role {
        /// The file.
        path: PathBuf,
        /// The role of the key.
        role: &'static str,
    },
    /// The name can't be one.
    #[error(transparent)]
    Name(#[from] NoteKeyError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_other_texts_are_none() {
        let secret = SigningKey::from_secret(&[7; 32]);
        for role in [Role::Log, Role::Witness] {
            let text = to_text(role, "bandana.example/log", &secret);
            let (found, name, again) = parts(&text).unwrap();
            assert_eq!((found, name), (role, "bandana.example/log"));
            assert_eq!(again.public_key(), secret.public_key());
            let more = format!("{}more\n", &*text);
            for broken in [&text[..text.len() - 2], &more, "", &text.replace("role", "rule")] {
                assert!(parts(broken).is_none(), "{broken:?}");
            }
        }
    }
}
