//! Formatting of errors and untrusted text, for one line of a log or terminal.

/// An error with its causes, in one line.
pub fn explain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}

/// Untrusted text, without characters that affect how a terminal shows the rest. Quotes stay.
pub fn visible(text: &str) -> String {
    let character = |character: char| match character {
        '"' | '\'' | '\\' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    text.chars().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_not_change_how_other_text_is_shown() {
        assert_eq!(visible("a\u{202e}b\u{1b}[2J"), "a\\u{202e}b\\u{1b}[2J");
        assert_eq!(visible("it's grün"), "it's grün");
    }
}
