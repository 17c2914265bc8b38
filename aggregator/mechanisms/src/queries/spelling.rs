//! Spellings of true, of false and of a missing value, as programs write them.

/// Whether a text stands for no value, such as `NULL`, `NaN` and an empty one.
pub fn is_missing(text: &str) -> bool {
    const WORDS: [&str; 9] = ["null", "none", "na", "n/a", "<na>", "nan", "nat", "nil", "\\n"];
    text.is_empty() || is_one_of(text, &WORDS)
}

/// True and false, as programs write them; 1 and 0 are numbers.
pub fn truth(text: &str) -> Option<bool> {
    if is_one_of(text, &["true", "t", "yes", "y", "on"]) {
        return Some(true);
    }
    is_one_of(text, &["false", "f", "no", "n", "off"]).then_some(false)
}

fn is_one_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}
