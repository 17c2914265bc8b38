//! The file of a picture: SVG, or PNG of the same, by the end of its name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use plotters::prelude::*;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::Area;

/// Pixels of a PNG for each unit of the picture.
const SCALE: f32 = 2.0;

/// The family of the font that comes with the programs.
const FAMILY: &str = "Ubuntu";

/// The file of a picture, whose name ends in `.svg` or `.png`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureFile {
    path: PathBuf,
    is_png: bool,
}

impl FromStr for PictureFile {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let path = PathBuf::from(text);
        let end = path.extension().and_then(|end| end.to_str()).map(str::to_lowercase);
        let is_png = end.as_deref() == Some("png");
        ensure!(
            is_png || end.as_deref() == Some("svg"),
            "a picture is SVG or PNG; name a file that ends in .svg or .png"
        );
        Ok(Self { path, is_png })
    }
}

impl fmt::Display for PictureFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(formatter)
    }
}

impl PictureFile {
    /// Writes a picture of this size, on white. A PNG has twice as many pixels, and its text is in a
    /// font that the programs bring, whatever the machine has.
    ///
    /// # Errors
    /// When the picture can't be drawn, or the file can't be written.
    pub fn write(
        &self,
        size: (u32, u32),
        draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            area.fill(&WHITE)?;
            draw(&area)?;
            area.present()?;
        }
        let bytes = if self.is_png { png(&svg)? } else { svg.into_bytes() };
        std::fs::write(&self.path, bytes).with_context(|| format!("writing the plot {self}"))
    }
}

/// The same picture in pixels.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of pixels"
)]
fn png(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let sans_serif =
        fontdb::Query { families: &[fontdb::Family::SansSerif], ..fontdb::Query::default() };
    ensure!(
        fonts.query(&sans_serif).is_some(),
        "the picture's text can't be drawn: the font {FAMILY} is not in this program; write SVG"
    );
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).context("reading the picture for its PNG")?;
    let pixels = |length: f32| (SCALE * length).ceil() as u32;
    let mut pixmap = Pixmap::new(pixels(tree.size().width()), pixels(tree.size().height()))
        .context("a picture without pixels")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
    pixmap.encode_png().context("making the PNG")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_pictures_are_accepted() {
        for name in ["a.svg", "b/c.PNG"] {
            assert_eq!(name.parse::<PictureFile>().unwrap().to_string(), name);
        }
        for name in ["a.pdf", "png", "a"] {
            let error = name.parse::<PictureFile>().unwrap_err().to_string();
            assert!(error.contains("ends in .svg or .png"), "{error}");
        }
    }

    #[test]
    fn a_png_has_the_lines_and_the_letters_of_the_picture() {
        let folder = tempfile::tempdir().unwrap();
        let dark = |text: &str| {
            let path = folder.path().join("picture.png");
            let file: PictureFile = path.to_str().unwrap().parse().unwrap();
            let draw = |area: &Area<'_>| {
                area.draw(&PathElement::new([(0, 30), (100, 30)], BLACK.stroke_width(2)))?;
                area.draw(&Text::new(text.to_owned(), (5, 5), ("sans-serif", 15)))?;
                Ok(())
            };
            file.write((100, 40), draw).unwrap();
            let pixmap = Pixmap::decode_png(&std::fs::read(path).unwrap()).unwrap();
            assert_eq!((pixmap.width(), pixmap.height()), (200, 80));
            let dark = |from: usize, to: usize| {
                let pixels = &pixmap.pixels()[200 * from..200 * to];
                pixels.iter().filter(|pixel| pixel.red() < 128 && pixel.alpha() == 255).count()
            };
            (dark(0, 50), dark(55, 65))
        };
        let (nothing, line) = dark(" ");
        assert_eq!((nothing, line), (0, 800));
        assert!(dark("letters").0 > 50, "{:?}", dark("letters"));
    }
}
