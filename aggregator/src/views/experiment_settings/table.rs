//! The table of an experiment's settings: a row declares what the rest follows from.

use std::fmt;

use bandana_shared::wire::v1::ExperimentStatus;
use clap::Command;
use serde::{Serialize, Serializer};

/// Declares the settings, by the headings of the help. A row is a field of the struct. From it follow the
/// flag, with the documentation, and the key in a file. After `=` comes its [`Field`] in the dashboard's
/// form. After `=>` comes, of a number that only the learner reads, its field in the request, and its
/// [`LearningNumber`]: the request, the key of the JSON and the row of the view.
macro_rules! settings {
    ($(#[$about:meta])* struct $settings:ident; $($heading:literal $in_help:tt => {$(
        $(#[$($attribute:tt)*])*
        $name:ident: $type:ty $(= $field:expr)? $(=> $requested:ident, $number:expr)?;
    )*})*) => {
        $(#[$about])*
        #[derive(Debug, Default, clap::Args, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $settings {
            $($($(#[$($attribute)*])* #[arg $in_help] $name: $type,)*)*
        }

        impl $settings {
            /// The numbers that only the learner reads.
            pub(crate) const LEARNING_NUMBERS: &[LearningNumber] =
                &[$($($(LearningNumber { key: stringify!($requested), ..$number },)?)*)*];

            /// The fields of the form.
            pub(crate) fn form() -> Vec<FormField> {
                let flags = <Self as clap::Args>::augment_args(clap::Command::new(""));
                vec![$($($($field.named(stringify!($name), $heading, &flags),)?)*)*]
            }

            fn merged(self, file: Self) -> Self {
                Self { $($($name: self.$name.over(file.$name),)*)* }
            }

            fn set_learning_numbers(&self, request: &mut CreateExperimentRequest) {
                $($($(request.$requested = self.$name.unwrap_or_default();)?)*)*
            }
        }
    };
}
pub(super) use settings;

/// A value that takes precedence over another one, if it is there.
pub(super) trait Over {
    fn over(self, other: Self) -> Self;
}

impl<T> Over for Option<T> {
    fn over(self, other: Self) -> Self {
        self.or(other)
    }
}

impl<T> Over for Vec<T> {
    fn over(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }
}

/// What an input takes.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Number,
    Text,
    /// A list with an item on each line.
    Lines,
    /// A list with semicolons between.
    List,
    Choice,
}

/// The field of a setting in the dashboard's form.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Field {
    kind: Kind,
    label: &'static str,
    /// Attributes of the input, as in HTML without quotes.
    attributes: &'static str,
    /// The values of a choice, with their titles.
    options: &'static [(&'static str, &'static str)],
    /// What is said of it; if left out, the help of the flag.
    #[serde(skip)]
    note: Option<&'static str>,
}

pub(super) const fn number(label: &'static str, attributes: &'static str) -> Field {
    Field { kind: Kind::Number, label, attributes, options: &[], note: None }
}

pub(super) const fn text(label: &'static str, attributes: &'static str) -> Field {
    Field { kind: Kind::Text, ..number(label, attributes) }
}

pub(super) const fn lines(label: &'static str, attributes: &'static str) -> Field {
    Field { kind: Kind::Lines, ..number(label, attributes) }
}

pub(super) const fn list(label: &'static str) -> Field {
    Field { kind: Kind::List, ..number(label, "") }
}

pub(super) const fn choice(
    label: &'static str,
    options: &'static [(&'static str, &'static str)],
) -> Field {
    Field { kind: Kind::Choice, options, note: Some(""), ..number(label, "") }
}

/// A field as the page gets it.
#[derive(Debug, Serialize)]
pub(crate) struct FormField {
    key: &'static str,
    heading: &'static str,
    #[serde(flatten)]
    field: Field,
    note: String,
}

impl Field {
    /// The field with another note than the help of the flag.
    pub(super) const fn note(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }

    pub(super) fn named(
        self,
        key: &'static str,
        heading: &'static str,
        flags: &Command,
    ) -> FormField {
        let flag = flags.get_arguments().find(|flag| flag.get_id() == key);
        let help = || flag.and_then(|flag| flag.get_help()).map(ToString::to_string);
        let mut note = self.note.map(str::to_owned).or_else(help).unwrap_or_default();
        // What is filled in need not be said.
        if let Some((before, (_, after))) = note
            .split_once(" [default: ")
            .filter(|_| self.attributes.contains("value="))
            .and_then(|(before, after)| Some((before, after.split_once(']')?)))
        {
            note = format!("{before}{after}");
        }
        FormField { key, heading, field: self, note }
    }
}

/// A number that only the learner reads.
#[derive(Debug)]
pub(crate) struct LearningNumber {
    /// Its key in the request and in the JSON of the view.
    pub(crate) key: &'static str,
    /// The name of its row in the view.
    pub(crate) name: &'static str,
    /// What its row says of 0, and after another number.
    pub(crate) words: (&'static str, &'static str),
    pub(crate) value: fn(&ExperimentStatus) -> Number,
}

/// A number of a learner, whole or not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Number {
    Whole(u32),
    Real(f64),
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
        }
    }
}

pub(super) const fn learning(
    name: &'static str,
    words: (&'static str, &'static str),
    value: fn(&ExperimentStatus) -> Number,
) -> LearningNumber {
    LearningNumber { key: "", name, words, value }
}

/// The learning numbers of an experiment, in the order of the table.
#[derive(Debug)]
pub(crate) struct LearningNumbers(Vec<(&'static LearningNumber, Number)>);

impl LearningNumbers {
    pub(crate) fn of(status: &ExperimentStatus) -> Self {
        let all = super::ExperimentSettings::LEARNING_NUMBERS.iter();
        Self(all.map(|number| (number, (number.value)(status))).collect())
    }

    /// Rows for the table of an experiment's properties.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(|(LearningNumber { name, words: (none, unit), .. }, number)| {
            let is_none = matches!(number, Number::Whole(0)) || *number == Number::Real(0.0);
            (*name, if is_none { (*none).to_owned() } else { format!("{number} {unit}") })
        })
    }
}

impl Serialize for LearningNumbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(number, value)| (number.key, value)))
    }
}
