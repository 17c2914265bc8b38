//! Errors of files that are no data sets, and what of them callers may hear.

use std::io;

use bandana_mechanisms::queries::QueryError;
use thiserror::Error;

/// Why a file is no data set. What of it callers may hear, [`ReadError::for_callers`] says.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It can't be read.
    #[error("the file can't be read")]
    File(#[source] io::Error),
    /// It is not the name of a file in the directory.
    #[error("that is no name of a file; give one in the server's directory of data sets")]
    NotAName,
    /// A link, a directory, a pipe or a device.
    #[error(
        "that is no regular file in the server's directory of data sets; links are not followed"
    )]
    NotRegular,
    /// It is too large.
    #[error("the file has more than 8 GiB")]
    TooLarge,
    /// A line that is none of CSV.
    #[error("line {line} is not a line of CSV with as many values as there are headings")]
    Line {
        /// The line.
        line: u64,
    },
    /// A column that is not in the file.
    #[error("the file has no column {column:?}; its headings must have every declared column")]
    Missing {
        /// The column.
        column: String,
    },
    /// Two columns of one name.
    #[error("two columns of the file have the same name; give each a name of its own")]
    SameName,
    /// A value beyond what was declared.
    #[error(
        "the value of column {column:?} in line {line} is none that was declared; widen the \
         column, or mend the file"
    )]
    Outside {
        /// The column.
        column: String,
        /// The line of CSV, or the row of Parquet.
        line: u64,
    },
    /// A Parquet file that can't be understood.
    #[error("the Parquet file can't be read: {what}")]
    Parquet {
        /// Why.
        what: String,
    },
    /// This program reads no Parquet.
    #[error("this program reads CSV only; build it with `--features parquet`")]
    NoParquet,
    /// What was read is no data set.
    #[error(transparent)]
    Data(#[from] QueryError),
}

impl ReadError {
    /// What callers may hear of it: a column, and nothing that depends on where in the file
    /// something is, or on how often. The rest is for the log of the host.
    pub fn for_callers(&self) -> String {
        match self {
            Self::Outside { column, .. } => format!(
                "column {column:?} has something that was not declared; widen the column, or mend \
                 the file. Where it is says the server's log"
            ),
            Self::Line { .. } | Self::Parquet { .. } => {
                "the rows of the file can't be read as its headings say; mend the file. Where says \
                 the server's log"
                    .to_owned()
            }
            Self::File(_) => "the file can't be read; why says the server's log".to_owned(),
            other => other.to_string(),
        }
    }
}
