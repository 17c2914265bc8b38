//! The documented configuration file, with every default.

use super::setting::{Fallback, Setting};
use super::settings::{SECTIONS, SETTINGS};

/// Width of a comment, in columns.
const COLUMNS: usize = 90;

const HEAD: &str = "\
# Configuration of `bandana serve`: every setting, with its default.
#
# An environment variable overrides this file, and a flag overrides both. Keys that are
# not listed here are refused. `bandana check-config --config FILE` checks a file and shows
# what counts; `bandana default-config` prints this one.
";

/// The text of the file.
pub fn documented_file() -> String {
    let mut lines = Vec::new();
    for (section, doc) in SECTIONS {
        lines.push(String::new());
        comment(&mut lines, doc);
        lines.push(format!("[{section}]"));
        let of_section = SETTINGS.iter().filter(|setting| setting.section == section);
        for (place, setting) in of_section.enumerate() {
            if place > 0 {
                lines.push(String::new());
            }
            entry(&mut lines, setting);
        }
    }
    HEAD.to_owned() + &lines.join("\n") + "\n"
}

fn entry(lines: &mut Vec<String>, setting: &Setting) {
    let Setting { key, kind, environment, flag, doc, .. } = setting;
    comment(lines, doc);
    let hint = setting.hint().map(|hint| hint + " ").unwrap_or_default();
    let (mark, value, note) = match setting.fallback {
        Fallback::Default(value) => ("", value, String::new()),
        Fallback::Required { example, unless: (other, _) } => {
            ("", example, format!("This or `{other}` must be set; there is no default. "))
        }
        Fallback::Unset(value) => ("# ", value, "Not set by default. ".to_owned()),
    };
    comment(lines, &format!("{hint}{note}Also: ${environment}, --{flag}."));
    lines.push(format!("{mark}{key} = {}", kind.literal(value)));
}

/// Appends a comment, wrapped into lines.
fn comment(lines: &mut Vec<String>, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > COLUMNS {
            lines.push(std::mem::replace(&mut line, String::from("#")));
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push(line);
}
