//! Files in memory, for what ends with its process.

use std::collections::BTreeMap;
use std::io;

use super::Files;

/// A directory that is nowhere on the disk.
#[derive(Debug, Default)]
pub(crate) struct MemoryFiles(pub(crate) BTreeMap<String, Vec<u8>>);

impl Files for MemoryFiles {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(name).cloned())
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let file = self.0.entry(name.to_owned()).or_default();
        let end = offset.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        file.resize(file.len().max(end), 0);
        file[offset..end].copy_from_slice(bytes);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.entry(name.to_owned()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn sync(&mut self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let file = self.0.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.0.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.0.remove(name);
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        Ok(())
    }
}
