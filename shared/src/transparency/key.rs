//! Names and keys of logs and witnesses, and the texts that they sign (C2SP signed-note,
//! tlog-checkpoint and tlog-cosignature).

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::tree::Hash;
use crate::base64;
use crate::hex;
use crate::identity::UnixSeconds;
use crate::signing::PublicKey;

/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 100;

/// The kind of signer that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A log, which signs its own checkpoints.
    Log,
    /// A witness, which cosigns the checkpoints of logs.
    Witness,
}

impl Role {
    /// The type of signature.
    fn number(self) -> u8 {
        match self {
            Self::Log => 0x01,
            Self::Witness => 0x04,
        }
    }
}

/// The name and public key of a log or witness. An app pins them.
///
/// The text form is the verifier key of C2SP signed-note: `NAME+ID+KEY`, with an id of eight
/// hexadecimal digits and a key in Base64.
///
/// ```
/// use bandana_shared::transparency::{NoteKey, Role};
///
/// let text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
/// let key: NoteKey = text.parse()?;
/// assert_eq!((key.name(), key.role()), ("PeterNeumann", Role::Log));
/// assert_eq!(key.to_string(), text);
/// assert!(text.replace("c74f", "c74e").parse::<NoteKey>().is_err());
/// # Ok::<(), bandana_shared::transparency::NoteKeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteKey {
    name: String,
    role: Role,
    key: PublicKey,
}

impl NoteKey {
    /// A key with its name. The name is an address without its scheme, such as
    /// `bandana.example/log`.
    ///
    /// # Errors
    /// [`NoteKeyError::Name`] for a name that is empty, has more than 100 bytes, or contains a
    /// blank, a control character or a plus sign.
    pub fn new(name: impl Into<String>, role: Role, key: PublicKey) -> Result<Self, NoteKeyError> {
        let name = name.into();
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '+';
        if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain) {
            Ok(Self { name, role, key })
        } else {
            Err(NoteKeyError::Name)
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of signer: a log or a witness.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The id of the key. A signature names its key by this id.
    pub fn id(&self) -> [u8; 4] {
        let hash = Sha256::new_with_prefix(&self.name)
            .chain_update([b'\n', self.role.number()])
            .chain_update(self.key.as_bytes())
            .finalize();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// Whether this log has signed the text. `false` if the key is that of a witness.
    pub fn has_signed(&self, text: &str, signature: &[u8; 64]) -> bool {
        self.role == Role::Log && self.key.has_signed(text.as_bytes(), signature)
    }

    /// Whether this witness has cosigned the text. `false` if the key is that of a log.
    pub fn has_cosigned(&self, text: &str, cosignature: &Cosignature) -> bool {
        self.role == Role::Witness
            && self.id() == cosignature.key_id
            && self.key.has_signed(&cosigned(text, cosignature.time), &cosignature.signature)
    }

    /// The line of a note that holds this signature.
    pub fn line(&self, signature: &[u8]) -> String {
        let signature = base64::encode(&[&self.id(), signature].concat());
        format!("\u{2014} {} {signature}\n", self.name)
    }
}

impl FromStr for NoteKey {
    type Err = NoteKeyError;

    fn from_str(text: &str) -> Result<Self, NoteKeyError> {
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteKeyError::Form);
        };
        let id: [u8; 4] = hex::decode(id).ok_or(NoteKeyError::Form)?;
        let key = base64::decode(key).ok_or(NoteKeyError::Form)?;
        let (number, key) = key.split_first().ok_or(NoteKeyError::Form)?;
        let role = [Role::Log, Role::Witness].into_iter().find(|role| role.number() == *number);
        let role = role.ok_or(NoteKeyError::Algorithm(*number))?;
        let key = PublicKey::try_from(key).map_err(|_| NoteKeyError::Form)?;
        let key = Self::new(name, role, key)?;
        if key.id() == id { Ok(key) } else { Err(NoteKeyError::Id) }
    }
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, role, key } = self;
        let key = base64::encode(&[&[role.number()], &key.as_bytes()[..]].concat());
        write!(f, "{name}+{:08x}+{key}", u32::from_be_bytes(self.id()))
    }
}

/// A text that is not a name with a key.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKeyError {
    /// The parts are missing or malformed.
    #[error(
        "a key of a log or witness is written NAME+ID+KEY, as `bandana log-key` printed it; copy it again"
    )]
    Form,
    /// The name breaks the rule of [`NoteKey::new`].
    #[error(
        "the name of a log or witness has 1 to 100 bytes, without blanks and plus signs, such as \
         bandana.example/log"
    )]
    Name,
    /// The id does not belong to this name and key.
    #[error("the name, the id and the key do not fit together; copy all of NAME+ID+KEY again")]
    Id,
    /// Bandana does not know this kind of signature.
    #[error(
        "the key is for signatures of the kind {0}; Bandana takes Ed25519 of logs (1) and witnesses (4)"
    )]
    Algorithm(u8),
}

