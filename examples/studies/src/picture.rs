//! Pictures of studies: colours, labels of axes, and legends beside the panels.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours that remain distinct for colour-blind people (Okabe and Ito), and two more.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 120, 60),
];

/// A part of a picture.
pub(crate) type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;

/// What a legend shows beside a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sign {
    /// The line of a curve.
    Line,
    /// A thin line.
    Thin,
    /// A dashed line.
    Dashed,
    /// A point.
    Point,
}

/// Height of a legend's line, in pixels.
const LINE: i32 = 18;

/// Draws names in a column, each beside its sign.
pub(crate) fn draw_legend(
    area: &Area<'_>,
    entries: &[(String, RGBColor, Sign)],
) -> anyhow::Result<()> {
    let text = ("sans-serif", 13).into_font().color(&BLACK);
    let text = text.pos(Pos::new(HPos::Left, VPos::Center));
    for (place, (name, colour, sign)) in entries.iter().enumerate() {
        let y = 16 + LINE * i32::try_from(place)?;
        let stroke =
            |from, to, width| PathElement::new([(from, y), (to, y)], colour.stroke_width(width));
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
        area.draw(&Text::new(name.clone(), (32, y), text.clone()))?;
    }
    Ok(())
}

/// The label of a number on a logarithmic axis: `20k`, `1M`. Between 1, 2, 5 and 10 there is no
/// room for others.
pub(crate) fn log_label(number: f64) -> String {
    // The power of ten itself, though its logarithm be rounded down.
    let digit = number / 10_f64.powf((number.log10() + 1e-9).floor());
    if number >= 1.0 && [1.0, 2.0, 5.0].iter().all(|kept| (digit - kept).abs() > 0.01) {
        return String::new();
    }
    count_label(number)
}

/// A number as short as can be: `20k`, `1M`.
pub(crate) fn count_label(number: f64) -> String {
    match number.abs() {
        size if size >= 1e9 => format!("{}G", number / 1e9),
        size if size >= 1e6 => format!("{}M", number / 1e6),
        size if size >= 1e4 => format!("{}k", number / 1e3),
        _ => format!("{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_logarithmic_axes_leave_room_for_each_other() {
        let of = |numbers: &[f64]| numbers.iter().map(|n| log_label(*n)).collect::<Vec<_>>();
        assert_eq!(of(&[1.0, 2.0, 30.0, 50.0, 900.0]), ["1", "2", "", "50", ""]);
        assert_eq!(of(&[1e3, 2e4, 7e4, 1e6, 5e8, 1e9]), ["1000", "20k", "", "1M", "500M", "1G"]);
    }
}
