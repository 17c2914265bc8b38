//! Parsers of the aggregator's files and requests.

use std::io::Write as _;
use std::path::Path;

use bandana_aggregator::configuration::Configuration;
use bandana_edge::auth::{TokenHash, TokenKind, TokenList, TokenName};
use bandana_mechanisms::queries::universe::{Column, Schema};
use bandana_queries::datasets::data_file::DataFile;
use bandana_shared::stored;
use bandana_zcdp::state::{ReleasedState, SecretState};

use crate::input::{byte, memory, part, sealed};

/// Calls `read` with a file of these bytes.
fn with_file<T>(suffix: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let file = tempfile::Builder::new().suffix(suffix).tempfile_in(memory());
    let mut file = file.expect("a temporary file");
    file.write_all(bytes).expect("room for a temporary file");
    read(file.path())
}

/// The effective configuration is itself a file with the same meaning.
pub fn configuration(data: &[u8]) {
    let read = |bytes: &[u8]| {
        with_file(".toml", bytes, |path| Configuration::load(Some(path), Vec::new()))
    };
    let Ok((configuration, effective)) = read(data) else { return };
    let again = read(effective.to_string().as_bytes());
    let (again, _) = again.expect("what is effective can be loaded");
    assert_eq!(again, configuration);
}

/// A changed list of tokens has the change and all other entries.
pub fn tokens(mut data: &[u8]) {
    let kind = if byte(&mut data) & 1 == 0 { TokenKind::Operator } else { TokenKind::App };
    let name = part(&mut data);
    let (Ok(text), Ok(name)) = (std::str::from_utf8(data), std::str::from_utf8(name)) else {
        return;
    };
    let names = |text: &str| -> Vec<String> {
        let list = TokenList::parse(kind, text).expect("a list");
        list.names().map(|(name, roles)| format!("{name} {roles:?}")).collect()
    };
    let (Ok(list), Ok(name)) = (TokenList::parse(kind, text), TokenName::new(name)) else { return };
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let hash: TokenHash = hash.parse().expect("a hash");
    let is_new = !list.has(&name) && list.find(&hash).is_none();
    let longer = TokenList::with(kind, text, &name, &hash, None);
    if let Ok(longer) = &longer {
        let shorter = TokenList::without(longer, &name).expect("it has the name");
        assert_eq!(names(&shorter), names(text));
    }
    assert!(longer.is_ok() || !is_new || text.len() + 256 > TokenList::BYTES_MAX);
}

/// A parsed key survives a round trip.
pub fn key_file(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        bandana_aggregator::fuzzing::key_file(text);
    }
}

/// The file of a new experiment.
pub fn draft(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        bandana_aggregator::fuzzing::draft(text);
    }
}

/// Requests of pages: JSON bodies and URIs.
pub fn requests(mut data: &[u8]) {
    let address = part(&mut data);
    bandana_aggregator::fuzzing::request(address, data);
}

/// A schema of three columns from the input; the rest of the data remains.
fn schema(data: &mut &[u8]) -> Option<Schema> {
    let count = usize::from(byte(data) % 4);
    let texts: Vec<String> =
        (0..count).map(|_| String::from_utf8(part(data).to_vec()).ok()).collect::<Option<_>>()?;
    Schema::parse(&texts).ok()
}

/// A clause selects exactly the cells that it describes, column by column.
pub fn where_clause(mut data: &[u8]) {
    let Some(schema) = schema(&mut data) else { return };
    let Ok(clause) = std::str::from_utf8(data) else { return };
    let names: Vec<&str> = schema.columns().iter().map(Column::name).collect();
    let Ok(universe) = schema.universe(&names) else { return };
    if universe.cells() > 1 << 12 {
        return;
    }
    let Ok(selected) = universe.select(clause) else { return };
    drop(selected);
    for cell in 0..universe.cells() {
        assert_eq!(universe.cell(universe.codes(cell)), cell);
    }
}

/// Rows of CSV are the same with and without a digest of the content.
pub fn rows(data: &[u8]) {
    rows_of("data.csv", data);
}

/// Rows of Parquet are the same with and without a digest of the content.
pub fn parquet(data: &[u8]) {
    rows_of("data.parquet", data);
}

fn rows_of(name: &str, mut data: &[u8]) {
    let Some(schema) = schema(&mut data) else { return };
    let file = DataFile::of(data.to_vec(), name);
    let Ok(rows) = file.rows(&schema) else { return };
    assert!(rows.count() > 0);
    if let Ok((again, _)) = file.rows_and_content(&schema) {
        assert_eq!(again.count(), rows.count());
    }
}

/// Stored states of trusted experiments, with a valid checksum.
pub fn trusted_state(mut data: &[u8]) {
    let is_secret = byte(&mut data) & 1 == 0;
    let magic = if is_secret { *b"BDts" } else { *b"BDtr" };
    let bytes = sealed(magic, 1, data);
    if is_secret {
        stored::from_bytes::<SecretState>(&bytes).ok();
    } else if let Ok(state) = stored::from_bytes::<ReleasedState>(&bytes) {
        let written = stored::to_bytes(&state).expect("what was read is written");
        let again = stored::from_bytes::<ReleasedState>(&written).expect("it is read again");
        assert_eq!(stored::to_bytes(&again).expect("it is written again"), written);
    }
}
