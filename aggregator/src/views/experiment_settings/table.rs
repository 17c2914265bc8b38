//! The table of an experiment's settings: a row declares what the rest follows from.

use bandana_shared::wire::v1::ExperimentStatus;
use clap::Command;
use serde_json::{Map, Value, json};

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

            /// The fields of the form, as the page gets them.
            pub(crate) fn form() -> Vec<serde_json::Value> {
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

/// The field of a setting in the dashboard's form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    kind: &'static str,
    label: &'static str,
    /// Attributes of the input, as in HTML without quotes.
    attributes: &'static str,
    /// The values of a choice, with their titles.
    options: &'static [(&'static str, &'static str)],
    /// What is said of it; if left out, the help of the flag.
    note: Option<&'static str>,
}

pub(super) const fn number(label: &'static str, attributes: &'static str) -> Field {
    Field { kind: "number", label, attributes, options: &[], note: None }
}

pub(super) const fn text(label: &'static str, attributes: &'static str) -> Field {
    Field { kind: "text", ..number(label, attributes) }
}

/// A list with an item on each line.
pub(super) const fn lines(label: &'static str, attributes: &'static str) -> Field {
    Field { kind: "lines", ..number(label, attributes) }
}

/// A list with semicolons between.
pub(super) const fn list(label: &'static str) -> Field {
    Field { kind: "list", ..number(label, "") }
}

pub(super) const fn choice(
    label: &'static str,
    options: &'static [(&'static str, &'static str)],
) -> Field {
    Field { kind: "choice", options, note: Some(""), ..number(label, "") }
}

impl Field {
    /// The field with another note than the help of the flag.
    pub(super) const fn note(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }

    pub(super) fn named(self, key: &str, heading: &str, flags: &Command) -> Value {
        let flag = flags.get_arguments().find(|flag| flag.get_id() == key);
        let help = || flag.and_then(|flag| flag.get_help()).map(ToString::to_string);
        let mut note = self.note.map(str::to_owned).or_else(help).unwrap_or_default();
        // What is filled in need not be said.
        if self.attributes.contains("value=")
            && let Some((before, default)) = note.split_once(" [default: ")
        {
            note = format!("{before}{}", default.split_once(']').map_or("", |(_, after)| after));
        }
        let Self { kind, label, attributes, options, .. } = self;
        json!({"key": key, "heading": heading, "kind": kind, "label": label, "note": note,
            "attributes": attributes, "options": options})
    }
}

/// A number that only the learner reads.
#[derive(Debug)]
pub(crate) struct LearningNumber {
    /// Its key in the request and in the JSON of the view.
    pub(crate) key: &'static str,
    /// The name of its row in the view.
    pub(super) name: &'static str,
    /// What its row says of 0, and after another number.
    pub(super) words: (&'static str, &'static str),
    pub(super) value: fn(&ExperimentStatus) -> Value,
}

pub(super) const fn learning(
    name: &'static str,
    words: (&'static str, &'static str),
    value: fn(&ExperimentStatus) -> Value,
) -> LearningNumber {
    LearningNumber { key: "", name, words, value }
}

/// The learning numbers of an experiment, by their keys.
pub(crate) fn learning_numbers(status: &ExperimentStatus) -> Map<String, Value> {
    let all = super::ExperimentSettings::LEARNING_NUMBERS.iter();
    all.map(|number| (number.key.to_owned(), (number.value)(status))).collect()
}

/// Rows on learning numbers, for the table of an experiment's properties.
pub(crate) fn learning_rows(numbers: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let row = |LearningNumber { key, name, words: (none, unit), .. }: &LearningNumber| {
        let number = numbers.get(*key).and_then(Value::as_f64).unwrap_or_default();
        (*name, if number > 0.0 { format!("{number} {unit}") } else { (*none).to_owned() })
    };
    super::ExperimentSettings::LEARNING_NUMBERS.iter().map(row).collect()
}
