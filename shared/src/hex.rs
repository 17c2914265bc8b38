//! Hexadecimal digits of fixed numbers of bytes.

/// The bytes of exactly 2 N digits, small or capital.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let digit = |ascii: u8| char::from(ascii).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
