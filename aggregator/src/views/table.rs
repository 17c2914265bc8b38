//! Text tables.

use std::io::IsTerminal as _;

pub(crate) use bandana_edge::explain::visible;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The gap between two columns.
const GAP: &str = "  ";

/// Minimum width of a shortened text, in columns.
const SHORTENED_MIN: usize = 8;

/// The alignment of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Left-aligned text, shortened where the terminal is narrow.
    Left,
    /// Right-aligned numbers, never shortened.
    Right,
}

/// A table with a header line.
#[derive(Clone, Debug)]
pub(crate) struct Table<const N: usize> {
    sides: [Side; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table without rows.
    pub(crate) fn new(headings: [(&str, Side); N]) -> Self {
        Self {
            sides: headings.map(|(_, side)| side),
            rows: vec![headings.map(|(heading, _)| heading.to_owned())],
        }
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// The aligned lines, fitted to a terminal of `columns` if there is one.
    pub(crate) fn render(&self, columns: Option<usize>) -> String {
        let widths = self.widths(columns);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), side) in row.iter().zip(widths).zip(self.sides) {
                let cell = shortened(cell, width);
                let padding = " ".repeat(width - cell.width().min(width));
                let parts = match side {
                    Side::Left => [cell.as_str(), &padding],
                    Side::Right => [padding.as_str(), &cell],
                };
                line.extend(parts);
                line.push_str(GAP);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The width of every column. If the table is too wide, the widest text columns shrink.
    fn widths(&self, columns: Option<usize>) -> [usize; N] {
        let natural = |column: usize| self.rows.iter().map(move |row| row[column].width()).max();
        let mut widths = std::array::from_fn(|column| natural(column).unwrap_or(0));
        let Some(columns) = columns else { return widths };
        loop {
            let total = widths.iter().sum::<usize>() + GAP.len() * N.saturating_sub(1);
            let texts = widths.iter_mut().zip(self.sides).filter(|(_, side)| *side == Side::Left);
            match texts.map(|(width, _)| width).max() {
                Some(widest) if total > columns && *widest > SHORTENED_MIN => *widest -= 1,
                _ => return widths,
            }
        }
    }
}

/// The text, or its beginning with an ellipsis, in at most `width` columns.
fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut kept = String::new();
    for character in text.chars() {
        let Some(rest) = room.checked_sub(character.width().unwrap_or(0)) else { break };
        room = rest;
        kept.push(character);
    }
    kept + "…"
}

/// The width of standard output, if it is a terminal. Unlimited for a terminal that does not report
/// its width.
pub(crate) fn terminal_columns() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    Some(terminal_size::terminal_size().map_or(usize::MAX, |(width, _)| usize::from(width.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(label: &str) -> Table<3> {
        let mut table =
            Table::new([("arm", Side::Right), ("label", Side::Left), ("reports", Side::Right)]);
        table.push(["0".to_owned(), label.to_owned(), "1200".to_owned()]);
        table.push(["10".to_owned(), "grün".to_owned(), "7".to_owned()]);
        table
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let expected = "\
arm  label  reports
  0  日本      1200
 10  grün         7
";
        assert_eq!(table("日本").render(None), expected);
    }

    #[test]
    fn texts_are_shortened_for_a_narrow_terminal_and_numbers_never() {
        let expected = "\
arm  label        reports
  0  a very lon…     1200
 10  grün               7
";
        assert_eq!(table("a very long label").render(Some(25)), expected);
        assert!(table("a very long label").render(Some(1)).contains("a very …     1200"));
        assert!(table("a very long label").render(None).contains("a very long label"));
    }
}
