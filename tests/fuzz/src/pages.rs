//! The operators' pages, requested with arbitrary bytes.

use std::cell::RefCell;

use bandana_aggregator::fuzzing::PagesInMemory;
use tempfile::TempDir;

use crate::input::memory;

/// Maximum number of experiments left by earlier inputs.
const EXPERIMENTS_MAX: usize = 64;

thread_local! {
    /// The server is reused, because it takes longer to start than to answer. Experiments of
    /// earlier inputs remain until there are too many.
    static SERVER: RefCell<Option<(PagesInMemory, TempDir)>> = const { RefCell::new(None) };
}

/// Checks that HTTP/1.1 requests are answered without a server error, and that the connection ends.
pub fn pages(data: &[u8]) {
    SERVER.with_borrow_mut(|server| {
        let (pages, _) = server.get_or_insert_with(|| {
            let directory = TempDir::new_in(memory()).expect("a temporary folder");
            (PagesInMemory::open(directory.path()), directory)
        });
        let answer = pages.answer(data);
        if !answer.is_empty() {
            let status = answer.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
            let status = status.expect("an answer of HTTP/1");
            assert!(status[0] != b'5' || status == b"503", "{}", String::from_utf8_lossy(&answer));
        }
        if pages.experiments() > EXPERIMENTS_MAX {
            *server = None;
        }
    });
}
