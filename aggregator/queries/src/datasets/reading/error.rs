//! Errors in data sets, and the part of each that callers may learn.

use std::io;

use bandana_mechanisms::queries::QueryError;
use thiserror::Error;

/// The reason why a file is not a valid data set. [`ReadError::for_callers`] is the part that
/// callers may learn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file can't be read.
    #[error("the file can't be read")]
    File(#[source] io::Error),
    /// The name is not that of a file in the directory.
    #[error("that is no name of a file; give one in the server's directory of data sets")]
    NotAName,
    /// The file is a link, a directory, a pipe or a device.
    #[error(
        "that is no regular file in the server's directory of data sets; links are not followed"
    )]
    NotRegular,
    /// The file is too large.
    #[error("the file has more than 8 GiB")]
    TooLarge,
    /// A line is not valid CSV.
    #[error("line {line} is not a line of CSV with as many values as there are headings")]
    Line {
        /// The line number.
        line: u64,
    },
    /// A declared column is missing in the file.
    #[error(
        "the file has no column {column:?}; its first line must have every declared column, \
         separated by commas, semicolons, tabs or bars"
    )]
    Missing {
        /// The column.
        column: String,
    },
    /// Two columns have the same name.
    #[error("two columns of the file have the same name; give each a name of its own")]
    SameName,
    /// A column has values of a kind that is not read.
    #[error("the column {column:?} has {kind}")]
    Kind {
        /// The column.
        column: String,
        /// The kind, and what to do.
        kind: &'static str,
    },
    /// The file is no text.
    #[error("the file is {0}")]
    NotText(&'static str),
    /// A heading is a number.
    #[error(
        "a heading of the file is a number, so its first line seems to be a row; give the file a \
         first line with the names of the columns"
    )]
    NumberAsHeading,
    /// A value is outside its column's declared domain.
    #[error(
        "the value of column {column:?} in line {line} is none that was declared; widen the \
         column, or mend the file"
    )]
    Outside {
        /// The column.
        column: String,
        /// The line number in CSV, or the row number in Parquet.
        line: u64,
    },
    /// A Parquet file is invalid.
    #[error("the Parquet file can't be read: {what}")]
    Parquet {
        /// The reason.
        what: String,
    },
    /// This program is built without support for Parquet.
    #[error("this program reads CSV only; build it with `--features parquet`")]
    NoParquet,
    /// The rows are not a valid data set.
    #[error(transparent)]
    Data(#[from] QueryError),
}

impl ReadError {
    /// The message for callers. It names at most a column, and depends on neither the position nor
    /// the number of offending values. The host's log gets the rest.
    pub fn for_callers(&self) -> String {
        match self {
            Self::Outside { column, .. } => format!(
                "column {column:?} has something that was not declared: widen it, or declare what a \
                 missing value is (age:LOW..HIGH?DEFAULT, sex:f|m|NA) or any other name (city:Bonn|other*), or \
                 mend the file. Numbers have a decimal point, and nothing between thousands. A column that says whose row it is needs a value in each row. The server's \
                 log says where it is"
            ),
            Self::Line { .. } => {
                "the rows of the file do not fit its headings; mend the file. The server's \
                                  log says where"
                    .to_owned()
            }
            Self::Parquet { .. } => {
                "the file can't be read as Parquet; write it again, or give one that \
                                     ends in .csv. The server's log says why"
                    .to_owned()
            }
            Self::File(_) => "the file can't be read; the server's log says why".to_owned(),
            other => other.to_string(),
        }
    }
}
