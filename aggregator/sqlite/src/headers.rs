//! Headers of an open database and its log, compared to detect overwriting by other programs.
//!
//! SQLite rereads a page only if it has to. A server could therefore run for long on a database
//! that was overwritten in place, and acknowledge commits that no later start finds. The formats
//! are those that SQLite documents (fileformat2.html and walformat.html). Damage beyond these
//! headers is found when a row is read or written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{SqliteError, damaged};

/// Length of the header at the start of a database, in bytes.
const HEADER_LEN: usize = 100;

/// Length of a log's header, in bytes.
const LOG_HEADER_LEN: u64 = 32;

/// Length of a frame's header, in bytes.
const FRAME_HEADER_LEN: u64 = 24;

/// The files, by descriptors of this program. Closing one releases SQLite's own locks on the file
/// in the whole process, so they are closed after the connection.
#[derive(Debug)]
pub(super) struct Headers {
    database: Arc<File>,
    log: File,
    index: File,
    /// The constant part of the database's header.
    constant: [u8; 24],
    /// The mark of the program whose database it is.
    application: u32,
    page_len: u64,
    /// The greatest values seen so far.
    changes: AtomicU32,
    length: AtomicU64,
}

/// The state of a log, according to its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Log {
    frames: u32,
    /// The checksums of the last frame.
    checksums: [u32; 2],
    salts: [u8; 8],
}

impl Headers {
    /// The headers of files that SQLite has open.
    pub(super) fn new(database: Arc<File>, log: File, index: File) -> Result<Self, SqliteError> {
        let header = header(&database).map_err(|error| unreadable("database", &error))?;
        let constant = *header.first_chunk().unwrap_or(&[0; 24]);
        // 1 stands for 65,536, which does not fit in two bytes.
        let page_len = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65_536,
            length => u64::from(length),
        };
        let (changes, length) = (AtomicU32::new(0), AtomicU64::new(0));
        let application = big_endian(&header, 68);
        Ok(Self { database, log, index, constant, application, page_len, changes, length })
    }

    /// Checks that the headers are still those of the store.
    ///
    /// # Errors
    /// [`SqliteError::Data`].
    pub(super) fn check(&self) -> Result<(), SqliteError> {
        self.check_database().map_err(|error| unreadable("database", &error))??;
        self.check_log().map_err(|error| unreadable("log", &error))?
    }

    fn check_database(&self) -> io::Result<Result<(), SqliteError>> {
        let header = header(&self.database)?;
        let application = big_endian(&header, 68);
        if header[..24] != self.constant || application != self.application {
            return Ok(Err(overwritten("the database file")));
        }
        let changes = big_endian(&header, 24);
        if changes < self.changes.fetch_max(changes, Ordering::Relaxed) {
            return Ok(Err(damaged("the database file is an older one".to_owned())));
        }
        let expected = u64::from(big_endian(&header, 28)) * self.page_len;
        let length = self.database.metadata()?.len();
        let longest = self.length.fetch_max(length, Ordering::Relaxed);
        // While a log is copied into the database, the header is written first.
        if expected == 0 || length < expected.min(longest) {
            return Ok(Err(cut("the database file", length, expected)));
        }
        Ok(Ok(()))
    }

    /// Checks that the last commit is in the log, unless the log has been copied completely.
    fn check_log(&self) -> io::Result<Result<(), SqliteError>> {
        let Log { frames, checksums, salts } = self.indexed()?;
        if frames == 0 {
            return Ok(Ok(()));
        }
        let frame_len = FRAME_HEADER_LEN + self.page_len;
        let expected = LOG_HEADER_LEN + u64::from(frames) * frame_len;
        let length = self.log.metadata()?.len();
        if length < expected {
            return Ok(Err(cut("its log", length, expected)));
        }
        let (mut header, mut frame) = ([0; 32], [0; 24]);
        self.log.read_exact_at(&mut header, 0)?;
        self.log.read_exact_at(&mut frame, expected - frame_len)?;
        let found = [big_endian(&frame, 16), big_endian(&frame, 20)];
        if header[16..24] != salts || frame[8..16] != salts || found != checksums {
            return Ok(Err(overwritten("its log")));
        }
        Ok(Ok(()))
    }

    fn indexed(&self) -> io::Result<Log> {
        let mut header = [0; 48];
        self.index.read_exact_at(&mut header, 0)?;
        let native = |at: usize| u32::from_ne_bytes(*header[at..].first_chunk().unwrap_or(&[0; 4]));
        Ok(Log {
            frames: native(16),
            checksums: [native(24), native(28)],
            salts: *header[32..].first_chunk().unwrap_or(&[0; 8]),
        })
    }
}

fn header(database: &File) -> io::Result<[u8; HEADER_LEN]> {
    let mut header = [0; HEADER_LEN];
    database.read_exact_at(&mut header, 0)?;
    Ok(header)
}

fn big_endian(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().unwrap_or(&[0; 4]))
}

fn overwritten(what: &str) -> SqliteError {
    damaged(format!("{what} was written over while a server had it open"))
}

fn cut(what: &str, length: u64, expected: u64) -> SqliteError {
    damaged(format!(
        "{what} has {length} bytes, and must have {expected}: it was cut while a server had it open"
    ))
}

fn unreadable(what: &str, error: &io::Error) -> SqliteError {
    damaged(format!("the header of the {what} can't be read: {error}"))
}
