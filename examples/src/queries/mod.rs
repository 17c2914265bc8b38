//! Private queries about people who trust the server: the parts of `private-queries`.

pub mod contest;
pub mod people;
pub mod picture;
pub mod promises;
pub mod tour;
