//! Parsing of a configuration file.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::effective::{Given, Origin};
use super::problem::{ConfigurationError, Problem, unknown_key, unknown_section};
use super::setting::{Kind, Setting};
use super::settings::{SECTIONS, SETTINGS};

/// The settings in a file, and its problems.
pub(super) type Said = (Vec<Given>, Vec<Problem>);

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Said, ConfigurationError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigurationError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads the text of a file.
pub(super) fn parse(path: &Path, text: &str) -> Result<Said, ConfigurationError> {
    let document = DeTable::parse(text)
        .map_err(|problem| ConfigurationError::Syntax { path: path.to_owned(), problem })?;
    let mut reader = Reader { path, text, given: Vec::new(), problems: Vec::new() };
    for (name, value) in in_order(document.get_ref()) {
        reader.section(name, value);
    }
    Ok((reader.given, reader.problems))
}

/// The entries in the order in which they appear in the text.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

struct Reader<'t> {
    path: &'t Path,
    text: &'t str,
    given: Vec<Given>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn section(&mut self, name: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        let line = self.line(name.span().start);
        let section = name.get_ref();
        if !SECTIONS.iter().any(|(known, _)| known == section) {
            return self.problem(line, unknown_section(section));
        }
        let Some(table) = value.get_ref().as_table() else {
            return self.problem(line, format!("{section:?} must be a table: write [{section}]"));
        };
        for (key, value) in in_order(table) {
            let line = self.line(key.span().start);
            let key = key.get_ref();
            let of_this = |setting: &&&Setting| setting.section == section && setting.key == key;
            match SETTINGS.iter().find(of_this) {
                Some(setting) => self.setting(line, setting, value.get_ref()),
                None => self.problem(line, unknown_key(section, key)),
            }
        }
    }

    fn setting(&mut self, line: usize, setting: &'static Setting, value: &DeValue<'_>) {
        let text = match value {
            DeValue::String(text) if setting.kind.is_quoted() => Some(text.to_string()),
            DeValue::Integer(number) if !setting.kind.is_quoted() => {
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string())
            }
            _ => None,
        };
        let is_list = matches!(setting.kind, Kind::Databases);
        let text = match value {
            DeValue::Array(items) if is_list => {
                let items = items.iter().map(|item| item.get_ref().as_str());
                items.collect::<Option<Vec<_>>>().map(|items| items.join(" "))
            }
            _ if is_list => None,
            _ => text,
        };
        let quotes = if is_list {
            "each in quotes, in an array"
        } else if setting.kind.is_quoted() {
            "in quotes"
        } else {
            "without quotes"
        };
        let wrong_type = || format!("expected {}, {quotes}", setting.kind.expected());
        let checked =
            text.ok_or_else(wrong_type).and_then(|text| setting.kind.check(&text).map(|()| text));
        match checked {
            Ok(text) => {
                let origin = Origin::File { path: self.path.to_owned(), line };
                self.given.push(Given { setting, text, origin });
            }
            Err(expected) => self.problem(line, format!("{}: {expected}", setting.key)),
        }
    }

    fn problem(&mut self, line: usize, what: String) {
        let place = format!("{}, line {line}", self.path.display());
        self.problems.push(Problem { place, what });
    }

    fn line(&self, position: usize) -> usize {
        self.text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
    }
}
