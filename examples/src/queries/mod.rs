//! Private queries about people who trust the server: what `private-queries` is made of.

pub mod contest;
pub mod people;
pub mod picture;
pub mod tour;
