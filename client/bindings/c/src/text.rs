//! Texts, bytes and arrays at the border.

use std::ffi::{CStr, CString, c_char};

/// A text that C can read.
pub(crate) type Text = CString;

/// A text for C, up to a zero byte if it has one.
pub(crate) fn text(text: &str) -> Text {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// A text from C; `None`: NULL.
///
/// # Errors
/// When it is not UTF-8.
///
/// # Safety
/// `pointer` is NULL, or leads to bytes that end with a zero.
pub(crate) unsafe fn read(pointer: *const c_char) -> Result<Option<String>, String> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    match text.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(format!("{:?} is not UTF-8", text.to_string_lossy())),
    }
}

/// Bytes from C; `None`: NULL.
///
/// # Safety
/// `pointer` is NULL, or leads to `size` bytes.
pub(crate) unsafe fn bytes(pointer: *const u8, size: usize) -> Option<Vec<u8>> {
    // SAFETY: as the caller promises.
    (!pointer.is_null()).then(|| unsafe { array(pointer, size) }.to_vec())
}

/// An array from C; empty for NULL.
///
/// # Safety
/// `pointer` is NULL, or leads to `size` elements, which last as long as they are used.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, size: usize) -> &'a [T] {
    if pointer.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(pointer, size) }
}

/// Gives the text of an error to C, if it wants one.
///
/// # Safety
/// `place` is NULL, or may be written.
pub(crate) unsafe fn give(place: *mut *mut c_char, message: &str) {
    // SAFETY: as the caller promises.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = text(message).into_raw();
    }
}

/// Frees a text that a function says is to be freed.
///
/// # Safety
/// `text` is NULL, or comes from such a function, and nobody has it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Text::from_raw(text) });
    }
}
