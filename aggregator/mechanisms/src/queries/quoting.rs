//! Names in quotes, as in CSV: `"<=50K"`, with each quote inside doubled.

use std::borrow::Cow;

/// What ends a name that has no quotes around it.
const RESERVED: [char; 5] = ['=', ',', '|', ':', '*'];

/// The parts of a text between separators outside of quotes. A quote begins a name, or is a part of it.
pub(super) fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut in_quotes, mut begins) = (false, true);
    text.split(move |c: char| {
        if c == '"' && (in_quotes || begins) {
            in_quotes = !in_quotes;
            // The next one may be the second of two.
            begins = !in_quotes;
        } else {
            begins = !in_quotes && (RESERVED.contains(&c) || begins && c.is_whitespace());
        }
        !in_quotes && c == separator
    })
}

/// The two parts beside the first separator outside of quotes.
pub(super) fn halves(text: &str, separator: char) -> Option<(&str, &str)> {
    let first = parts(text, separator).next()?;
    Some((first, text.get(first.len() + separator.len_utf8()..)?))
}

/// The name that a part gives. `None` if it is empty, has a control character, lacks its second quote, or
/// has a reserved character outside of quotes.
pub(super) fn name(part: &str) -> Option<Cow<'_, str>> {
    let name = match part.strip_prefix('"') {
        Some(rest) => {
            let inner = rest.strip_suffix('"')?;
            let is_paired = !inner.replace("\"\"", "").contains('"');
            is_paired.then(|| Cow::Owned(inner.replace("\"\"", "\"")))?
        }
        None if part.contains(RESERVED) => return None,
        None => Cow::Borrowed(part),
    };
    (!name.is_empty() && !name.contains(char::is_control)).then_some(name)
}

/// A name as it is read back, in quotes where they are needed.
pub fn written(name: &str) -> Cow<'_, str> {
    let is_plain = !name.contains(RESERVED) && !name.starts_with('"') && name.trim() == name;
    // A name with dots could be taken for a range.
    if is_plain && !name.contains("..") {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let odd =
            ["<=50K", "a:b", "a,b", " leading", "18..99", "5\" pipe", "\"", "\"\"a\"", "é|*", "x"];
        let written: Vec<_> = odd.iter().map(|name| written(name).into_owned()).collect();
        let text = written.join("|");
        let read: Vec<_> = parts(&text, '|').map(|part| name(part).unwrap()).collect();
        assert_eq!(read, odd, "{text}");
        assert_eq!(
            text,
            r#""<=50K"|"a:b"|"a,b"|" leading"|"18..99"|5" pipe|""""|"""""a"""|"é|*"|x"#
        );
    }

    #[test]
    fn what_is_no_name_is_none() {
        for part in
            ["", "\"\"", "\"", "\"a", "\"a\"b", "\"a\"b\"", "a|b", "a=b", "a\nb", "\"a\tb\""]
        {
            assert_eq!(name(part), None, "{part}");
        }
    }

    #[test]
    fn separators_in_quotes_separate_nothing() {
        let all = |text| parts(text, ',').collect::<Vec<_>>();
        assert_eq!(all(r#"a="x,y",b=z"#), [r#"a="x,y""#, "b=z"]);
        assert_eq!(all(r#"a= "x,""y", b=5""#), [r#"a= "x,""y""#, r#" b=5""#]);
        assert_eq!(halves(r#""a:b":1..2"#, ':'), Some((r#""a:b""#, "1..2")));
        assert_eq!(halves("a", ':'), None);
    }
}
