//! Readers of data sets: CSV with a header line, or Parquet.

mod csv_rows;
mod error;
mod names;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet_rows;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::{Column, Schema};
use bandana_store::fingerprint::ContentDigests;

pub use error::ReadError;
pub use names::NameCounts;
use names::NamesOfRows;

use super::content::{ContentHasher, Numbering, person};
use super::data_file::DataFile;

impl DataFile {
    /// The rows over the columns of a schema; other columns are omitted.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn rows(&self, schema: &Schema) -> Result<Rows, ReadError> {
        self.read_rows(schema, None, &[]).map(|read| read.rows)
    }

    /// The rows over the columns of a schema, and the digests of the content over all columns.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn rows_and_content(&self, schema: &Schema) -> Result<(Rows, ContentDigests), ReadError> {
        self.with_names(schema, &[]).map(|(rows, content, _)| (rows, content))
    }

    /// As [`Self::rows_and_content`], and for each of these columns of the schema, by index, how many rows have
    /// each name, of those that are kept.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn with_names(
        &self,
        schema: &Schema,
        counted: &[usize],
    ) -> Result<(Rows, ContentDigests, Vec<NameCounts>), ReadError> {
        let numbering = if self.is_parquet {
            of_parquet(|| parquet_rows::numbering(self))?
        } else {
            csv_rows::numbering(self, schema)?
        };
        let Read { rows, content, names } = self.read_rows(schema, Some(&numbering), counted)?;
        // It was asked for.
        Ok((rows, content.ok_or(QueryError::NoRows)?, names))
    }

    /// Checks that column names are distinct. If two columns shared a name, their order would
    /// decide which of them a question is about, and reordering them would change the content.
    /// In CSV none may be a number: the first line may be a row, whose values would become public names.
    /// Applies to new data sets; existing ones remain valid.
    ///
    /// # Errors
    /// [`ReadError::SameName`], [`ReadError::NumberAsHeading`]; [`ReadError`] of files that can't be read.
    pub fn check_headings(&self, schema: &Schema) -> Result<(), ReadError> {
        if self.is_parquet {
            return of_parquet(|| parquet_rows::check_headings(self));
        }
        csv_rows::check_headings(self, schema)
    }

    fn read_rows(
        &self,
        schema: &Schema,
        content: Option<&Numbering>,
        counted: &[usize],
    ) -> Result<Read, ReadError> {
        let read = if self.is_parquet {
            of_parquet(|| parquet_rows::rows(self, schema, content, counted))?
        } else {
            csv_rows::rows(self, schema, content, counted)?
        };
        if read.rows.count() == 0 {
            return Err(QueryError::NoRows.into());
        }
        Ok(read)
    }
}

/// What was read of a file.
struct Read {
    rows: Rows,
    /// On request.
    content: Option<ContentDigests>,
    /// Of each column whose names are counted.
    names: Vec<NameCounts>,
}

/// The state of reading a file. The file is read to its end even after a misfit, so that the time
/// until a refusal does not reveal the position.
struct Reading {
    rows: Rows,
    codes: Vec<u32>,
    /// For each column, the first line with a value outside its declared domain.
    misfits: Vec<Option<u64>>,
    /// The first malformed line.
    broken: Option<u64>,
    content: Option<ContentHasher>,
    /// Where the file has the column that says whose row it is, and whose each row is.
    of_people: Option<(usize, Vec<u128>)>,
    /// Where the file has the columns whose names are counted, and the names of the rows.
    names: Vec<(usize, NamesOfRows)>,
}

impl Reading {
    /// Begins with a file of these headings, where declared columns are at these places.
    fn new<N: AsRef<[u8]>>(
        schema: &Schema,
        (headings, places): (&[N], &[usize]),
        content: Option<&Numbering>,
        counted: &[usize],
    ) -> Self {
        let rows = Rows::new(schema.clone());
        let misfits = vec![None; schema.columns().len()];
        let content = content.map(|numbering| ContentHasher::new(headings, numbering));
        let place = schema.people().and_then(|(column, _)| places.get(column).copied());
        let of_people = place.map(|place| (place, Vec::new()));
        let counted = counted.iter().filter_map(|column| places.get(*column));
        let names = counted.map(|place| (*place, NamesOfRows::default())).collect();
        Self { rows, codes: Vec::new(), misfits, broken: None, content, of_people, names }
    }

    /// Adds a row, given the code of each declared column and the text at each index.
    fn push<V: AsRef<[u8]>>(
        &mut self,
        line: u64,
        codes: impl Iterator<Item = Option<u32>>,
        text: impl Fn(usize) -> Option<V>,
    ) -> Result<(), ReadError> {
        self.codes.clear();
        for (code, misfit) in codes.zip(&mut self.misfits) {
            if code.is_none() {
                misfit.get_or_insert(line);
            }
            self.codes.push(code.unwrap_or_default());
        }
        if let Some((place, people)) = &mut self.of_people {
            people.push(person(text(*place).as_ref().map(AsRef::as_ref).unwrap_or_default()));
        }
        for (place, names) in &mut self.names {
            names.push(text(*place).as_ref().map(AsRef::as_ref).unwrap_or_default());
        }
        if let Some(content) = &mut self.content {
            content.push(text);
        }
        Ok(self.rows.push(&self.codes)?)
    }

    fn finish(self) -> Result<Read, ReadError> {
        let mut columns = self.rows.schema().columns().iter().zip(self.misfits);
        let misfit = columns.find_map(|(column, line)| Some((column.name(), line?)));
        if let Some((column, line)) = misfit {
            return Err(ReadError::Outside { column: column.to_owned(), line });
        }
        if let Some(line) = self.broken {
            return Err(ReadError::Line { line });
        }
        let people = self.of_people.map(|(_, people)| people).unwrap_or_default();
        let places = match self.names.as_slice() {
            [] => None,
            _ => self.rows.places_of_people(&people)?,
        };
        let names = self.names.into_iter().map(|(_, names)| names.count(places.as_deref()));
        Ok(Read {
            names: names.collect(),
            rows: self.rows.of_people(&people)?,
            content: self.content.map(ContentHasher::finish),
        })
    }
}

fn check_names(mut names: Vec<&[u8]>) -> Result<(), ReadError> {
    // Trimmed, as for the digest of contents.
    for name in &mut names {
        *name = name.trim_ascii();
    }
    names.sort_unstable();
    if names.is_sorted_by(|one, next| one < next) { Ok(()) } else { Err(ReadError::SameName) }
}

/// The index of each declared column in the file.
fn places(schema: &Schema, place: impl Fn(&str) -> Option<usize>) -> Result<Vec<usize>, ReadError> {
    let find = |column: &Column| {
        place(column.name()).ok_or_else(|| ReadError::Missing { column: column.name().to_owned() })
    };
    schema.columns().iter().map(find).collect()
}

/// Runs a Parquet reader and catches panics: the library panics on some damaged files. State that a
/// panic may have corrupted is discarded.
fn of_parquet<T>(read: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let what = "it is damaged in a way that its reader does not understand".to_owned();
        Err(ReadError::Parquet { what })
    })
}
