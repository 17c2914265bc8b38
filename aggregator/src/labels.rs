//! Labels of arms as people write them: one form of each, and none that looks like another.

use std::borrow::Cow;

use thiserror::Error;
use unicode_normalization::{UnicodeNormalization as _, is_nfc};
use unicode_security::skeleton;

/// The form that a label is kept in: composed (NFC), and without space at its ends.
///
/// # Errors
/// [`LabelError::Invisible`] for characters that can't be seen, such as zero-width spaces and marks of
/// direction: two labels would differ by nothing that people see.
pub(crate) fn normalized(label: &str) -> Result<Cow<'_, str>, LabelError> {
    if let Some(mark) = label.chars().find(|one| is_invisible(*one)) {
        return Err(LabelError::Invisible { label: label.to_owned(), mark });
    }
    let trimmed = label.trim();
    Ok(if is_nfc(trimmed) {
        Cow::Borrowed(trimmed)
    } else {
        Cow::Owned(trimmed.nfc().collect::<String>().trim().to_owned())
    })
}

/// Checks that no two labels look alike, though they differ. Equal ones are refused elsewhere.
///
/// # Errors
/// [`LabelError::Alike`].
pub(crate) fn check_distinct<L: AsRef<str>>(
    labels: impl IntoIterator<Item = L>,
) -> Result<(), LabelError> {
    let mut seen: Vec<(String, L)> = Vec::new();
    for label in labels {
        let shape = shape(label.as_ref());
        let alike = seen.iter().find(|(known, _)| *known == shape).map(|(_, other)| other.as_ref());
        if let Some(other) = alike.filter(|other| *other != label.as_ref()) {
            let (label, other) = (label.as_ref().to_owned(), other.to_owned());
            return Err(LabelError::Alike { label, other });
        }
        seen.push((shape, label));
    }
    Ok(())
}

/// What of a label is seen: the skeleton (Unicode Technical Standard 39) of its compatible form (NFKC), with
/// one kind of space.
fn shape(label: &str) -> String {
    let compatible: String = label.nfkc().filter(|one| !is_variation(*one)).collect();
    let seen: String = skeleton(&compatible).collect();
    seen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether it chooses how the character before it is drawn, as of an emoji.
fn is_variation(one: char) -> bool {
    matches!(one, '\u{fe00}'..='\u{fe0f}')
}

/// Whether nothing is seen of a character that is no space: Unicode's default ignorable ones, but for
/// the variations of emoji, and the separators of lines and paragraphs.
fn is_invisible(one: char) -> bool {
    matches!(
        one,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// A label that people would take for another one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum LabelError {
    /// Something in it can't be seen.
    #[error(
        "the arm label {label:?} has the character U+{:04X}, which can't be seen; leave it out",
        u32::from(*mark)
    )]
    Invisible {
        /// The label.
        label: String,
        /// The character.
        mark: char,
    },
    /// Two labels look alike.
    #[error(
        "the arm labels {label:?} and {other:?} look alike, though their characters differ; give one \
         of them a label that people can tell apart"
    )]
    Alike {
        /// The label.
        label: String,
        /// The one that it looks like.
        other: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_composed_and_has_no_space_at_its_ends() {
        for (written, kept) in [
            ("blue", "blue"),
            (" blue\u{a0}", "blue"),
            ("caf\u{65}\u{301}", "caf\u{e9}"),
            ("two words", "two words"),
            ("❤\u{fe0f}", "❤\u{fe0f}"),
            ("  ", ""),
        ] {
            assert_eq!(normalized(written).unwrap(), kept, "{written:?}");
        }
    }

    #[test]
    fn what_can_not_be_seen_is_refused_by_its_name() {
        for mark in
            ['\u{200b}', '\u{200d}', '\u{200e}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{ad}']
        {
            let label = format!("bl{mark}ue");
            let refused = normalized(&label).unwrap_err().to_string();
            assert!(refused.contains(&format!("U+{:04X}", u32::from(mark))), "{refused}");
        }
    }

    #[test]
    fn labels_that_look_alike_are_refused_with_both() {
        for [one, other] in [
            ["blue", "blu\u{435}"],
            ["A", "\u{391}"],
            ["two words", "two\u{a0}words"],
            ["two words", "two  words"],
            ["blue", "ｂｌｕｅ"],
            ["❤", "❤\u{fe0f}"],
            ["\u{451}", "\u{eb}"],
            ["caf\u{e9}", "caf\u{435}\u{301}"],
            ["blue-green", "blue\u{2010}green"],
            ["\u{3c1}ink", "pink"],
            ["\u{43a}", "\u{3ba}"],
            ["l", "I"],
            ["O", "0"],
        ] {
            let refused = check_distinct([one, "green", other]);
            let (label, other) = (other.to_owned(), one.to_owned());
            assert_eq!(refused, Err(LabelError::Alike { label, other }));
        }
        assert_eq!(check_distinct(["Blue", "blue", "bleu", "grün", "синий", "красный"]), Ok(()));
    }
}
