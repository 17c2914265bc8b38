//! The operators' pages, asked with bytes that no browser need have sent.

use std::cell::RefCell;

use bandana_aggregator::fuzzing::PagesInMemory;
use tempfile::TempDir;

use crate::input::memory;

/// Experiments that earlier inputs may have left.
const EXPERIMENTS_MAX: usize = 64;

thread_local! {
    /// A server takes longer to start than to answer. What an input has created is there for the
    /// next ones, until there is too much of it.
    static SERVER: RefCell<Option<(PagesInMemory, TempDir)>> = const { RefCell::new(None) };
}

/// Requests of HTTP/1.1 are answered, none as a fault of the server's, and the connection ends.
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
