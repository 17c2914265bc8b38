//! Base64 with padding (RFC 4648, section 4), the encoding of notes and their keys.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            let digit = usize::try_from(word >> (18 - 6 * place) & 63).unwrap_or_default();
            text.push(if place <= group.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

/// The bytes of a text that [`encode`] writes; `None` for any other text.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        let mut word = 0;
        for ascii in group {
            let digit = DIGITS.iter().position(|digit| digit == ascii);
            word = word << 6 | u32::try_from(digit.unwrap_or_default()).ok()?;
        }
        let padding = group.iter().rev().take_while(|ascii| **ascii == b'=').count().min(2);
        bytes.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
    }
    // One text for each value: what is malformed is not what its bytes are written as.
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_and_all_lengths_come_back() {
        let examples = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, text) in examples.into_iter().enumerate() {
            assert_eq!(encode(&b"foobar"[..length]), text);
            assert_eq!(decode(text).as_deref(), Some(&b"foobar"[..length]));
        }
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
    }

    #[test]
    fn every_value_has_one_text() {
        for malformed in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm9v\n", "Zm 9v", "-_-_",
        ] {
            assert_eq!(decode(malformed), None, "{malformed}");
        }
    }
}