crate::debug_says!(NoteKeyError);

/// The state of a log: the number of leaves of its tree, and the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the log.
    pub origin: String,
    /// The number of leaves.
    pub size: u64,
    /// The root.
    pub root: Hash,
}

impl Checkpoint {
    /// The text that is signed (C2SP tlog-checkpoint).
    pub fn text(&self) -> String {
        let Self { origin, size, root } = self;
        format!("{origin}\n{size}\n{}\n", base64::encode(root))
    }

    /// Reads a checkpoint from its text, or returns `None` for any other text. Further lines are
    /// not allowed.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let root = base64::decode(root)?.try_into().ok()?;
        let checkpoint = Self { origin: origin.to_owned(), size: size.parse().ok()?, root };
        // One text for each: no other number of digits, line or end.
        (checkpoint.text() == text).then_some(checkpoint)
    }
}

/// A witness's signature of a checkpoint. It states that the witness knew no later one at this
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cosignature {
    /// The id of the witness's key: see [`NoteKey::id`].
    pub key_id: [u8; 4],
    /// The time of signing, by the witness's clock.
    pub time: UnixSeconds,
    /// The signature.
    pub signature: [u8; 64],
}

impl Cosignature {
    /// The bytes that follow the key's id in a line of a note: time, then signature.
    pub fn content(&self) -> Vec<u8> {
        [&self.time.get().to_be_bytes(), &self.signature[..]].concat()
    }

    /// The cosignature with this content.
    fn from_content(key_id: [u8; 4], content: &[u8]) -> Option<Self> {
        let (time, signature) = content.split_first_chunk()?;
        let time = UnixSeconds::new(u64::from_be_bytes(*time));
        Some(Self { key_id, time, signature: signature.try_into().ok()? })
    }
}

/// The bytes that a witness signs.
fn cosigned(text: &str, time: UnixSeconds) -> Vec<u8> {
    format!("cosignature/v1\ntime {}\n{text}", time.get()).into_bytes()
}

/// Writes a hash in Base64, the form of a line of a proof.
pub fn write_hash(hash: &Hash) -> String {
    base64::encode(hash)
}

/// Reads a hash that [`write_hash`] wrote, or returns `None` for any other text.
pub fn read_hash(line: &str) -> Option<Hash> {
    base64::decode(line)?.try_into().ok()
}

/// A text with signatures (C2SP signed-note).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text, with the end of its last line.
    pub text: String,
    signatures: Vec<Line>,
}

/// A line with a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    name: String,
    key_id: [u8; 4],
    signature: Vec<u8>,
}

impl Note {
    /// Reads a note, or returns `None` if the text is no note or has no signature line.
    pub fn parse(note: &str) -> Option<Self> {
        let (text, lines) = note.rsplit_once("\n\n")?;
        let signatures = signatures(lines)?;
        (!signatures.is_empty()).then(|| Self { text: format!("{text}\n"), signatures })
    }

    /// The signature of a log, or `None` if its key has not signed the text.
    pub fn signature(&self, key: &NoteKey) -> Option<[u8; 64]> {
        let of_key = self.of(key).filter_map(|signature| signature.try_into().ok());
        { of_key }.find(|signature| key.has_signed(&self.text, signature))
    }

    /// The latest valid cosignature of a witness, or `None` if there is none.
    pub fn cosignature(&self, key: &NoteKey) -> Option<Cosignature> {
        let read = |content| Cosignature::from_content(key.id(), content);
        let valid = self.of(key).filter_map(read).filter(|one| key.has_cosigned(&self.text, one));
        valid.max_by_key(|one| one.time)
    }

    /// Adds signature lines. Returns `None` if one of `lines` is not a signature line.
    #[must_use]
    pub fn with(mut self, lines: &str) -> Option<Self> {
        self.signatures.extend(signatures(lines)?);
        Some(self)
    }

    fn of<'n>(&'n self, key: &NoteKey) -> impl Iterator<Item = &'n [u8]> + use<'n> {
        let (name, id) = (key.name.clone(), key.id());
        let of_key = move |line: &&Line| line.name == name && line.key_id == id;
        self.signatures.iter().filter(of_key).map(|line| &line.signature[..])
    }
}

fn signatures(lines: &str) -> Option<Vec<Line>> {
    let line = |line: &str| {
        let (name, signature) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
        let signature = base64::decode(signature)?;
        let (key_id, signature) = signature.split_first_chunk()?;
        Some(Line { name: name.to_owned(), key_id: *key_id, signature: signature.to_vec() })
    };
    lines.split_terminator('\n').map(line).collect()
}

#[cfg(feature = "signing")]
mod signing {
    use super::{Checkpoint, Cosignature, NoteKey, Role, cosigned};
    use crate::identity::UnixSeconds;
    use crate::signing::SigningKey;
    use crate::transparency::NoteKeyError;

