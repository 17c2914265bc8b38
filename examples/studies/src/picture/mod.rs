//! Pictures: their file, one set of colours, one legend, and labels of axes.

mod colours;
mod file;
mod legend;

use plotters::coord::Shift;
use plotters::prelude::*;

pub use colours::{OTHERS, Palette};
pub use file::PictureFile;
pub use legend::{Legend, Sign};

/// A part of a picture.
pub type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;

/// The label of a number on a logarithmic axis: `20k`, `1M`. Between 1, 2, 5 and 10 there is no
/// room for others.
pub fn log_label(number: f64) -> String {
    // The power of ten itself, though its logarithm be rounded down.
    let digit = number / 10_f64.powf((number.log10() + 1e-9).floor());
    if [1.0, 2.0, 5.0, 10.0].iter().all(|kept| (digit - kept).abs() > 0.01) {
        return String::new();
    }
    count_label(number)
}

/// A number as short as can be: `20k`, `1M`, `0.05`.
pub fn count_label(number: f64) -> String {
    match number.abs() {
        size if size >= 1e9 => format!("{}G", rounded(number / 1e9)),
        size if size >= 1e6 => format!("{}M", rounded(number / 1e6)),
        size if size >= 1e4 => format!("{}k", rounded(number / 1e3)),
        _ => format!("{}", rounded(number)),
    }
}

/// The number without the digits that only its way into binary gave it.
fn rounded(number: f64) -> f64 {
    format!("{number:.9}").parse().unwrap_or(number)
}

/// A text that fits into so many characters; its end gives way to an ellipsis.
pub fn shortened(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters.saturating_sub(1)).collect();
    format!("{}\u{2026}", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_logarithmic_axes_leave_room_for_each_other() {
        let of = |numbers: &[f64]| numbers.iter().map(|n| log_label(*n)).collect::<Vec<_>>();
        assert_eq!(of(&[1.0, 2.0, 30.0, 50.0, 900.0]), ["1", "2", "", "50", ""]);
        assert_eq!(of(&[1e3, 2e4, 7e4, 1e6, 5e8, 1e9]), ["1000", "20k", "", "1M", "500M", "1G"]);
        assert_eq!(of(&[0.001, 0.03, 0.05, 0.1 + 0.2 - 0.1]), ["0.001", "", "0.05", "0.2"]);
    }

    #[test]
    fn long_texts_end_in_an_ellipsis() {
        assert_eq!(shortened("blue", 4), "blue");
        assert_eq!(shortened("blue button", 6), "blue\u{2026}");
        assert_eq!(shortened("gr\u{fc}n gr\u{fc}n", 5), "gr\u{fc}n\u{2026}");
    }
}
