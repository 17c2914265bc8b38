//! The legend: names in a column beside the panels, each with its sign.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, shortened};

/// What a legend shows beside a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The line of a curve.
    Line,
    /// A thin line.
    Thin,
    /// A dashed line.
    Dashed,
    /// A point.
    Point,
}

/// Height of a line of text, and the additional space between names, in pixels.
const LINE: u32 = 16;
const SPACE: u32 = 4;

/// Space above the first name and below the last one.
const EDGE: u32 = 10;

/// Where names begin, and the space right of them.
const LEFT: u32 = 32;
const RIGHT: u32 = 8;

/// Size of the letters, and the width of a letter of names, which is rarely exceeded on average.
const LETTERS: u32 = 13;
const LETTER: u32 = 7;

/// The most characters of a line of a name, and lines of a name.
const CHARACTERS: usize = 40;
const LINES: usize = 2;

/// Names with their colours and signs.
#[derive(Clone, Debug, Default)]
pub struct Legend(Vec<(Vec<String>, RGBColor, Sign)>);

impl Legend {
    /// Adds a name, which is broken into two lines, and shortened, where it is too long.
    pub fn add(&mut self, name: &str, colour: RGBColor, sign: Sign) {
        self.0.push((lines_of(name), colour, sign));
    }

    /// The width that it needs, in pixels.
    pub fn width(&self) -> u32 {
        let lines = self.0.iter().flat_map(|(lines, ..)| lines);
        let most = lines.map(|line| line.chars().count()).max().unwrap_or(0);
        LEFT + LETTER * u32::try_from(most).unwrap_or(0) + RIGHT
    }

    /// The height that it needs, in pixels.
    pub fn height(&self) -> u32 {
        let entry = |lines: &Vec<String>| LINE * u32::try_from(lines.len()).unwrap_or(0) + SPACE;
        2 * EDGE + self.0.iter().map(|(lines, ..)| entry(lines)).sum::<u32>()
    }

    /// Draws it from the upper left corner of an area.
    ///
    /// # Errors
    /// When the picture can't be drawn.
    pub fn draw(&self, area: &Area<'_>) -> anyhow::Result<()> {
        let text = ("sans-serif", LETTERS).into_font().color(&BLACK);
        let text = text.pos(Pos::new(HPos::Left, VPos::Center));
        let mut top = EDGE;
        for (lines, colour, sign) in &self.0 {
            let y = i32::try_from(top + LINE / 2)?;
            let stroke = |from, to, width| {
                PathElement::new([(from, y), (to, y)], colour.stroke_width(width))
            };
            match sign {
                Sign::Line => area.draw(&stroke(4, 24, 2))?,
                Sign::Thin => area.draw(&stroke(4, 24, 1))?,
                Sign::Dashed => {
                    for from in [4, 12, 20] {
                        area.draw(&stroke(from, from + 4, 1))?;
                    }
                }
                Sign::Point => area.draw(&Circle::new((14, y), 4, colour.filled()))?,
            }
            for line in lines {
                let at = (i32::try_from(LEFT)?, i32::try_from(top + LINE / 2)?);
                area.draw(&Text::new(line.clone(), at, text.clone()))?;
                top += LINE;
            }
            top += SPACE;
        }
        Ok(())
    }
}

/// A name in lines that are broken between words.
fn lines_of(name: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in name.split_whitespace() {
        let fits = |line: &String| line.chars().count() + 1 + word.chars().count() <= CHARACTERS;
        let is_last = lines.len() == LINES;
        match lines.last_mut() {
            Some(line) if line.is_empty() => word.clone_into(line),
            Some(line) if fits(line) || is_last => *line = format!("{line} {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| shortened(line, CHARACTERS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_between_words_and_shortened() {
        assert_eq!(lines_of("ldp-ts"), ["ldp-ts"]);
        let name = "nonprivate-kl-ucb, exponential: proven upper bound";
        assert_eq!(lines_of(name), ["nonprivate-kl-ucb, exponential: proven", "upper bound"]);
        let name = "a".repeat(50) + " " + &"b c ".repeat(20);
        let lines = lines_of(&name);
        assert_eq!(lines.len(), 2);
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= CHARACTERS && line.ends_with('\u{2026}'))
        );
    }

    #[test]
    fn a_legend_has_room_for_its_names() {
        let mut legend = Legend::default();
        legend.add("a", BLACK, Sign::Line);
        let small = (legend.width(), legend.height());
        legend.add(&"long ".repeat(12), BLACK, Sign::Dashed);
        assert!(legend.width() > small.0 && legend.height() == small.1 + 2 * LINE + SPACE);
    }
}
