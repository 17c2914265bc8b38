//! Vectors from a CSV or JSON file.

use std::path::Path;

use serde::Deserialize;

/// A list of vectors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Vectors(pub(crate) Vec<Vec<f64>>);

/// Reads the file that a command line argument names.
pub(crate) fn vectors_of(path: &str) -> Result<Vectors, String> {
    let text = std::fs::read_to_string(Path::new(path));
    parse(&text.map_err(|error| format!("the file can't be read: {error}"))?)
}

fn parse(text: &str) -> Result<Vectors, String> {
    let vectors = if text.trim_start().starts_with('[') {
        serde_json::from_str(text)
            .map_err(|error| format!("expected a list of lists of numbers in JSON: {error}"))?
    } else {
        rows(text)?
    };
    match &vectors {
        Vectors(rows) if rows.is_empty() => Err("the file has no vectors".to_owned()),
        _ => Ok(vectors),
    }
}

/// Parses one vector per line. A first line without numbers is a header.
fn rows(text: &str) -> Result<Vectors, String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut vectors = Vec::new();
    for (place, record) in reader.records().enumerate() {
        let record = record.map_err(|error| error.to_string())?;
        let number = |cell: &str| cell.parse::<f64>();
        if place == 0 && record.iter().all(|cell| number(cell).is_err()) {
            continue;
        }
        let line = record.position().map_or(0, csv::Position::line);
        let wrong = |cell: &str| format!("line {line} has {cell:?} where a number is expected");
        let vector = record.iter().map(|cell| number(cell).map_err(|_| wrong(cell)));
        vectors.push(vector.collect::<Result<_, _>>()?);
    }
    Ok(Vectors(vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_read_from_csv_and_from_json() {
        let expected = Vectors(vec![vec![1.0, 0.0], vec![-0.6, 0.8]]);
        for text in ["1,0\n-0.6, 0.8\n", "x,y\n1,0\n\n-0.6,0.8", " [[1, 0], [-0.6, 0.8]]\n"] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_vector_is_named_with_its_line() {
        for (text, said) in [
            ("1,0\n1,two\n", "line 2 has \"two\""),
            ("x,1\n", "line 1 has \"x\""),
            ("x,y\n", "no vectors"),
            ("", "no vectors"),
            ("[[1, 0], [1, \"two\"]]", "list of lists"),
            ("[]", "no vectors"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