    /// The secret key of a log or a witness, with its name.
    #[derive(Debug)]
    pub struct NoteSigner {
        public: NoteKey,
        secret: SigningKey,
    }

    impl NoteSigner {
        /// A secret key with its name.
        ///
        /// # Errors
        /// As [`NoteKey::new`].
        pub fn new(
            name: impl Into<String>,
            role: Role,
            secret: SigningKey,
        ) -> Result<Self, NoteKeyError> {
            Ok(Self { public: NoteKey::new(name, role, secret.public_key())?, secret })
        }

        /// The name with the public key.
        pub fn public(&self) -> &NoteKey {
            &self.public
        }

        /// A log's signature of a text. The same text has the same signature.
        pub fn sign(&self, text: &str) -> [u8; 64] {
            self.secret.sign_bytes(text.as_bytes())
        }

        /// A witness's signature of a text at this time.
        pub fn cosign(&self, text: &str, time: UnixSeconds) -> Cosignature {
            let signature = self.secret.sign_bytes(&cosigned(text, time));
            Cosignature { key_id: self.public.id(), time, signature }
        }

        /// Signs a checkpoint with the key of a log, and returns the note.
        pub fn note(&self, checkpoint: &Checkpoint) -> String {
            let text = checkpoint.text();
            format!("{text}\n{}", self.public.line(&self.sign(&text)))
        }
    }
}

#[cfg(feature = "signing")]
pub use signing::NoteSigner;

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the documentation of Go's package golang.org/x/mod/sumdb/note.
    const KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const NOTE: &str = "If you think cryptography is the answer to your problem,\n\
        then you don't know what your problem is.\n\n\
        \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    /// The example of C2SP tlog-cosignature.
    const COSIGNED: &str = "example.com/behind-the-sofa\n20852163\n\
        CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
        \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
        \u{2014} witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n";

    #[test]
    fn a_note_that_go_has_signed_is_signed() -> Result<(), NoteKeyError> {
        let key: NoteKey = KEY.parse()?;
        let signature = |note: &str| Note::parse(note).and_then(|note| note.signature(&key));
        assert!(signature(NOTE).is_some());
        for changed in [NOTE.replace("problem,", "problem."), NOTE.replace("x08go", "x08gp")] {
            assert_eq!(signature(&changed), None, "{changed}");
        }
        assert_eq!(signature(&NOTE.replace("PeterNeumann", "Peter")), None);
        Ok(())
    }

    #[test]
    fn the_example_of_the_specification_is_read() -> Result<(), String> {
        let note = Note::parse(COSIGNED).ok_or("no note")?;
        let checkpoint = Checkpoint::from_text(&note.text).ok_or("no checkpoint")?;
        assert_eq!(
            (&*checkpoint.origin, checkpoint.size),
            ("example.com/behind-the-sofa", 20_852_163)
        );
        let [_, line] = &note.signatures[..] else { return Err("not two lines".to_owned()) };
        let cosignature = Cosignature::from_content(line.key_id, &line.signature);
        let cosignature = cosignature.ok_or("no cosignature")?;
        assert_eq!(cosignature.time, UnixSeconds::new(1_679_315_147));
        assert_eq!(cosignature.content(), line.signature);
        let signed = "cosignature/v1\ntime 1679315147\nexample.com/behind-the-sofa\n20852163\n\
            CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        assert_eq!(cosigned(&note.text, cosignature.time), signed.as_bytes());
        Ok(())
    }

    #[test]
    fn a_checkpoint_has_one_text() {
        let text = "a\n7\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        assert!(Checkpoint::from_text(text).is_some());
        for other in [
            text.replace('7', "07"),
            text.replace('7', "-7"),
            text.replace("7\n", "7 \n"),
            text.replace("q2I=", "q2J="),
            text.replace("CsUY", "CsU"),
            text.replace('\n', "\r\n"),
            format!("{text}more\n"),
            text.trim_end().to_owned(),
            String::new(),
        ] {
            assert_eq!(Checkpoint::from_text(&other), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let parse = |text: &str| text.parse::<NoteKey>().err();
        assert_eq!(parse(KEY), None);
        assert_eq!(parse(&KEY.replace("Peter", "Pete")), Some(NoteKeyError::Id));
        assert_eq!(parse(&KEY.replace("Peter", "Peter ")), Some(NoteKeyError::Name));
        assert_eq!(parse(&KEY.replacen("PeterNeumann", "", 1)), Some(NoteKeyError::Name));
        for malformed in ["", "a", "a+b", &KEY[..KEY.len() - 1], &KEY.replace("c74f", "C74G")] {
            assert_eq!(parse(malformed), Some(NoteKeyError::Form), "{malformed}");
        }
        let of_ecdsa = KEY.replace("+ARpc", "+Ahpc");
        assert_eq!(parse(&of_ecdsa), Some(NoteKeyError::Algorithm(2)));
    }
}
