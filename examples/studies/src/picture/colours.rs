//! Colours of what a picture has names for: distinct for colour-blind people, and true to colour words.

use plotters::style::RGBColor;

/// The colour of what has no name in a picture.
pub const OTHERS: RGBColor = RGBColor(205, 205, 205);

/// A colour, and the words that it would be taken for.
type Worded = (RGBColor, &'static [&'static str]);

/// Colours that remain distinct for colour-blind people (Okabe and Ito), and two more.
const FREE: [Worded; 8] = [
    (RGBColor(0, 114, 178), &["blue"]),
    (RGBColor(213, 94, 0), &["red", "orange"]),
    (RGBColor(0, 158, 115), &["green"]),
    (RGBColor(204, 121, 167), &["pink", "purple"]),
    (RGBColor(230, 159, 0), &["orange", "yellow"]),
    (RGBColor(86, 180, 233), &["cyan", "blue"]),
    (RGBColor(0, 0, 0), &["black"]),
    (RGBColor(150, 120, 60), &["brown"]),
];

/// The colours of words. Red is Tol's, far enough from the green above for all eyes.
const WORDS: [(&str, Worded); 15] = [
    ("blue", FREE[0]),
    ("green", FREE[2]),
    ("pink", FREE[3]),
    ("magenta", FREE[3]),
    ("orange", FREE[4]),
    ("cyan", FREE[5]),
    ("turquoise", FREE[5]),
    ("black", FREE[6]),
    ("brown", FREE[7]),
    ("red", (RGBColor(204, 51, 17), &["red"])),
    ("yellow", (RGBColor(214, 192, 0), &["yellow"])),
    ("purple", (RGBColor(120, 50, 140), &["purple"])),
    ("violet", (RGBColor(120, 50, 140), &["purple"])),
    ("grey", (RGBColor(130, 130, 130), &["grey"])),
    ("gray", (RGBColor(130, 130, 130), &["grey"])),
];

/// The colours of a picture's names.
#[derive(Clone, Debug, Default)]
pub struct Palette(Vec<(String, RGBColor)>);

impl Palette {
    /// A colour for each of these names, given in the order in which they get one.
    ///
    /// The first name with a colour word has that colour: `green`, or `Green button`. Others get what
    /// nobody would take for a colour word of the picture, and the first ones again where there is
    /// nothing left.
    pub fn of<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Self {
        let mut own: Vec<(String, Option<Worded>)> = Vec::new();
        for name in names {
            let name = name.as_ref();
            if own.iter().all(|(known, _)| *known != name) {
                let worded = word_in(name).filter(|worded| {
                    own.iter().all(|(_, other)| other.is_none_or(|other| other.0 != worded.0))
                });
                own.push((name.to_owned(), worded));
            }
        }
        let words: Vec<&str> = own
            .iter()
            .filter_map(|(_, worded)| *worded)
            .flat_map(|(_, words)| words)
            .copied()
            .collect();
        let is_taken = |(_, meant): &&Worded| meant.iter().any(|word| words.contains(word));
        let free: Vec<RGBColor> =
            FREE.iter().filter(|one| !is_taken(one)).map(|(colour, _)| *colour).collect();
        let mut free = free.into_iter().cycle();
        let colour = |(name, worded): (String, Option<Worded>)| {
            let colour = worded.map(|(colour, _)| colour).or_else(|| free.next());
            (name, colour.unwrap_or(OTHERS))
        };
        Self(own.into_iter().map(colour).collect())
    }

    /// The colour of a name; that of no name for one that the palette lacks.
    pub fn colour(&self, name: &str) -> RGBColor {
        self.0.iter().find(|(known, _)| known == name).map_or(OTHERS, |(_, colour)| *colour)
    }
}

/// The colour of the only colour word in a name.
fn word_in(name: &str) -> Option<Worded> {
    let lower = name.to_lowercase();
    let mut known = lower
        .split(|letter: char| !letter.is_alphanumeric())
        .filter_map(|word| WORDS.iter().find(|(known, _)| *known == word));
    let (_, worded) = known.next()?;
    known.next().is_none().then_some(*worded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colours<const N: usize>(names: [&str; N]) -> [RGBColor; N] {
        let palette = Palette::of(names);
        names.map(|name| palette.colour(name))
    }

    #[test]
    fn names_that_are_colours_are_drawn_in_them_whatever_their_place() {
        let of = |word| WORDS.iter().find(|(known, _)| *known == word).unwrap().1.0;
        assert_eq!(colours(["green", "red", "blue"]), [of("green"), of("red"), of("blue")]);
        assert_eq!(colours(["Green button", "the grey one"]), [of("green"), of("grey")]);
        // Words within words are none, and two words tell nothing.
        assert_eq!(colours(["bored", "red or green"]), [FREE[0].0, FREE[1].0]);
    }

    #[test]
    fn nothing_else_has_the_colour_of_a_word() {
        // Neither blue, nor the blue of the sky.
        let [first, blue, second, ..] = colours(["a", "blue", "b", "c", "d", "e"]);
        assert_eq!([first, blue, second], [FREE[1].0, FREE[0].0, FREE[2].0]);
        let all = colours(["a", "blue", "b", "c", "d", "e"]);
        assert!(!all.contains(&FREE[5].0));
        for (place, colour) in all.iter().enumerate() {
            assert!(!all[..place].contains(colour), "{all:?}");
        }
        // The second of two arms with one word.
        let [one, other] = colours(["green on white", "green on black"]);
        assert!(one != other && other != FREE[2].0);
    }

    #[test]
    fn a_name_keeps_its_colour_when_it_comes_again() {
        assert_eq!(colours(["a", "b", "a"]), [FREE[0].0, FREE[1].0, FREE[0].0]);
        assert_eq!(Palette::of(["a"]).colour("b"), OTHERS);
    }
}
